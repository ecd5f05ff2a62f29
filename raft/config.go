package raft

import (
	"errors"
	"fmt"
	"math"
)

// None is the id of no node: no leader is known, or no vote was given.
const None uint64 = 0

// LocalAppendThread and LocalApplyThread are the addresses of a node's own storage workers.
const (
	LocalAppendThread uint64 = math.MaxUint64
	LocalApplyThread  uint64 = math.MaxUint64 - 1
)

const noLimit = math.MaxUint64

// maxEntryOverheadBytes keeps sums of overheads far from overflow.
const maxEntryOverheadBytes = 1 << 20

// Config configures a RawNode.
type Config struct {
	// ID is the id of this node. It is not 0 and not an address of a local worker.
	ID uint64
	// ElectionTick is the number of ticks without a leader after which a follower campaigns. Each timeout is
	// drawn from [ElectionTick, 2·ElectionTick). It is greater than HeartbeatTick; ten times is usual.
	ElectionTick int
	// HeartbeatTick is the number of ticks between a leader's heartbeats, at least 1.
	HeartbeatTick int
	// Seed seeds the random source of the election timeout, together with ID. Equal seeds give equal runs; 0
	// is a seed like any other. Outside tests, use another seed for each run of a node.
	Seed uint64
	// Storage holds what is durable, and everything that was handed out to be saved there.
	Storage Storage
	// Applied is the index of the last entry that the state machine has applied, after a restart. Entries
	// through it are not handed out again, so the configuration that Storage reports must be the one as of
	// Applied. 0 means that the state machine is as old as the stored log: empty, or as of the snapshot
	// before its first entry.
	Applied uint64
	// AsyncStorageWrites selects messages to local workers instead of Ready/Advance; see the package
	// documentation.
	AsyncStorageWrites bool
	// ApplyUnstable hands committed entries out for apply before they are durable here, so that results do not
	// wait for this node's disk. A membership entry, and everything after it, still waits until that entry is
	// durable. It is only for a state machine that is volatile: after every restart it begins empty, or from a
	// snapshot, and Applied says so. A durable one would keep the effect of entries that a crash takes from
	// the log. A snapshot must be made at a durable index all the same (BasicStatus.Durable). It needs
	// AsyncStorageWrites.
	ApplyUnstable bool
	// ApplyRanges hands out committed entries that Storage holds as a range of indexes. So the core never
	// reads entries for apply: an apply worker with a lane of its own reads them. MsgStorageApply then has
	// no Entries; Index is the entry before the range, as in an append, and Commit is the last entry of the
	// range. The worker reads the range from Storage, in pieces of a size that it chooses. Its answer has
	// the last index in Index and no Entries either. Entries that Storage may not hold yet (ApplyUnstable)
	// are handed out as entries. It needs AsyncStorageWrites.
	//
	// MaxCommittedSizePerReady limits the bytes of a range if the core remembers the sizes of its entries, as it
	// does for recent ones. Otherwise an entry counts as EntryOverheadBytes, or as 64 bytes if that is more.
	ApplyRanges bool
	// MaxSizePerMsg softly limits the encoded bytes of the entries in one append. One entry is always sent.
	MaxSizePerMsg uint64
	// MaxCommittedSizePerReady limits the encoded bytes that are handed out for apply and not yet applied.
	// One entry is always handed out. 0 means MaxSizePerMsg.
	MaxCommittedSizePerReady uint64
	// MaxUncommittedEntriesSize limits the payload bytes of a leader's entries that are not yet applied.
	// Beyond the limit proposals are dropped with ErrProposalDropped. 0 means no limit. A proposal without
	// payload is never dropped for this reason, unless EntryOverheadBytes is set.
	MaxUncommittedEntriesSize uint64
	// EntryOverheadBytes is added to the bytes of each entry wherever this Config limits the bytes of
	// entries over time. These are MaxUncommittedEntriesSize, MaxInflightBytes and
	// MaxCommittedSizePerReady, but not MaxSizePerMsg, which limits one message. The default is 0, which
	// counts as etcd-io/raft does: a million entries of one byte are a million bytes, although they take
	// 200 MB of memory. With EntryOverhead the limits are limits of memory. At most 1 MiB.
	EntryOverheadBytes uint64
	// MaxInflightMsgs limits the number of appends that are sent to one follower and not acknowledged. At
	// least 1.
	MaxInflightMsgs int
	// MaxInflightBytes softly limits the bytes of these appends. 0 means no limit; otherwise at least
	// MaxSizePerMsg.
	MaxInflightBytes uint64
	// CheckQuorum makes a leader step down when it has not heard a quorum for an election timeout (thesis
	// §6.2). Followers refuse votes while they hear a leader (thesis §4.2.3).
	CheckQuorum bool
	// CheckAppends makes the check of the quorum ask for more than a sign of life. The leader also steps
	// down when no quorum has answered its appends for AnswerTicks, although heartbeats are answered; see
	// leader.go. It needs CheckQuorum. The default is off, as in etcd-io/raft.
	CheckAppends bool
	// AnswerTicks is after how many ticks without an answer CheckAppends counts a member as silent: 0,
	// which means ElectionTick, or at least ElectionTick. A larger value keeps a leader whose disks, and
	// the disks of its followers, are slower than the election timeout. It keeps a leader whose appends are
	// lost for as much longer (decision 0014).
	AnswerTicks int
	// PreVote makes a candidate ask whether it could win before it disturbs other nodes with a new term
	// (thesis §9.6).
	PreVote bool
	// ReadOnlyOption is how a leader answers reads: by asking a quorum (the default), or by a lease. Leases
	// need CheckQuorum, and the same setting on every member.
	ReadOnlyOption ReadOnlyOption
	// DisableProposalForwarding makes followers drop proposals instead of forwarding them to the leader.
	DisableProposalForwarding bool
	// DisableConfChangeValidation makes a leader append membership changes that it would otherwise refuse:
	// while another change is under way, or if the change is illegal at that moment. It is only for an
	// application that orders the changes itself. A change that is illegal when it is applied has no effect.
	DisableConfChangeValidation bool
	// WithoutAuthority starts the node without authority: it may lack entries that it has acknowledged. It
	// casts no vote, does not campaign, and what it acknowledges does not count, until RawNode.Regain. Its term
	// and vote are those that it has promised, unless LacksTerms. All members must be of this package
	// (docs/divergence.md).
	WithoutAuthority bool
	// LacksTerms says that terms and votes may be missing, too. Then all other voters with authority have to
	// confirm that the node may have authority again, and not only a quorum. It needs WithoutAuthority.
	LacksTerms bool
	// Life is higher in each run of the node that begins without authority than in every earlier run. Only for
	// WithoutAuthority, which needs at least 1.
	Life uint64
	// StepDownOnRemoval makes a leader step down as soon as it has applied its own removal or demotion
	// (thesis §4.2.2). Without it the leader steps down within an election timeout, in which it takes no
	// proposals but informs the others.
	StepDownOnRemoval bool
	// Logger receives reports about elections, membership changes, snapshots and refused input, as sentences.
	// nil reports nothing. It must not call back into the node.
	Logger Logger
}

