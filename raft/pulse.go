package raft

import (
	"math"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// A process with many groups sends one heartbeat for all of them to each other process, a pulse, and does not
// run the groups for which it says nothing new. These inputs let the core keep all decisions. TicksToEvent
// says when the next tick matters, so the process sleeps until then. HeardLeader and PeerActive are what a
// pulse and its answer say about one group: what a MsgHeartbeat and a MsgHeartbeatResp would do that carry
// neither a commit index nor a read position (TestPulsesAreEmptyHeartbeats). So a pulse commits nothing,
// releases no read and renews no lease.
//
// A leader leaves its heartbeats to the pulses while SetPulsed is on, which is for a leader that has nothing
// else to say (Quiet). A member without authority needs its heartbeats.
//
// HeardLeader and PeerActive must be applied before anything else that reads the election clock. A pulse that
// is noted elsewhere while a vote request is stepped would let a node vote although it has heard its leader.

// NoEvent is what TicksToEvent returns if no tick will ever do more than count.
const NoEvent = math.MaxInt

// TicksToEvent returns the number of ticks until the first, itself included, that may do more than count: a
// heartbeat is due, an election timeout or a transfer expires. It is at least 1. Until then
// TickN(TicksToEvent()-1) sends nothing and changes no role. Every other input may change the answer. It is
// NoEvent after Err, and on a node that never campaigns, for instance a learner.
func (rn *RawNode) TicksToEvent() int {
	if rn.Err() != nil {
		return NoEvent
	}
	return rn.raft.ticksToEvent()
}

// HeardLeader tells the node that leader was alive in a term. The caller vouches for the sender of the pulse
// as for that of a message in Step. The effect is that of a MsgHeartbeat without a commit index and without a
// read position, but no answer is sent. If follows is true, the node follows leader in this term, and the
// answer to the pulse should say so (PeerActive). Otherwise it must not. Errors are those of Step.
func (rn *RawNode) HeardLeader(term, leader uint64) (follows bool, err error) {
	m := raftpb.Message{Type: raftpb.MsgHeartbeat, From: leader, To: rn.raft.id, Term: term}
	if err := rn.raft.rejectSender(&m); err != nil {
		return false, err
	}
	if rn.Err() != nil {
		return false, rn.Err()
	}
	follows, err = rn.raft.applyTermRules(&m)
	if follows && err == nil {
		err = rn.raft.hearLeader(leader)
	}
	err = rn.afterStep(err)
	return follows && err == nil, err
}

// PeerActive tells a leader that a peer follows it in its present term, as the answer to a pulse says. It
// has the effect of a MsgHeartbeatResp of that term without a read position. The peer counts as active for
// the check of the quorum, and is sent what it may have missed. On any other role it does nothing. Errors
// are those of Step.
func (rn *RawNode) PeerActive(id uint64) error {
	m := raftpb.Message{Type: raftpb.MsgHeartbeatResp, From: id, To: rn.raft.id, Term: rn.raft.term}
	if rn.raft.role != StateLeader {
		return rn.Err()
	}
	return rn.Step(m)
}

// Quiet reports whether this node leads and has nothing to tell its followers but that it is alive. Every
// member has acknowledged the whole log, all of it is committed, and no read, transfer or change waits. A
// follower may still not know that everything is committed; only a MsgHeartbeat or an append tells it.
func (rn *RawNode) Quiet() bool {
	r := rn.raft
	if r.role != StateLeader || r.transferring() || r.conf.AutoLeave || r.log.committed < r.log.lastIndex() {
		return false
	}
	if s := &r.leader.reads; len(s.parked)+len(s.waiting) > 0 {
		return false
	}
	for i := range r.leader.members {
		if pr := &r.leader.members[i].Progress; pr.Match < r.log.lastIndex() || pr.WithoutAuthority || pr.State != tracker.StateReplicate && r.leader.members[i].ID != r.id {
			return false
		}
	}
	return true
}

// SetPulsed makes a leader send no heartbeats at its ticks, because the application sends pulses for it; its
// other clocks run on. With false its heartbeats begin again at the next tick. It ends with the leadership,
// and does nothing on other roles.
func (rn *RawNode) SetPulsed(on bool) {
	l := rn.raft.leader
	if l == nil || l.pulsed == on {
		return
	}
	if l.pulsed = on; !on {
		l.heartbeatElapsed = rn.raft.cfg.heartbeatTicks - 1
	}
}
