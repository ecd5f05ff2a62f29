package raft

import (
	"errors"
	"fmt"
)

var (
	// ErrProposalDropped: the proposal was not accepted and surely will not commit. A node that is not a
	// leader cannot, or may not, forward the proposal. A leader drops it when its unapplied entries have
	// reached MaxUncommittedEntriesSize, when it is handing over (TransferLeader), or when it is no longer
	// a voter. Any node drops a proposal without entries, or with an entry of an unknown type. The leader
	// may also drop a forwarded proposal, and then there is no notice.
	ErrProposalDropped = errors.New("raft proposal dropped")
	// ErrStepLocalMsg: a peer sent a message of a type that never leaves its node.
	ErrStepLocalMsg = errors.New("raft: a peer sent a local message type")
	// ErrStepPeerNotFound: a response came from a node that is not a member.
	ErrStepPeerNotFound = errors.New("raft: cannot step as peer not found")
	// ErrTransferRefused: a leadership transfer was not begun. The error that wraps this one says why.
	ErrTransferRefused = errors.New("raft: leadership transfer refused")
	// ErrReadDropped: a read was not accepted and will not be answered. No leader is known, or too many reads
	// are waiting.
	ErrReadDropped = errors.New("raft: read dropped")
	// ErrPromised: the node has promised a leader that may read by lease to take no part in elections for
	// some time.
	ErrPromised = errors.New("raft: the leader may be reading by lease")
	// ErrConfChangeRefused: a membership change cannot be made now, or ever. The error that wraps this one
	// says why.
	ErrConfChangeRefused = errors.New("raft: change of members refused")

	// ErrStopped: the node was stopped (package raft/etcdnode). It has not begun what the caller asked for.
	ErrStopped = errors.New("raft: node stopped")

	// ErrCompacted and ErrUnavailable are a Storage's answers for entries before its first and after its last
	// entry.
	ErrCompacted   = errors.New("raft: requested index is compacted")
	ErrUnavailable = errors.New("raft: requested entry is unavailable")
	// ErrEntriesPending is the answer of a Storage that is reading the entries. When it has them its owner calls
	// RawNode.EntriesArrived, and the core asks again.
	ErrEntriesPending = errors.New("raft: the entries are being read")
	// ErrSnapOutOfDate: the present snapshot is at least as new.
	ErrSnapOutOfDate = errors.New("raft: the present snapshot is at least as new")
	// ErrSnapshotTemporarilyUnavailable is the answer of a Storage that is making a snapshot. The core asks
	// again later.
	ErrSnapshotTemporarilyUnavailable = errors.New("raft: the snapshot is not available yet")
)

// PeerError reports input that a correct peer with intact data would not send. The cause is a wiped disk, a
// restored backup, or a bug in the peer. The node has refused the input and continues; log and vote are
// unchanged. Rule says what was wrong. Have is the number in the input, and Want is a number that would have
// been accepted; both are 0 for a rule without numbers.
type PeerError struct {
	From       uint64
	Rule       string
	Have, Want uint64
}

func (e *PeerError) Error() string {
	return fmt.Sprintf("raft: refused input from peer %d: %s (have %d, want %d)", e.From, e.Rule, e.Have, e.Want)
}
