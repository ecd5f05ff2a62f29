package sim

import (
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
)

// Two scenarios that pull in opposite directions. Where every disk is slow, a leader that steps down because
// its appends are unanswered is missed: an election waits for the same disks. Where appends are lost and
// heartbeats are not, it should step down at once. Decision 0014 has the
// table.

// SlowRow is what SlowDiskRow returns.
type SlowRow struct {
	Leaders   int     // new ones
	HandOvers int     // leaderships given up
	Acked     int     // commands acknowledged
	Led       float64 // part of the time in which a host led
}

// SlowDiskRow runs three hosts on which, after a calm start, a write and its sync take slow together, and
// counts what happens in a time. At the end the disks are fast, and the cluster must converge. The error, if
// any, is a *Violation.
func SlowDiskRow(o Options, slow, during time.Duration) (row SlowRow, err error) {
	err = scenario(o, func(w *world, _ *rand.Rand) {
		w.slowDown(slow)
		w.runUntil(w.now+5*slow, func() bool { return false })
		leaders, acked, handOvers := w.leaders(), w.acked(), w.faults[HandOvers]
		const step = 5 * time.Millisecond
		led := 0
		for range during / step {
			w.runUntil(w.now+step, func() bool { return false })
			if w.leader() != nil {
				led++
			}
		}
		row = SlowRow{w.leaders() - leaders, w.faults[HandOvers] - handOvers, w.acked() - acked, float64(led) / float64(during/step)}
		for _, h := range w.hosts {
			h.slowDisk = 0
		}
		w.endWell()
	})
	return row, err
}

// slowDown starts three hosts calmly, and makes their disks slow.
func (w *world) slowDown(slow time.Duration) {
	w.net.slowest = 3 * time.Millisecond
	w.startCalmly()
	for _, h := range w.hosts {
		h.slowDisk = slow / 2
	}
	w.clients.pace = 20 * time.Millisecond
}

// BlackHole runs three hosts on fast disks under load, whose leader's appends with entries are lost, and
// nothing else. It returns how long it took until another host led. Then the hole is gone, and the cluster
// must converge. The error, if any, is a *Violation; no other leader within fifty election timeouts is one.
func BlackHole(o Options) (took time.Duration, err error) {
	err = scenario(o, func(w *world, _ *rand.Rand) {
		w.slowDown(0)
		old := w.leader()
		w.net.swallows = func(from *life, m *raftpb.Message) bool {
			return from.host == old && m.Type == raftpb.MsgApp && len(m.Entries) > 0
		}
		began := w.now
		if most := 5 * w.maxElection(); !w.runUntil(began+most, func() bool { l := w.leader(); return l != nil && l != old }) {
			w.violate("%v after its appends are lost host %d still leads, or no host does: %s", most, old.id, w.positions())
		}
		took = w.now - began
		w.net.swallows = nil
		w.endWell()
	})
	return took, err
}
