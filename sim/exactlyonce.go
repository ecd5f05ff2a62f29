package sim

import (
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/vfs/crashfs"
)

// ExactlyOnceReport counts what a run of ExactlyOnce has met.
type ExactlyOnceReport struct {
	Leaders    int // terms that had a leader
	Calls      int // commands that clients handed in
	Acked      int
	Suppressed uint64 // entries that members did not apply, because their sessions had seen them
}

// ExactlyOnce is a scenario. Clients hand commands to all hosts of a cluster whose network repeats every
// other frame and loses many. Its leaders are killed, paused and cut off again and again. So most commands
// come to a log more than once. The checks of calls.go demand that each is applied once.
func ExactlyOnce(o Options, during time.Duration) (r ExactlyOnceReport, err error) {
	o.calls = true
	err = scenario(o, func(w *world, rng *rand.Rand) {
		w.config.MemoryBytes, w.config.SegmentBytes, w.config.LogCacheBytes = 16<<20, 128<<10, 1<<20
		w.groupConfig.MaxAppendBytes = 0
		w.calls.Sessions = session.Options{}
		w.calls.eager, w.net.slowest = true, time.Millisecond
		w.startCalmly()
		w.clients.pace = time.Millisecond
		for end := w.now + during; w.now < end; {
			w.net.drop, w.net.duplicate = pick(rng, 0, 0.1, 0.3), 0.5
			w.net.slowest = pick(rng, time.Millisecond, 20*time.Millisecond, 100*time.Millisecond)
			w.pass(between(rng, 100*time.Millisecond, 600*time.Millisecond))
			h := w.leader()
			if h == nil {
				continue
			}
			switch rng.IntN(3) {
			case 0:
				h.crash(pick(rng, crashfs.LoseNothing, crashfs.LoseAll))
				w.plan(between(rng, 0, 300*time.Millisecond), "the leader starts again", nil, h.start)
			case 1:
				w.nemesis.isolateHost(h)
			default:
				w.nemesis.pause(h)
			}
		}
		w.endWell()
		r.Leaders, r.Calls, r.Acked, r.Suppressed = w.leaders(), w.clients.submitted, w.acked(), w.suppressed
	})
	return r, err
}
