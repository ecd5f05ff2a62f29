package etcdnode

import "sync/atomic"

// A ticker must not wait for a disk, and the lock is held while the core reads Storage. So a tick is counted first, without the
// lock, and run by whoever has it: by the call inside, which looks for ticks once more after unlocking, or if there is none
// by a goroutine that ends with it. That look cannot miss one: the tick was counted before its TryLock failed, and the lock
// that it failed on was given back, or taken by another who looks in turn, after that.
//
// Ticks are run before the input at hand, since they are older: so a read is never served by a lease that has run out
// while the node was busy. That also says how many may be owed. Fewer than an election timeout would lengthen a lease by
// what was forgotten; none of the core's clocks runs longer than two.

type ticks struct {
	arrived atomic.Int64

	// Guarded by Local.mu.
	owed, maxOwed int // taken from arrived, and not run yet
	lost          int // beyond maxOwed, not told to the Logger yet
}

// Tick moves the node's time by one: at once in the background, or when the call that is busy with the node leaves. It never
// blocks, and every later call finds the tick done.
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

// runTicks runs what is owed, unless the consumer is so far behind that what they make the node say has no room. It asks for
// a Ready, for a consumer that keeps the channel (ready.go).
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
		n.warnf("%d: the node was busy, or its consumer behind, for %d ticks; %d count", n.id, t.owed+t.lost, t.owed)
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
