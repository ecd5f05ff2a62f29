package raft

import (
	"github.com/millrace/millrace/raft/raftpb"
)

// RawNode is one node of one group. It is not safe for concurrent use: its caller passes inputs one after the
// other.
type RawNode struct {
	raft  *raft
	async bool

	prevSoft SoftState
	prevHard raftpb.HardState

	onAdvance advance // synchronous mode only
}

// NewRawNode starts a node from what its storage holds. The error is a sentence that names one of these
// causes:
//
//   - Config is invalid (Config.Validate), or Storage returned an error;
//   - the stored configuration contradicts itself, or has the address of a local worker as a member;
//   - the commit index, or Config.Applied, is beyond the stored log: entries are missing;
//   - Config.Applied is before the first entry of the log: the state machine lacks entries that are no longer
//     stored;
//   - the log is from a later term than the hard state, or there is no hard state with a snapshot from a
//     later term than 1.
//
// In the last three cases storage has broken its contract (package documentation, "A write is atomic"), or
// was assembled by hand. Starting such a node would risk a second vote in a term, or a state that differs
// from the group's.
func NewRawNode(c *Config) (*RawNode, error) {
	r, err := newRaft(c)
	if err != nil {
		return nil, err
	}
	// A commit index that only the state machine remembers (Config.Applied) is saved with the first Ready,
	// before any entry. A state machine may be rebuilt later, and then the log alone must know the commit
	// index; see membership.go.
	saved := r.hardState()
	saved.Commit = r.savedCommit
	return &RawNode{raft: r, async: c.AsyncStorageWrites, prevSoft: r.softState(), prevHard: saved}, nil
}

// Tick advances the node's clock by one tick.
func (rn *RawNode) Tick() {
	if rn.Err() != nil {
		return
	}
	rn.raft.tick()
	rn.raft.checkCursors()
}

// TickN advances the node's clock by n ticks, with the same effect as n calls of Tick. It costs as much as
// the events in that time, not as n calls. It does nothing if n is less than 1.
func (rn *RawNode) TickN(n int) {
	if rn.Err() != nil {
		return
	}
	rn.raft.tickN(n)
	rn.raft.checkCursors()
}

// TickMissed advances the node's clock by n ticks in which its process did not run, or ran late: it was
// suspended, swapped out, or collecting garbage. Messages that arrived in that time may still be unread, so
// silence proves nothing, and a follower or a candidate must not campaign because of it. The time that other
// nodes rely on has passed nevertheless.
//
//   - A leader: the effect is that of TickN. Its lease, its check of the quorum and a transfer see all of the
//     time. A leader that checks its quorum, and is not alone, no longer leads after two election timeouts;
//     one may be enough.
//   - Any other role: the election timer stands still, so no election begins. A follower that refuses votes
//     because it has heard a leader (CheckQuorum) refuses them for the rest of its wait. A promise to a
//     leader that may read by lease sees all of the time.
//   - A leader that steps down in this time is a follower for the rest of it.
//
// A tick counts as missed or as an ordinary tick, never as both. Call TickMissed before anything else when
// the process wakes: a read that is stepped before it could be answered under a lease that has expired.
// (Ordinary ticks are best run after the received messages are stepped.) The cost is bounded by the events of
// three election timeouts, however large n is. TickMissed does nothing if n is less than 1.
func (rn *RawNode) TickMissed(n int) {
	if rn.Err() != nil {
		return
	}
	rn.raft.tickMissed(n)
	rn.raft.checkCursors()
}

// Campaign starts an election now. It does nothing, and returns nil, on a leader, a learner, a node that is
// no member, and a node without authority. The same holds while a snapshot or a committed membership change
// waits to be applied. ErrPromised means that a leader may be reading by lease; any other error is Err.
func (rn *RawNode) Campaign() error {
	return rn.step(&raftpb.Message{Type: raftpb.MsgHup})
}

// Propose proposes one command. The core takes ownership of data. nil means that the leader has appended
// the command, or that it is on its way there. It may still not commit. ErrProposalDropped means that it
// surely will not commit; any other error is Err.
func (rn *RawNode) Propose(data []byte) error {
	if rn.raft.role == StateLeader && rn.Err() == nil {
		one := [...]raftpb.Entry{{Data: data}} // the log copies it, so it stays on the stack
		return rn.afterStep(rn.raft.propose(one[:]))
	}
	return rn.step(&raftpb.Message{Type: raftpb.MsgProp, From: rn.raft.id, Entries: []raftpb.Entry{{Data: data}}})
}