// Validate returns an error that describes the first invalid setting.
func (c *Config) Validate() error {
	switch {
	case c.ID == None:
		return errors.New("raft: Config.ID is 0, which is the id of no node; give each node its own id")
	case c.ID == LocalAppendThread || c.ID == LocalApplyThread:
		return fmt.Errorf("raft: Config.ID %d is the address of a local storage worker; choose another id", c.ID)
	case c.HeartbeatTick < 1:
		return fmt.Errorf("raft: Config.HeartbeatTick is %d, want at least 1", c.HeartbeatTick)
	case c.ElectionTick <= c.HeartbeatTick:
		return fmt.Errorf("raft: Config.ElectionTick is %d, want more than HeartbeatTick (%d)", c.ElectionTick, c.HeartbeatTick)
	case c.Storage == nil:
		return errors.New("raft: Config.Storage is nil")
	case c.ApplyUnstable && !c.AsyncStorageWrites:
		return errors.New("raft: Config.ApplyUnstable is set, which needs AsyncStorageWrites: otherwise the application saves a Ready before it applies it")
	case c.ApplyRanges && !c.AsyncStorageWrites:
		return errors.New("raft: Config.ApplyRanges is set, which needs AsyncStorageWrites: in synchronous mode a Ready has the entries to apply")
	case c.WithoutAuthority && c.Life == 0:
		return errors.New("raft: Config.Life is 0, but WithoutAuthority needs a number that is higher in each run, from 1")
	case c.LacksTerms && !c.WithoutAuthority:
		return errors.New("raft: Config.LacksTerms is set, which needs WithoutAuthority: a node that may have forgotten a vote must not vote")
	case c.MaxInflightMsgs < 1:
		return fmt.Errorf("raft: Config.MaxInflightMsgs is %d, want at least 1", c.MaxInflightMsgs)
	case c.MaxInflightBytes != 0 && c.MaxInflightBytes < c.MaxSizePerMsg:
		return fmt.Errorf("raft: Config.MaxInflightBytes is %d, want 0 or at least MaxSizePerMsg (%d)", c.MaxInflightBytes, c.MaxSizePerMsg)
	case c.EntryOverheadBytes > maxEntryOverheadBytes:
		return fmt.Errorf("raft: Config.EntryOverheadBytes is %d, want at most %d", c.EntryOverheadBytes, maxEntryOverheadBytes)
	case c.CheckAppends && !c.CheckQuorum:
		return errors.New("raft: Config.CheckAppends is set, which needs CheckQuorum: the appends are checked when the quorum is")
	case c.AnswerTicks != 0 && !c.CheckAppends:
		return errors.New("raft: Config.AnswerTicks is set, which needs CheckAppends: nothing else waits for answers")
	case c.AnswerTicks != 0 && c.AnswerTicks < c.ElectionTick:
		return fmt.Errorf("raft: Config.AnswerTicks is %d, want 0 or at least ElectionTick (%d)", c.AnswerTicks, c.ElectionTick)
	case c.ReadOnlyOption < ReadOnlySafe || c.ReadOnlyOption > ReadOnlyPromises:
		return fmt.Errorf("raft: Config.ReadOnlyOption is %d, want ReadOnlySafe, ReadOnlyLeaseBased or ReadOnlyPromises", c.ReadOnlyOption)
	case c.ReadOnlyOption == ReadOnlyPromises && !c.CheckQuorum:
		return errors.New("raft: Config.ReadOnlyOption is ReadOnlyPromises, which needs CheckQuorum: without it a leader that is cut off never steps down")
	case c.ReadOnlyOption == ReadOnlyLeaseBased && !c.CheckQuorum:
		return errors.New("raft: Config.ReadOnlyOption is ReadOnlyLeaseBased, which needs CheckQuorum: without it followers vote while the lease holds")
	}
	return nil
}

// orUnlimited interprets the 0 of an optional limit.
func orUnlimited(v uint64) uint64 {
	if v == 0 {
		return noLimit
	}
	return v
}
