package raft

import (
	"github.com/millrace/millrace/raft/raftpb"
)

// RawNode is one node of one group. It is not safe for concurrent use: its inputs are serial.
type RawNode struct {
	raft  *raft
	async bool

	prevSoft SoftState
	prevHard raftpb.HardState

	onAdvance advance // synchronous mode only
}

// NewRawNode starts a node from what its storage holds. An error says, in a sentence, that
//
//   - Config makes no sense (Config.Validate), or Storage returned an error;
//   - the stored configuration contradicts itself, or has a local worker's address for a member;
//   - the commit index, or Config.Applied, is beyond the stored log: entries are missing;
//   - Config.Applied is before the first entry of the log: the state machine lacks entries that are nowhere any more;
//   - the log is of a later term than the hard state, or there is no hard state beside a snapshot of a later term than 1.
//
// In the last three cases storage has not kept its contract (package documentation, "A write is atomic"), or was put
// together by hand; to start would risk a second vote in a term, or another state than the group's.
func NewRawNode(c *Config) (*RawNode, error) {
	r, err := newRaft(c)
	if err != nil {
		return nil, err
	}
	// A commit index that only the state machine remembers (Config.Applied) is saved with the first Ready, before any
	// entry: a state machine may be built anew, and then the log alone must know it; see membership.go.
	saved := r.hardState()
	saved.Commit = r.savedCommit
	return &RawNode{raft: r, async: c.AsyncStorageWrites, prevSoft: r.softState(), prevHard: saved}, nil
}

// Tick moves the node's time by one.
func (rn *RawNode) Tick() {
	if rn.Err() != nil {
		return
	}
	rn.raft.tick()
	rn.raft.checkCursors()
}

// TickN moves the node's time by n, and equals n calls of Tick; it costs as much as the events in that time, not as n. Less
// than 1 does nothing.
func (rn *RawNode) TickN(n int) {
	if rn.Err() != nil {
		return
	}
	rn.raft.tickN(n)
	rn.raft.checkCursors()
}

// TickMissed moves the node's time by n ticks in which its process did not run, or was late: it was suspended, swapped out,
// or collecting garbage. Messages that came in that time may still be unread, so silence proves nothing, and a follower or
// a candidate must not campaign because of it. What others rely on has passed all the same.
//
//   - A leader: equals TickN. Its lease, its check of the quorum and a transfer see all of the time. A leader that checks its
//     quorum and is not alone no longer leads after two election timeouts; one may be enough.
//   - Any other role: the election clock stands still, so no election begins, and a follower that refuses votes because it
//     has heard a leader (CheckQuorum) goes on refusing for the rest of its wait. A promise to a leader that may read by
//     lease sees all of the time.
//   - A leader that steps down in this time is a follower for the rest of it.
//
// A tick counts as missed or as a tick, never as both. Call TickMissed first of all when the process wakes: a read that is
// stepped before could be answered by a lease that has run out. (Ordinary ticks are best run after what has been received
// is stepped.) The cost is bounded by the events of three election timeouts, whatever n is; less than 1 does nothing.
func (rn *RawNode) TickMissed(n int) {
	if rn.Err() != nil {
		return
	}
	rn.raft.tickMissed(n)
	rn.raft.checkCursors()
}

// Campaign starts an election now. It does nothing, and returns nil, on a leader, a learner or a node that is no member, and
// while a snapshot or a committed change of members waits to be applied. ErrPromised says that a leader may be reading by
// lease; else the error is Err.
func (rn *RawNode) Campaign() error {
	return rn.step(&raftpb.Message{Type: raftpb.MsgHup})
}

// Propose offers one command. The core takes ownership of data. nil says that the leader has appended it, or that it is on
// its way to the leader; neither that it will commit. ErrProposalDropped says that it surely will not; else the error is
// Err.
func (rn *RawNode) Propose(data []byte) error {
	if rn.raft.role == StateLeader && rn.Err() == nil {
		one := [...]raftpb.Entry{{Data: data}} // copied into the log, so it stays on the stack
		return rn.stepped(rn.raft.propose(one[:]))
	}
	return rn.step(&raftpb.Message{Type: raftpb.MsgProp, From: rn.raft.id, Entries: []raftpb.Entry{{Data: data}}})
}

