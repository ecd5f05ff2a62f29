package pebble

import (
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// stalls reports when Pebble holds up writes, because it flushes or merges more slowly than they come. Each
// put waits then, and nothing else would say why.
type stalls struct {
	to  *slog.Logger
	dir string

	mu      sync.Mutex
	why     string
	began   time.Time
	last    time.Time // of the reports
	count   int       // since then
	longest time.Duration
}

const (
	minStall      = 100 * time.Millisecond // shorter ones are not reported
	stallInterval = 10 * time.Second       // between two reports
)

func (s *stalls) begin(i pebble.WriteStallBeginInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why, s.began = i.Reason, time.Now()
}

func (s *stalls) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended(time.Now())
}

// ended counts a stall, and reports it if none was reported just before.
func (s *stalls) ended(now time.Time) {
	took := now.Sub(s.began)
	if took < minStall {
		return
	}
	s.count++
	s.longest = max(s.longest, took)
	if now.Sub(s.last) < stallInterval {
		return
	}
	s.to.Warn("the database has held up writes: the disk does not keep up with them", "reason", s.why, "times", s.count, "longest", s.longest, "dir", s.dir)
	s.last, s.count, s.longest = now, 0, 0
}
