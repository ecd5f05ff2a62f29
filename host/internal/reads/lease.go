package reads

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
// stand still while a leader sleeps (host/quiescent.go) and while its process is stopped. The promises are
// counted in the core's ticks (raft/lease.go), because they only have to last long enough. A turn may see a
// clock that is late, so promises are made longer by as much (stretchPromise in package host).
//
// Everything that may have been acknowledged is in the log through Queue.committed, which is stored before
// any client and any other host learns of it. A lease is there only while all of that is applied. It ends
// when the leader begins to hand over or leads no more, before the messages leave that could make another one
// the leader. Pulses neither make nor renew a lease: only rounds do (round.go).

// Lease is the permission to read the state machine of this leader without asking a quorum, until a moment.
// The zero value is none.
type Lease struct {
	queue *Queue
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

// Lease returns a lease if there is one at this moment, and the index through which the machine is applied,
// at least. maxDrift bounds the difference of the rates of any two clocks; maxAge more than 0 bounds how long
// ago the latest round was sent. Lease takes no lock and allocates nothing.
func (q *Queue) Lease(maxAge time.Duration, maxDrift float64) (l Lease, index uint64, ok bool) {
	s, halts := q.lease.Load(), q.wiring.Halts()
	if s == nil || !(maxDrift >= 0 && maxDrift < 1) || !q.wiring.WorksSince(halts) {
		q.counts.leaseMissed.Add(1)
		return Lease{}, 0, false
	}
	length := time.Duration(float64(s.promise) * (1 - maxDrift))
	if maxAge > 0 {
		length = min(length, maxAge)
	}
	age := q.wiring.Boottime() - s.sent
	if age > length/2 && !q.refresh.Load() {
		q.ask()
	}
	committed := q.committed.Load()
	if age >= length || q.wiring.Applied() < committed {
		q.counts.leaseMissed.Add(1)
		return Lease{}, 0, false
	}
	return Lease{queue: q, term: s.term, halts: halts, until: s.sent + length}, committed, true
}

// Holds reports whether the lease still holds.
func (l Lease) Holds() bool {
	if l.queue == nil {
		return false
	}
	s, w, counts := l.queue.lease.Load(), l.queue.wiring, &l.queue.counts
	if s == nil || s.term != l.term || !w.WorksSince(l.halts) || w.Boottime() >= l.until {
		counts.leaseMissed.Add(1)
		return false
	}
	counts.leaseServed.Add(1)
	return true
}