// Step takes a message from a peer, or a response from a local worker. The caller vouches for From: what comes over the
// network must never carry a local worker's id. Two types name in From another node than the one that sent them, so a
// caller who compares From with the connection must let them through: MsgTransferLeader (From is who shall lead) and
// MsgReadIndex (From is who asked).
//
// An error says that the message was refused; the node carries on, and none of them has to be acted on. A *PeerError reports
// input that no correct peer with its data intact sends. ErrStepLocalMsg and ErrStepPeerNotFound are about the sender.
// ErrProposalDropped, ErrConfChangeRefused, ErrTransferRefused and ErrReadDropped are about what the message asked for. Only
// Err is final.
func (rn *RawNode) Step(m raftpb.Message) error {
	if err := rn.raft.refusesSender(&m); err != nil {
		return err
	}
	return rn.step(&m)
}

// TransferLeader asks that target become leader; a follower passes it on to the leader it knows. While the transfer is
// under way the leader drops proposals. It ends with a new term, or is given up after an election timeout; see
// BasicStatus.LeadTransferee. ErrTransferRefused says why it was not even begun.
func (rn *RawNode) TransferLeader(target uint64) error {
	return rn.step(&raftpb.Message{Type: raftpb.MsgTransferLeader, From: target})
}

// ForgetLeader makes a follower forget its leader, without a new term; see forget.go.
func (rn *RawNode) ForgetLeader() error {
	return rn.step(&raftpb.Message{Type: raftpb.MsgForgetLeader})
}

// ReportUnreachable tells the node that messages to a peer may have been lost.
func (rn *RawNode) ReportUnreachable(id uint64) {
	_ = rn.step(&raftpb.Message{Type: raftpb.MsgUnreachable, From: id}) // local and without a term: nothing to refuse
}

// TickQuiesced moves an idle follower's time by one without an election, for an application that knows that its leader
// is idle too. An election is due by the usual time after the last word of the leader, quiet ticks included.
func (rn *RawNode) TickQuiesced() { rn.raft.tickQuiesced() }

// SetElectionTimeout sets the ticks after which this node campaigns, in place of what was drawn when it entered its role,
// and until it enters another: for an application that prefers some leaders, by letting others wait longer, and for
// scripts that want a certain one.
func (rn *RawNode) SetElectionTimeout(ticks int) { rn.raft.electionTimeout = max(ticks, 1) }

func (rn *RawNode) step(m *raftpb.Message) error {
	if rn.Err() != nil {
		return rn.Err()
	}
	return rn.stepped(rn.raft.step(m))
}

// stepped is the end of every step.
func (rn *RawNode) stepped(err error) error {
	rn.raft.checkCursors()
	if refused, ok := err.(*PeerError); ok {
		rn.raft.warningf("%d: %v", rn.raft.id, refused)
	}
	if rn.Err() != nil {
		return rn.Err()
	}
	return err
}

// Err returns the storage failure that has stopped this node, or nil. A stopped node takes no input and has no Ready: what
// it would say could rest on what it could not read. Ask after Step and Ready.
func (rn *RawNode) Err() error { return rn.raft.log.failure }

// IsLocalMsg reports whether messages of a type stay within their node.
func IsLocalMsg(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgHup, raftpb.MsgBeat, raftpb.MsgUnreachable, raftpb.MsgSnapStatus, raftpb.MsgCheckQuorum, raftpb.MsgForgetLeader,
		raftpb.MsgStorageAppend, raftpb.MsgStorageAppendResp, raftpb.MsgStorageApply, raftpb.MsgStorageApplyResp:
		return true
	}
	return false
}

// IsResponseMsg reports whether messages of a type answer another.
func IsResponseMsg(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgAppResp, raftpb.MsgVoteResp, raftpb.MsgHeartbeatResp, raftpb.MsgUnreachable, raftpb.MsgReadIndexResp,
		raftpb.MsgPreVoteResp, raftpb.MsgStorageAppendResp, raftpb.MsgStorageApplyResp:
		return true
	}
	return false
}
