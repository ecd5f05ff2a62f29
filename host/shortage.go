package host

import (
	"log/slog"
	"sync"
)

// shortages is work that found no descriptor or no memory (vfs.IsShort): reads of the log, and restores of
// snapshots. The disk is well, and nothing is lost. So no group stops: what was refused is tried again at a
// later beat of the clock, as often as it takes.
type shortages struct {
	logger *slog.Logger

	mu    sync.Mutex
	waits []func()
	times uint64 // since the last beat at which nothing waited
}

// later makes f run at the next beat. f must not block. err is what was short.
func (s *shortages) later(f func(), err error) {
	s.mu.Lock()
	s.waits = append(s.waits, f)
	s.times++
	times := s.times
	s.mu.Unlock()
	if times&(times-1) == 0 {
		s.logger.Warn("a file cannot be opened for now; it is tried again", "err", err, "times", times)
	}
}

// beat is called at each beat of the clock.
func (s *shortages) beat() {
	s.mu.Lock()
	waits := s.waits
	if s.waits = nil; len(waits) == 0 {
		s.times = 0
	}
	s.mu.Unlock()
	for _, f := range waits {
		f()
	}
}
