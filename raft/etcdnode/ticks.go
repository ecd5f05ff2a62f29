package etcdnode

import "sync/atomic"

// A ticker must not wait for a disk, and the lock is held while the core reads Storage. So a tick is first
// counted, without the lock, and then run by the holder of the lock. If a call is in progress, that call
// looks for ticks once more after it unlocks. If there is none, a short-lived goroutine runs the tick. The
// look after unlocking cannot miss a tick: the tick was counted before its TryLock failed, and the lock that
// made it fail was released after that; the releasing goroutine looks, or another one has taken the lock and
// looks in turn.
//
// Ticks are run before the current input, because they are older. Hence a read is never served under a lease
// that expired while the node was busy. This also says how many ticks the node must remember: fewer than an
// election timeout would lengthen a lease by the forgotten time, and no clock of the core runs for more than
// two.

type ticks struct {
	arrived atomic.Int64

	// Guarded by Local.mu.
	owed, maxOwed int // moved here from arrived, and not run yet
	lost          int // dropped beyond maxOwed, and not yet reported to the Logger
}

// Tick advances the node's clock by one tick: at once in the background, or at the end of the call that is in
// progress. It never blocks, and every later call sees its effect.
func (n *Local) Tick() {
	n.ticks.arrived.Add(1)
	if n.mu.TryLock() {
		go func() { // takes over the lock
			n.run(func() {})
			n.catchUp()
		}()
	}
}

func (n *Local) catchUp() {
	for n.ticks.arrived.Load() > 0 && n.mu.TryLock() {
		n.run(func() {})
	}
}

// runTicks runs the owed ticks, unless the consumer is so far behind that there is no space for what they
// produce. It asks for a Ready, for a consumer that keeps the channel (ready.go).
func (n *Local) runTicks() {
	t := &n.ticks
	t.collect()
	if n.err != nil || t.owed == 0 {
		return
	}
	n.ask()
	if n.behind() {
		return
	}
	if t.lost > 0 {
		n.warnf("%d: the node was busy, or its consumer was behind, for %d ticks; only %d of them count", n.id, t.owed+t.lost, t.owed)
		t.lost = 0
	}
	for ; t.owed > 0; t.owed-- {
		n.core.Tick()
		n.backlogBytes += inputBytes
	}
}

func (t *ticks) collect() {
	t.owed += int(t.arrived.Swap(0))
	if over := t.owed - t.maxOwed; over > 0 {
		t.owed, t.lost = t.maxOwed, t.lost+over
	}
}
