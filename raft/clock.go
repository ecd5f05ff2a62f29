package raft

import "math"

// Many ticks at once. Between two events (a heartbeat that is due, a timeout that runs out) a tick only counts, so ticks up
// to the next event are counted together, and the event itself is a tick.
//
// Time that a process has missed is not like other time; RawNode.TickMissed says for whom. The rule behind it: a clock that
// makes this node do something to others (an election) needs time in which this node could have heard them; a clock that
// others rely on to run out (a lease, the check of a quorum, a promise) must never be slow. Rejected: to forget missed time
// altogether. A leader that was suspended for ten seconds would still believe in its lease.

// tickN moves the node's time by n.
func (r *raft) tickN(n int) {
	for n > 0 {
		n -= r.leap(n)
	}
}

// leap moves the node's time to the next tick at which something may happen, that tick included, but by at most n > 0. It
// returns by how much.
func (r *raft) leap(n int) int {
	quiet := min(n, r.ticksToEvent()) - 1
	if quiet > 0 {
		r.tickQuietly(quiet)
	}
	r.tick()
	return quiet + 1
}

// ticksToEvent is the number of ticks until the first that may do more than count, that tick included; at least 1.
func (r *raft) ticksToEvent() int {
	left := math.MaxInt
	switch l := r.leader; {
	case l == nil:
		if r.promotable() {
			left = max(r.electionTimeout-r.electionElapsed, r.promisedTicks)
		}
	case r.conf.AutoLeave:
		left = 1 // every tick asks to leave
	default:
		left = min(r.cfg.electionTicks-r.electionElapsed, r.cfg.heartbeatTicks-l.heartbeatElapsed)
		if r.transferring() {
			left = min(left, r.cfg.electionTicks-l.transfer.elapsed)
		}
	}
	return max(left, 1)
}

// tickQuietly is n ticks in which nothing happens.
func (r *raft) tickQuietly(n int) {
	r.restFor(n)
	r.promisedTicks = max(r.promisedTicks-n, 0)
	r.electionElapsed += min(n, math.MaxInt-r.electionElapsed)
	if l := r.leader; l != nil {
		l.ticks += n
		l.heartbeatElapsed += n
		if r.transferring() {
			l.transfer.elapsed += n
		}
	}
}

func (r *raft) restFor(n int) {
	for range min(n, 2) { // the first sees that there is a new entry, the second that there is none since
		r.rest()
	}
}

// tickMissed moves the node's time by n ticks in which this process did not run.
func (r *raft) tickMissed(n int) {
	if r.role == StateLeader {
		n = r.leadThrough(n)
	}
	if n > 0 {
		r.restFor(n)
		r.promisedTicks = max(r.promisedTicks-n, 0)
	}
}

// leadThrough moves a leader's time by n, but no further than to where it ceases to lead, and returns what is left of n. A
// leader that still leads after two election timeouts leads for ever, as long as nothing is heard: it is alone, or does not
// check its quorum. What lies between those two timeouts and the last one is only counted.
func (r *raft) leadThrough(n int) (left int) {
	whole := r.cfg.electionTicks
	for ran := 0; n > 0 && r.role == StateLeader; {
		if spare := n - whole; ran >= 2*whole && spare > 0 {
			r.skip(spare)
			n -= spare
		}
		moved := r.leap(n)
		n, ran = n-moved, ran+moved
	}
	return n
}

// skip is what n ticks leave of a leader's clocks, with nothing done when one of them runs out.
func (r *raft) skip(n int) {
	n = min(n, maxSkippedTicks)
	l := r.leader
	l.ticks += n
	r.electionElapsed = (r.electionElapsed + n) % r.cfg.electionTicks
	l.heartbeatElapsed = (l.heartbeatElapsed + n) % r.cfg.heartbeatTicks
	r.promisedTicks = max(r.promisedTicks-n, 0)
}

// maxSkippedTicks keeps a leader's count of ticks far from where it would wrap around. It is ten months of ticks of 25 ms;
// no clock of the core can tell more from it.
const maxSkippedTicks = 1 << 30
