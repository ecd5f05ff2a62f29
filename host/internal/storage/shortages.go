package storage

import (
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/internal/repetition"
)

// Shortages is work that found no descriptor or no memory (vfs.IsShort): reads of the log, and restores of
// snapshots. The disk is well, and nothing is lost. So no group stops: what was refused is tried again at a
// later beat of the clock, as often as it takes.
type Shortages struct {
	logger *slog.Logger
	now    func() time.Duration // the clock

	mu    lock.Mutex
	waits []func()
	gate  repetition.Gate // ends with a beat at which nothing waits
}

// Open makes them ready. It is called before any other method.
func (s *Shortages) Open(logger *slog.Logger, now func() time.Duration) {
	s.logger, s.now = logger, now
}

// Later makes f run at the next beat. f must not block. err is what was short.
func (s *Shortages) Later(f func(), err error) {
	s.mu.Lock()
	s.waits = append(s.waits, f)
	repeats, ok := s.gate.Admit(s.now())
	s.mu.Unlock()
	if ok {
		s.logger.Warn("a file cannot be opened for now; it is tried again", "err", err, "repeats", repeats)
	}
}

// Tick is called at each beat of the clock.
func (s *Shortages) Tick() {
	s.mu.Lock()
	waits := s.waits
	if s.waits = nil; len(waits) == 0 {
		s.gate.End()
	}
	s.mu.Unlock()
	for _, f := range waits {
		f()
	}
}
