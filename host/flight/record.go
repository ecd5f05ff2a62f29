package flight

import (
	"fmt"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Kind is what a record is: an input of the core, or a reply of Storage to a question of the core.
type Kind byte

// The inputs. Each is a method of raft.RawNode, except the first two, which begin a core.
const (
	Start Kind = 1 + iota // NewRawNode
	Checkpoint
	Stepped // a message or a proposal
	ApplyConfChange
	Tick
	TickN
	TickMissed
	TickQuiesced
	Campaign
	TransferLeader
	ForgetLeader
	ReportUnreachable
	ReportSnapshot
	SetElectionTimeout
	HeardLeader
	PeerActive
	SetPulsed
	ReadIndex
	EntriesArrived
	StretchPromise
	StepDown
	Regain
	Bootstrap
	Ready
	Advance
	EntryTerm // recorded only if it has stopped the core
	endOfInputs
)

// What belongs to the input before it: replies of Storage, in the order of the questions, and the hash of
// what a Ready handed out.
const (
	ReplyTerm Kind = 64 + iota
	ReplyFirst
	ReplyLast
	ReplyEntries
	ReplySnapshot
	ReplyInitial
	ReplyChanges
	Handed
	endOfReplies
)

var kindNames = map[Kind]string{
	Start: "start", Checkpoint: "checkpoint", Stepped: "message", ApplyConfChange: "applied change",
	Tick: "tick", TickN: "ticks", TickMissed: "missed ticks", TickQuiesced: "quiet tick", Campaign: "campaign", TransferLeader: "transfer",
	ForgetLeader: "forget leader", ReportUnreachable: "unreachable", ReportSnapshot: "snapshot report", SetElectionTimeout: "election timeout",
	HeardLeader: "pulse", PeerActive: "pulse answer", SetPulsed: "pulsed", ReadIndex: "read", EntriesArrived: "entries arrived",
	StretchPromise: "stretched promise", StepDown: "step down", Regain: "regain", Bootstrap: "bootstrap", Ready: "ready", Advance: "advance", EntryTerm: "entry term",
	ReplyTerm: "term", ReplyFirst: "first index", ReplyLast: "last index", ReplyEntries: "entries", ReplySnapshot: "snapshot",
	ReplyInitial: "initial state", ReplyChanges: "changes", Handed: "handed out",
}

// String returns the name of the kind.
func (k Kind) String() string {
	if name := kindNames[k]; name != "" {
		return name
	}
	return fmt.Sprintf("kind %d", byte(k))
}

// isInput reports whether a record of this kind is an input. The others belong to the input before them.
func (k Kind) isInput() bool { return k >= Start && k < endOfInputs }

// Record is one record. Which fields are set depends on Kind.
type Record struct {
	Kind Kind
	// N are the numbers of an input or of a question to Storage: ticks, a term and a leader, the id of a
	// member, an index, a range.
	N       [3]uint64
	Value   uint64 // of a reply
	Indexes []uint64
	Message raftpb.Message
	Data    []byte       // of a change, a read; the state of a checkpoint
	Config  *raft.Config // of a start or a checkpoint
	Peers   []raft.Peer
	Entries []raftpb.Entry
	Hashes  []uint32 // of the data of Entries or Message.Entries that was not recorded
	Hard    raftpb.HardState
	Conf    *raftpb.ConfState
	Snap    *raftpb.Snapshot
	Err     error // of a reply
	Hash    uint32

	bytes int // that the record takes
}

// id returns the number that names the subject of an input.
func (r *Record) id() uint64 { return r.N[0] }
