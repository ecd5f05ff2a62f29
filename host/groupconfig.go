package host

import (
	"time"

	"github.com/millrace/millrace/host/internal/placement"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/raft"
)

// GroupConfig configures one group on one host. Only ID must be set. All founding members of a group must
// give it the same ID and Members.
type GroupConfig struct {
	// ID is the group's id in the cluster, not 0. The id of a group that was removed is never reused.
	ID uint64
	// Members are the ids of the hosts that found the group, and vote in it; default all of Config.Members.
	// All founding members must give the same list, with this host in it. When the group is founded its
	// members are in its log, change by Group.Execute, and Members is not looked at any more.
	Members []uint64
	// Joins says that this host is not a founding member, or was a founding member and lost its directory.
	// It then waits until Group.Execute, on a member, adds it or replaces its directory. Joins is noted at
	// the first start, and not looked at any more when the group has entries here.
	Joins bool
	// NonBlocking declares that Apply never waits: for no lock that another goroutine holds while it waits,
	// for no disk, for no network. Then it is called in the group's turn, without two hand-overs between
	// goroutines. An Apply that waits nevertheless stops the heartbeats of all groups of its shard. In a
	// group with objects (CommandOptions.Objects) it has no effect.
	NonBlocking bool

	// Volatile declares that the state machine keeps nothing beyond the process: after a start it is empty,
	// and gets all commands again. Then commands may be applied when a quorum holds them durably, before this
	// host's disk does, so a leader whose disk is slow or hangs still answers. It must not be set for a
	// machine that keeps files: a power cut could leave there what the log does not have.
	Volatile bool

	// Leases makes reads under a lease possible (Group.Lease). Every member then promises, with each answer
	// to its leader and when it starts, to elect no other leader for an election timeout. So an election
	// without a hand-over takes at least that long. Leases is a setting of the group: it is bound when the
	// group is founded, with the election timeout of the host that founds it. A member stops if its setting
	// differs, or if its Config.ElectionTimeout is shorter. A longer timeout does no harm, and makes no
	// lease longer.
	Leases bool

	// Placement says which members should lead the group. It is a hint, is acted on by the member that leads,
	// and may be changed by Group.SetPlacement. By default all members are equal.
	Placement Placement

	// Snapshots says when snapshots are taken, if the state machine is a Snapshotter. The default is a good
	// one. It may differ between members.
	Snapshots SnapshotPolicy

	// PublicationBytes bounds the publications that this host keeps for subscribers, in memory and in each
	// snapshot, with 48 bytes for each. Default 16 MiB, at most 1 GiB. The oldest are forgotten. The latest
	// batch is kept whatever its size. They do not count against Config.MemoryBytes. It may differ between
	// members.
	PublicationBytes int64

	// MaxLagBytes bounds what the state machine of a leader has still to apply. Its own commands count, with
	// their bytes and 64 more for each. While it is more, commands wait as they do while too many
	// are under way, and then get ErrOverloaded. So a slow machine slows its clients down, and the log does not
	// run away from it. Default Config.MemoryBytes; less than 0: there is no bound. It may differ between
	// members.
	MaxLagBytes int64

	// MaxAppendBytes is the soft size of one append to a follower; default 1 MiB, or what Config.MemoryBytes
	// allows if that is less. That is large enough for efficient disk writes, and small enough not to delay a
	// heartbeat behind it (thesis §10.2.2).
	MaxAppendBytes int
	// MaxCommandBytes bounds one command; default 8 MiB, or what Config.MemoryBytes allows if that is less.
	// Larger ones get ErrTooLarge.
	MaxCommandBytes int
}

// core returns the configuration of the group's core.
func (g GroupConfig) core(c Config, storage raft.Storage, seed uint64, p pipeline.Pipeline) raft.Config {
	async := p.AsyncStorageWrites()
	_, ranges := p.(pipeline.Async) // the clamp acknowledges what a Ready hands out
	return raft.Config{
		ID:                        c.ID,
		ElectionTick:              c.electionTicks(),
		HeartbeatTick:             ticksPerHeartbeat,
		Seed:                      seed,
		Storage:                   storage,
		AsyncStorageWrites:        async,
		MaxSizePerMsg:             uint64(g.MaxAppendBytes),
		MaxCommittedSizePerReady:  uint64(min(maxApplyingBytes, c.shareOf(proposedShare))),
		MaxUncommittedEntriesSize: uint64(c.shareOf(proposedShare) / 2),
		MaxInflightMsgs:           maxInflightMsgs,
		MaxInflightBytes:          maxInflightBytes,
		EntryOverheadBytes:        raft.EntryOverhead,
		CheckQuorum:               true,
		CheckAppends:              true,
		AnswerTicks:               answerTimeouts * c.electionTicks(),
		ApplyUnstable:             g.Volatile && async,
		ApplyRanges:               ranges,
		PreVote:                   true,
		DisableProposalForwarding: true,
		ReadOnlyOption:            g.readOnlyOption(),
	}
}

// readOnlyOption never lets the core read by a lease of its own, which it would count in ticks (lease.go).
func (g GroupConfig) readOnlyOption() raft.ReadOnlyOption {
	if g.Leases {
		return raft.ReadOnlyPromises
	}
	return raft.ReadOnlySafe
}

// SnapshotPolicy says when a group takes snapshots by itself. The zero value is a good one.
type SnapshotPolicy struct {
	// LogBytes is how much the log grows between two snapshots, in bytes with the overhead of each entry.
	// Default 64 MiB, or four times the last snapshot if that is more: so writing snapshots costs at most a
	// quarter of writing the log.
	LogBytes int64
	// Every is the time after which a snapshot is taken if anything was applied since the last; 0: none is
	// taken because of time. At least a heartbeat interval.
	Every time.Duration
	// KeepBytes is how much of the log stays behind a snapshot, for followers that are behind: they get
	// entries in place of the snapshot. Default as many bytes as the snapshot has, and at least 1 MiB (or a
	// quarter of the interval between two snapshots, if that is less). Sending more log than that costs
	// more than the snapshot.
	KeepBytes int64
	// MaxLogBytes bounds the defaults of LogBytes and KeepBytes, which grow with the snapshot: 64 MiB or more;
	// 0: no bound. Set it if a snapshot costs what has changed, because its files are links. Then the log need
	// not grow with the state, nor the time of a start.
	MaxLogBytes int64
	// Disabled means that no snapshot is taken except by TakeSnapshot.
	Disabled bool
}

// Placement says which members of a group should lead it. The zero value means that all are equal. It is a
// hint for a leader that works: it takes no part in elections, and a member with priority 0 leads if no other
// can. Give all members the same; if they differ, that of the member that leads decides.
type Placement struct {
	// Priorities are from 0 to 100, by the ids of members. A member that is not named has 1. The leader hands
	// over to a member with a higher priority than its own. 0 means that a member should lead only while no
	// other can. At most 1,024 may be given, also for hosts that are no members yet.
	Priorities map[uint64]int
	// Zones are the zones (Config.Zone) in which the leader should be, the best first; at most 64. They
	// decide among members of the same priority. A zone that is not named comes after all that are.
	Zones []string
}

// Validate reports the first setting that OpenGroup and SetPlacement would refuse, in a sentence.
func (p Placement) Validate() error { return placement.Preference(p).Validate() }
