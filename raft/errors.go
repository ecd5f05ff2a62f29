package raft

import (
	"errors"
	"fmt"
)

var (
	// ErrProposalDropped: the proposal was not accepted and surely will not commit. One of these is so: the node is no
	// leader and cannot, or may not, forward; the leader's unapplied entries have reached MaxUncommittedEntriesSize; the
	// leader is handing over (TransferLeader); the leader is no voter any more; the proposal has no entries; an entry has
	// a type that is not known. A proposal that was forwarded may also be dropped by the leader, and that is not told.
	ErrProposalDropped = errors.New("raft proposal dropped")
	// ErrStepLocalMsg: a message type that never travels came from a peer.
	ErrStepLocalMsg = errors.New("raft: a peer sent a local message type")
	// ErrStepPeerNotFound: a response came from a node that is not a member.
	ErrStepPeerNotFound = errors.New("raft: cannot step as peer not found")
	// ErrTransferRefused: a leadership transfer was not begun; the error that wraps this one says why.
	ErrTransferRefused = errors.New("raft: leadership transfer refused")
	// ErrReadDropped: a read was not accepted and will not be answered. No leader is known, or too many reads wait.
	ErrReadDropped = errors.New("raft: read dropped")
	// ErrPromised: the node has promised a leader that may read by lease to take no part in elections for a while.
	ErrPromised = errors.New("raft: the leader may be reading by lease")
	// ErrConfChangeRefused: a change of members cannot be made now, or ever; the error that wraps this one says why.
	ErrConfChangeRefused = errors.New("raft: change of members refused")

	// ErrStopped: the node was stopped (package raft/etcdnode); what it was asked to do was not begun.
	ErrStopped = errors.New("raft: node stopped")

	// ErrCompacted and ErrUnavailable are what a Storage answers for entries below its first and beyond its last.
	ErrCompacted   = errors.New("raft: requested index is compacted")
	ErrUnavailable = errors.New("raft: requested entry is unavailable")
	// ErrSnapOutOfDate: a snapshot is no newer than the one that is there.
	ErrSnapOutOfDate = errors.New("raft: the snapshot there is at least as new")
	// ErrSnapshotTemporarilyUnavailable is what a Storage answers while it makes a snapshot; it may be asked later.
	ErrSnapshotTemporarilyUnavailable = errors.New("raft: the snapshot is not available yet")
)

// PeerError reports input from a peer that a correct peer with its data intact would not send: a wiped disk, a
// restored backup, or a bug at the other end. The node has refused it and carries on, log and vote unchanged. Rule says
// what was wrong, in words; Have is the number that was seen, and Want one that would have been accepted (for a rule
// without numbers both are 0).
type PeerError struct {
	From       uint64
	Rule       string
	Have, Want uint64
}

func (e *PeerError) Error() string {
	return fmt.Sprintf("raft: refused input of peer %d: %s (have %d, want %d)", e.From, e.Rule, e.Have, e.Want)
}
