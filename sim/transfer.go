package sim

import (
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Transfers runs a scenario with many seeds: three hosts under load. The leader is asked again and again to
// hand over (host.Group.StartTransfer), to a follower, to the best follower, or to a host that is cut off
// or down. Each transfer must end within ten election timeouts, with nil only if the target leads then; to
// a host that is away it must end with a sentence. It returns how many ended well, and how many with an
// error. The error, if any, is a *Violation.
func Transfers(o Options) (well, badly int, err error) {
	err = scenario(o, func(w *world, rng *rand.Rand) {
		w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond)
		w.net.drop = pick(rng, 0, 0, 0.02)
		w.startCalmly()
		for range 12 {
			if !w.runUntil(w.now+w.maxElection(), func() bool { return w.leader() != nil }) {
				w.violate("no leader in %v: %s", w.maxElection(), w.positions())
			}
			leader := w.leader()
			to := pick(rng, w.hosts...)
			away := to != leader && rng.IntN(4) == 0
			if away {
				to.crash(crashfs.LoseNothing)
			}
			id := to.id
			if !away && to != leader && rng.IntN(3) == 0 {
				id = 0
			}
			group := leader.alive.replicas[0].group
			t := group.StartTransfer(id)
			var done bool
			var err error
			if !w.runUntil(w.now+w.maxElection(), func() bool { done, err = t.Poll(); return done }) {
				w.violate("%v after host %d was asked to hand over to host %d, neither has happened nor an error: %s", w.maxElection(), leader.id, id, w.positions())
			}
			known, _ := group.Leader()
			switch {
			case err == nil && away:
				w.violate("the leadership passes to host %d, which is down", id)
			case err == nil && id != 0 && known.ID != id || err == nil && id == 0 && known.Self:
				w.violate("the transfer from host %d to host %d has ended well, and host %d leads", leader.id, id, known.ID)
			case err == nil:
				well++
			case !strings.HasPrefix(err.Error(), "millrace: "):
				w.violate("a transfer ends with %q", err)
			case errors.Is(err, outcome.ErrStopped):
				w.violate("a transfer ends with %q, and nothing was stopped", err)
			default:
				badly++
			}
			to.start()
			w.pass(between(rng, 0, 5*w.config.ElectionTimeout))
		}
		w.net.drop = 0
		w.endWell()
	})
	return well, badly, err
}
