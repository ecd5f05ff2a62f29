// Package raftpb defines the data of Raft: entries, messages, hard state, snapshots and configurations.
//
// The types are plain value structs. The state machine never sees encoded bytes, and the wire never sees the
// state machine: the codec (codec.go) stands between them. It writes the protobuf wire format of etcd-io/raft
// v3.6 by hand, byte for byte, so that a cluster may mix etcd-io/raft's nodes and ours. Names, field numbers
// and enum values are those of that format. docs/divergence.md lists the differences.
//
// Ownership: the receiver of one of these values may keep it, and must not change what it points to.
package raftpb

import "fmt"

// EntryType says how the state machine reads Entry.Data.
type EntryType int32

const (
	// EntryNormal carries a client's command; empty Data is a leader's first entry of its term.
	EntryNormal EntryType = 0
	// EntryConfChange carries an encoded ConfChange.
	EntryConfChange EntryType = 1
	// EntryConfChangeV2 carries an encoded ConfChangeV2.
	EntryConfChangeV2 EntryType = 2
	// EntryHost carries data of the program around the core that is no client's command. The core and the log
	// treat it like EntryNormal. etcd-io/raft does not have it, so its text is its number.
	EntryHost EntryType = 16
	// EntryBatch carries several commands, which are committed, applied and lost together (batch.go). The core
	// and the log treat it like EntryNormal. etcd-io/raft does not have it.
	EntryBatch EntryType = 17
)

// HoldsCommands reports whether an entry of this type carries clients' commands.
func (t EntryType) HoldsCommands() bool { return t == EntryNormal || t == EntryBatch }

// IsOpaque reports whether neither the core nor the log looks into the data of an entry of this type.
func (t EntryType) IsOpaque() bool { return t.HoldsCommands() || t == EntryHost }

// ChangesMembers reports whether an entry of this type changes the membership. Of a type that is not known it
// must be assumed.
func (t EntryType) ChangesMembers() bool { return !t.IsOpaque() }

// Entry is one slot of the replicated log. Its EntryID identifies it for good.
type Entry struct {
	Term  uint64
	Index uint64
	Type  EntryType
	// Sum is the CRC-32C of Data, or 0 if it is not known. It is not encoded. The code that sets it has
	// passed over Data, and code that changes Data must set it to 0. The core carries it and does not look
	// at it.
	Sum  uint32
	Data []byte
}

// HoldsCommands reports whether the entry carries clients' commands. A leader's first entry does not.
func (e *Entry) HoldsCommands() bool { return e.Type.HoldsCommands() && len(e.Data) > 0 }

// ID returns the entry's id.
func (e *Entry) ID() EntryID { return EntryID{Term: e.Term, Index: e.Index} }

// EntryID identifies an entry for good: entries with the same id are the same entry, and the logs before them
// are equal (thesis §3.5, Log Matching). Both fields have one type, so literals name them.
type EntryID struct{ Term, Index uint64 }

// String returns index@term.
func (id EntryID) String() string { return fmt.Sprintf("%d@%d", id.Index, id.Term) }

// HardState is what a node must hold on stable storage before it answers (thesis figure 3.1): the current
// term and the vote given in it. The commit index is stored for convenience and needs no sync of its own.
type HardState struct {
	Term   uint64
	Vote   uint64
	Commit uint64
}

// ConfState is a configuration: one majority (Voters), or two while it is joint (thesis §4.3).
type ConfState struct {
	Voters         []uint64
	Learners       []uint64
	VotersOutgoing []uint64
	LearnersNext   []uint64
	AutoLeave      bool
}

// SnapshotMetadata says which prefix of the log a snapshot replaces, and which configuration is in force
// after it.
type SnapshotMetadata struct {
	ConfState ConfState
	Index     uint64
	Term      uint64
}

// Snapshot is the state of a state machine as of entry Metadata.Index.
type Snapshot struct {
	Data     []byte
	Metadata SnapshotMetadata
}

// MessageType selects which fields of a Message have a meaning.
type MessageType int32

// The message types. Hup, Beat, Unreachable, SnapStatus, CheckQuorum and the Storage family never travel
// between nodes.
const (
	MsgHup               MessageType = 0
	MsgBeat              MessageType = 1
	MsgProp              MessageType = 2
	MsgApp               MessageType = 3
	MsgAppResp           MessageType = 4
	MsgVote              MessageType = 5
	MsgVoteResp          MessageType = 6
	MsgSnap              MessageType = 7
	MsgHeartbeat         MessageType = 8
	MsgHeartbeatResp     MessageType = 9
	MsgUnreachable       MessageType = 10
	MsgSnapStatus        MessageType = 11
	MsgCheckQuorum       MessageType = 12
	MsgTransferLeader    MessageType = 13
	MsgTimeoutNow        MessageType = 14
	MsgReadIndex         MessageType = 15
	MsgReadIndexResp     MessageType = 16
	MsgPreVote           MessageType = 17
	MsgPreVoteResp       MessageType = 18
	MsgStorageAppend     MessageType = 19
	MsgStorageAppendResp MessageType = 20
	MsgStorageApply      MessageType = 21
	MsgStorageApplyResp  MessageType = 22
	MsgForgetLeader      MessageType = 23
)

// Message is the one envelope for everything that a node says to a peer or to its own storage workers. It is
// a union: Type selects the fields that have a meaning. The core unpacks it once, at the gate (raft/gate.go).
type Message struct {
	Type MessageType
	To   uint64
	From uint64
	Term uint64
	// LogTerm is the term of the entry at Index. That entry is the entry before Entries in a MsgApp, and
	// the candidate's last entry in a vote request. It is the follower's hint in a rejecting MsgAppResp,
	// and the last entry of the log in a MsgStorageAppendResp.
	LogTerm uint64
	Index   uint64
	Entries []Entry
	Commit  uint64
	// Vote belongs to the hard state, which a MsgStorageAppend carries in (Term, Vote, Commit): all three are
	// set, or none is.
	Vote       uint64
	Snapshot   *Snapshot
	Reject     bool
	RejectHint uint64
	Context    []byte
	// Responses may be delivered only when the storage work of this message, and of all messages before it in
	// the same queue, is done.
	Responses []Message
}

// ConfChangeTransition says how a ConfChangeV2 moves from the old configuration to the new one.
type ConfChangeTransition int32

// The transitions. Auto uses a simple change where one suffices.
const (
	ConfChangeTransitionAuto          ConfChangeTransition = 0
	ConfChangeTransitionJointImplicit ConfChangeTransition = 1
	ConfChangeTransitionJointExplicit ConfChangeTransition = 2
)

// ConfChangeType is one kind of membership change.
type ConfChangeType int32

// The kinds of membership change.
const (
	ConfChangeAddNode        ConfChangeType = 0
	ConfChangeRemoveNode     ConfChangeType = 1
	ConfChangeUpdateNode     ConfChangeType = 2
	ConfChangeAddLearnerNode ConfChangeType = 3
)

// ConfChange changes one member.
type ConfChange struct {
	Type    ConfChangeType
	NodeID  uint64
	Context []byte
	ID      uint64
}

// ConfChangeSingle is one step of a ConfChangeV2.
type ConfChangeSingle struct {
	Type   ConfChangeType
	NodeID uint64
}

// ConfChangeV2 changes any number of members, through a joint configuration where needed (thesis §4.3).
type ConfChangeV2 struct {
	Transition ConfChangeTransition
	Changes    []ConfChangeSingle
	Context    []byte
}