// Step handles a message from a peer, or a response from a local worker. The caller vouches for From: a
// message from the network must never carry the id of a local worker. In two types of messages From is not
// the sender: in a MsgTransferLeader it is the future leader, in a MsgReadIndex the node that asked. A
// caller that compares From with the connection must let them through.
//
// An error means that the message was refused; the node continues, and the caller need not act on the error.
// A *PeerError reports input that no correct peer with intact data sends. ErrStepLocalMsg and
// ErrStepPeerNotFound are about the sender. ErrProposalDropped, ErrConfChangeRefused, ErrTransferRefused and
// ErrReadDropped are about the request in the message. Only Err is final.
func (rn *RawNode) Step(m raftpb.Message) error {
	if err := rn.raft.rejectSender(&m); err != nil {
		return err
	}
	return rn.step(&m)
}

// TransferLeader asks that target become leader. A follower forwards the request to the leader that it knows.
// During the transfer the leader drops proposals. The transfer ends with a new term, or is aborted after an
// election timeout; see BasicStatus.LeadTransferee. ErrTransferRefused says why it was not even begun.
func (rn *RawNode) TransferLeader(target uint64) error {
	return rn.step(&raftpb.Message{Type: raftpb.MsgTransferLeader, From: target})
}

// ForgetLeader makes a follower forget its leader, without entering a new term; see forget.go.
func (rn *RawNode) ForgetLeader() error {
	return rn.step(&raftpb.Message{Type: raftpb.MsgForgetLeader})
}

// ReportUnreachable tells the node that messages to a peer may have been lost.
func (rn *RawNode) ReportUnreachable(id uint64) {
	_ = rn.step(&raftpb.Message{Type: raftpb.MsgUnreachable, From: id}) // local and without a term: nothing to refuse
}

// TickQuiesced advances an idle follower's clock by a tick without an election. The application must know
// that the leader is idle too. The election timeout still counts from the last message of the leader, quiet
// ticks included.
func (rn *RawNode) TickQuiesced() { rn.raft.tickQuiesced() }

// SetElectionTimeout sets the ticks after which this node campaigns, instead of the timeout drawn when it
// entered its role, until it enters another role. It is for an application that prefers some leaders and lets
// the others wait longer, and for scripts that need a certain leader.
func (rn *RawNode) SetElectionTimeout(ticks int) { rn.raft.electionTimeout = max(ticks, 1) }

func (rn *RawNode) step(m *raftpb.Message) error {
	if rn.Err() != nil {
		return rn.Err()
	}
	return rn.afterStep(rn.raft.step(m))
}

// afterStep follows every step: it checks the invariants, reports a refused message, and lets a storage
// failure take the place of the result.
func (rn *RawNode) afterStep(err error) error {
	rn.raft.checkCursors()
	if refused, ok := err.(*PeerError); ok {
		rn.raft.warningf("%d: %v", rn.raft.id, refused)
	}
	if rn.Err() != nil {
		return rn.Err()
	}
	return err
}

// Err returns the storage failure that has stopped this node, or nil. A stopped node accepts no input and has
// no Ready, because its output could depend on what it could not read. Check Err after Step and Ready.
func (rn *RawNode) Err() error { return rn.raft.log.failure }

// IsLocalMsg reports whether messages of type t stay within their node.
func IsLocalMsg(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgHup, raftpb.MsgBeat, raftpb.MsgUnreachable, raftpb.MsgSnapStatus, raftpb.MsgCheckQuorum, raftpb.MsgForgetLeader,
		raftpb.MsgStorageAppend, raftpb.MsgStorageAppendResp, raftpb.MsgStorageApply, raftpb.MsgStorageApplyResp:
		return true
	}
	return false
}

// IsResponseMsg reports whether messages of type t answer another message.
func IsResponseMsg(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgAppResp, raftpb.MsgVoteResp, raftpb.MsgHeartbeatResp, raftpb.MsgUnreachable, raftpb.MsgReadIndexResp,
		raftpb.MsgPreVoteResp, raftpb.MsgStorageAppendResp, raftpb.MsgStorageApplyResp:
		return true
	}
	return false
}
