package pebble

import (
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// stalls tells when Pebble holds up writes, because it flushes or merges more slowly than they come. Each put
// waits then, and nothing else would say why.
type stalls struct {
	to  *slog.Logger
	dir string

	mu    sync.Mutex
	why   string
	began time.Time
	told  time.Time
	count int // since it was told
	most  time.Duration
}

const (
	minStall      = 100 * time.Millisecond // shorter ones are not told
	stallInterval = 10 * time.Second       // between two sentences
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

// ended counts a stall, and tells it if none was told of late.
func (s *stalls) ended(now time.Time) {
	took := now.Sub(s.began)
	if took < minStall {
		return
	}
	s.count++
	s.most = max(s.most, took)
	if now.Sub(s.told) < stallInterval {
		return
	}
	s.to.Warn("the database has held up writes: the disk does not keep up with them", "reason", s.why, "times", s.count, "longest", s.most, "dir", s.dir)
	s.told, s.count, s.most = now, 0, 0
}
