package raft

import "math"

// Time. A tick advances the clocks of a node: the election timeout, the heartbeats, the check of the quorum,
// a lease, a promise, a transfer. Between two events (a heartbeat is due, a timeout expires) a tick only
// counts, so a long time is run as a few leaps from event to event, and the event itself is an ordinary tick.
//
// Time that a process has missed is different from other time; RawNode.TickMissed says for which roles. The
// rule behind it: a clock that makes this node do something to others (an election) needs time in which this
// node could have heard them. A clock whose expiry others rely on (a lease, the check of the quorum, a
// promise) must never be slow. Rejected: ignoring missed time altogether. A leader that was suspended for ten
// seconds would still believe in its lease.

// tick advances the node's clocks by one tick.
func (r *raft) tick() {
	r.shrink()
	r.countDown(1)
	if r.role == StateLeader {
		r.tickLeader()
		return
	}
	r.electionElapsed++
	if r.electionElapsed >= r.electionTimeout && r.promisedTicks == 0 && r.promotable() {
		r.electionElapsed = 0
		r.campaign()
	}
}

// tickQuiesced advances the clocks of an idle node by one tick, without an election and without heartbeats.
func (r *raft) tickQuiesced() {
	r.shrink()
	r.countDown(1)
	r.electionElapsed++
	if r.leader != nil {
		r.leader.ticks++ // a lease expires in idle time too, because the promises behind it do
	}
}

// countDown advances by n ticks what ends by itself.
func (r *raft) countDown(n int) {
	r.promisedTicks = max(r.promisedTicks-n, 0)
	r.tickFarTerms(n)
}

// shrink releases spare memory when a tick has passed without a new entry: a process may have many groups,
// most of them idle.
func (r *raft) shrink() {
	last := r.log.lastIndex()
	if last == r.lastAtTick {
		r.out.now.shrink()
		r.out.afterAppend.shrink()
		r.log.shrink()
	}
	r.lastAtTick = last
}

// shrinkIn does what shrink does in n ticks.
func (r *raft) shrinkIn(n int) {
	for range min(n, 2) { // the first call sees the latest entry, the second that there is none since
		r.shrink()
	}
}

// tickN advances the node's clocks by n ticks.
func (r *raft) tickN(n int) {
	for n > 0 {
		n -= r.leap(n)
	}
}

// leap advances the clocks to the next tick at which something may happen, that tick included, but by at most
// n > 0 ticks. It returns the number of ticks.
func (r *raft) leap(n int) int {
	quiet := min(n, r.ticksToEvent()) - 1
	if quiet > 0 {
		r.tickQuietly(quiet)
	}
	r.tick()
	return quiet + 1
}

// ticksToEvent returns the number of ticks until the first that may do more than count, that tick included.
// It is at least 1.
func (r *raft) ticksToEvent() int {
	left := NoEvent
	switch l := r.leader; {
	case l == nil:
		if r.promotable() {
			left = max(r.electionTimeout-r.electionElapsed, r.promisedTicks)
		}
	case r.conf.AutoLeave:
		left = 1 // every tick asks to leave the joint configuration
	default:
		left = r.cfg.electionTicks - r.electionElapsed
		if !l.pulsed {
			left = min(left, r.cfg.heartbeatTicks-l.heartbeatElapsed)
		}
		if r.transferring() {
			left = min(left, r.cfg.electionTicks-l.transfer.elapsed)
		}
	}
	return max(left, 1)
}

// tickQuietly advances the clocks by n ticks in which nothing happens.
func (r *raft) tickQuietly(n int) {
	r.shrinkIn(n)
	r.countDown(n)
	r.electionElapsed += min(n, math.MaxInt-r.electionElapsed)
	if l := r.leader; l != nil {
		l.ticks += n
		l.heartbeatElapsed += n
		if r.transferring() {
			l.transfer.elapsed += n
		}
	}
}

// tickMissed advances the clocks by n ticks in which this process did not run.
func (r *raft) tickMissed(n int) {
	if r.role == StateLeader {
		n = r.leadThrough(n)
	}
	if n > 0 {
		r.shrinkIn(n)
		r.countDown(n)
	}
}

// leadThrough advances a leader's clocks by n ticks, or to the tick at which it ceases to lead, and returns
// the rest of n. A leader that still leads after two election timeouts leads for ever as long as no message
// arrives: it is alone, or it does not check its quorum. The ticks between those two timeouts and the last
// one are only counted.
func (r *raft) leadThrough(n int) (left int) {
	timeout := r.cfg.electionTicks
	for ran := 0; n > 0 && r.role == StateLeader; {
		if spare := n - timeout; ran >= 2*timeout && spare > 0 {
			r.skip(spare)
			n -= spare
		}
		moved := r.leap(n)
		n, ran = n-moved, ran+moved
	}
	return n
}

// skip sets a leader's clocks as n ticks would, without the events of those ticks.
func (r *raft) skip(n int) {
	n = min(n, maxSkippedTicks)
	l := r.leader
	l.ticks += n
	r.electionElapsed = (r.electionElapsed + n) % r.cfg.electionTicks
	l.heartbeatElapsed = (l.heartbeatElapsed + n) % r.cfg.heartbeatTicks
	r.countDown(n)
}

// maxSkippedTicks keeps a leader's count of ticks far from overflow. It is ten months of ticks of 25 ms, and
// no clock of the core can tell a longer time from it.
const maxSkippedTicks = 1 << 30
