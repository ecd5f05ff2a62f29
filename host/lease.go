package host

import "time"

// Leases (thesis §6.4.1). When a quorum answers a round of the leader, each of its members has promised,
// after the round was sent, to elect no other leader for an election timeout. Until shortly before the first
// of these promises ends, the leader may read its own state machine without asking.
//
//	leader   round sent ├────────── lease: an election timeout, less the drift ──────────┤
//	member         heard it ├────────────── promise: an election timeout ──────────────────────┤
//
// The assumption about clocks: between two looks, the boot clock of the leader and the monotonic clocks of
// the members run at rates that differ by at most maxDrift. Where that does not hold, a read under a lease
// may be stale; nothing else depends on it. A clock may be set, and differ by any amount. A system without a
// boot clock may break it: its clock may stand still while the machine is suspended (env.Clock.Boottime).
//
// The deadline is a time of the boot clock (env.Clock.Boottime), not a number of the core's ticks: ticks
// stand still while a leader sleeps (quiescent.go) and while its process is stopped. The promises are
// counted in the core's ticks (raft/lease.go), because they only have to last long enough. A turn may see a
// clock that is late, so promises are made longer by as much (stretchPromise).
//
// Everything that may have been acknowledged is in the log through reading.committed, which is stored before
// any client and any other host learns of it. A lease is there only while all of that is applied. It ends
// when the leader begins to hand over or leads no more, before the messages leave that could make another one
// the leader. Pulses neither make nor renew a lease: only rounds do (read.go).

// Lease is the permission to read the state machine of this host's leader without asking a quorum, until a
// moment. Use it in this order: Group.Lease, read the state machine, Holds.
type Lease struct {
	Index uint64 // this host has applied the log through it, or further
	group *Group
	term  uint64
	halts uint64
	until time.Duration // by the boot clock
}

// leaseState is what the latest round gives. It does not change.
type leaseState struct {
	term    uint64
	sent    time.Duration // by the boot clock
	promise time.Duration // of the members, counted from sent
}

// Lease reports whether this host leads the group under a lease at this moment, and its state machine has
// applied everything that may have been acknowledged. Read the state after this call, and then call Holds.
// If Holds returns true, the state includes everything that any member had acknowledged before this call.
// The quorum's latest answer is to a round sent at most maxAge ago; 0 or less sets no bound but the
// promise's.
//
// maxDrift bounds the difference of the rates of any two hosts' clocks, as a part of 1, from 0 to less than
// 1. With 0.01 a second of one clock is between 0.99 and 1.01 seconds of another. Any other value gives no
// lease. A group has leases only if GroupConfig.Leases is set. The first lease, and the next after a pause
// in reading, comes with a linearizable read (StartRead): ask for one where Lease returns false. While
// leases are in use they are renewed in the background.
//
// Lease takes no lock and no turn, and allocates nothing.
func (g *Group) Lease(maxAge time.Duration, maxDrift float64) (l Lease, ok bool) {
	s, halts := g.reads.lease.Load(), g.Halts()
	if s == nil || !(maxDrift >= 0 && maxDrift < 1) || g.life.hasEnded.Load() || g.machine.apply.halted() != nil {
		g.life.counts.leaseMissed.Add(1)
		return l, false
	}
	length := time.Duration(float64(s.promise) * (1 - maxDrift))
	if maxAge > 0 {
		length = min(length, maxAge)
	}
	age := g.boottime() - s.sent
	if age > length/2 && !g.reads.refresh.Load() {
		g.refreshReads()
	}
	committed := g.reads.committed.Load()
	if age >= length || g.machine.apply.applied.Load() < committed {
		g.life.counts.leaseMissed.Add(1)
		return l, false
	}
	return Lease{Index: committed, group: g, term: s.term, halts: halts, until: s.sent + length}, true
}

// Holds reports whether the lease still holds. A read under a lease counts only if Holds returns true after
// it: the process may have been stopped at any point between. Until that moment no other leader has
// acknowledged anything. The zero Lease never holds.
func (l Lease) Holds() bool {
	if l.group == nil {
		return false
	}
	s, counts := l.group.reads.lease.Load(), &l.group.life.counts
	if s == nil || s.term != l.term || !l.group.worksSince(l.halts) || l.group.life.hasEnded.Load() || l.group.boottime() >= l.until {
		counts.leaseMissed.Add(1)
		return false
	}
	counts.leaseServed.Add(1)
	return true
}

// promiseTime is how long a promise lasts by the clock of the member that makes it. A lease lasts as long as
// the entry found says, which no member's promise is shorter than (rejectPromises): the election timeouts of
// hosts may differ, and change between starts.
func (c Config) promiseTime() time.Duration {
	return time.Duration(c.electionTicks()) * c.tickPeriod()
}

// renewLease takes a round that a quorum has answered.
func (g *Group) renewLease(number uint64) {
	q, st := g.reads.sent[number%uint64(len(g.reads.sent))], g.core.node.BasicStatus()
	if q.number != number || g.reads.term != st.Term || !g.mayLease() {
		return
	}
	g.reads.lease.Store(&leaseState{term: st.Term, sent: q.at, promise: g.members.founding.promise})
}

// mayLease reports whether this member may have a lease now.
func (g *Group) mayLease() bool {
	return g.config.Leases && g.members.founding.founded && g.core.node.MayLease()
}

// beforeReady publishes, before the messages and answers of a Ready leave, what reads must know by then: the
// commit index, and the end of the lease.
func (g *Group) beforeReady() {
	st := g.core.node.BasicStatus()
	g.reads.committed.Store(st.Commit)
	if s := g.reads.lease.Load(); s != nil && (s.term != st.Term || !g.mayLease()) {
		g.reads.lease.Store(nil)
	}
}

// stretchPromise makes a promise that the core has just made as long as it must be: the core counts from the
// time of its clock, which is the latest beat of the host's clock, less the ticks that the turn has not told
// it yet.
func (g *Group) stretchPromise(untold int) {
	if g.config.Leases {
		g.core.node.StretchPromise(int(g.host.clock.metronome.ticks()-g.core.at.ticks) + untold + 1)
	}
}
