package host

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/admin"
	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/host/flight"
	"github.com/millrace/millrace/host/internal/appendlane"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/host/internal/feed"
	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/host/internal/outbox"
	"github.com/millrace/millrace/host/internal/placement"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/internal/reports"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/internal/storage"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/wal"
)

// Host is one process of a cluster: a directory, a log, a transport, and the groups that share them. Its
// methods may be called from any goroutine.
type Host struct {
	config  Config
	env     environment
	trust   hostTrust   // which directory this is, and whom it admits
	memory  hostMemory  // what may wait
	storage hostStorage // the log of all groups

	network  hostNetwork    // to other hosts
	shards   []*sched.Shard // where turns run
	appliers *apply.Lanes   // where state machines run
	bulk     hostBulk       // snapshots and objects, made and sent
	groups   groupTable
	changes  memberChanges // how members and leaders are to change
	reports  hostReports   // what others see of it
	clock    hostClock
	shutdown hostShutdown
}

// incarnation returns the incarnation of this host's directory.
func (h *Host) incarnation() transport.Incarnation { return h.trust.directory.Identity().Incarnation }

// nextFrame returns a frame number that no life of this host has used.
func (h *Host) nextFrame() uint64 {
	return h.storage.log.Fence().Generation<<40 + h.network.frames.Add(1)
}

const (
	maxShards     = 16
	minApplyLanes = 2 // one of them is for machines that are quick
	maxApplyLanes = 64
)

// stallTimeout returns how long a connection may make no progress. A firewall that has forgotten a connection
// separates two hosts for as long as stallTimeout, although a new connection would work at once.
func (c Config) stallTimeout() time.Duration { return max(3*c.ElectionTimeout, minStall) }

// minStall lets the kernel repeat a lost packet twice before the connection is given up.
const minStall = time.Second

// Addr returns the address on which the host's transport listens, or "" if the transport has none.
func (h *Host) Addr() string {
	if t, ok := h.network.transport.(interface{ Addr() string }); ok {
		return t.Addr()
	}
	return ""
}

// TransportStats returns the counts of the host's transport, including the number of connected peers. They
// are zero if the transport does not count.
func (h *Host) TransportStats() transport.Stats {
	if t, ok := h.network.transport.(interface{ Stats() transport.Stats }); ok {
		return t.Stats()
	}
	return transport.Stats{}
}

// LogStats returns the counts of the host's log.
func (h *Host) LogStats() wal.Stats { return h.storage.log.Stats() }

// memberChanges is how members and leaders are to change, as this host was asked or has decided.
type memberChanges struct {
	plans      plans.Catalog // that were made over the admin socket
	applicants plans.Applicants
	executing  atomic.Int64     // plans that callers here wait for (execute.go)
	placer     placement.Placer // hand-overs for placement
}

// hostReports is what others see of a host.
type hostReports struct {
	events    *reports.Events
	logWriter *reports.LogWriter
	hook      *reports.Hook // nil: there is none
	admin     *admin.Server // the same
	watch     examination.Watch
	flight    *flightRecorder // nil: there is none

	subscribers feed.Waker
}

// inbound is the host as its transport sees it: transport.Receiver. It is a type of its own so that a user's
// Host does not export what only the transport may call.
type inbound Host

// Group is one replicated log on this host: the core, the pipeline that carries out what the core wants, and
// its queues to the lanes of the host. Its shard runs its turns. Each turn takes what is in the inbox, steps
// it, and handles one Ready. Only the turn touches the core.
type Group struct {
	member // who it is

	seat       sched.Seat      // its place in its shard
	inbox      inbox           // what has come for its next turn
	core       groupCore       // the core, owned by the turn
	work       groupWork       // what its turn works on
	proposals  groupProposals  // clients, from the door to the answer
	reads      groupReads      // reads and the lease
	writes     groupWrites     // to the log
	machine    groupMachine    // to the state machine
	members    groupMembers    // who counts
	snapshots  groupSnapshots  // in place of entries
	leadership groupLeadership // who should lead
	pulse      groupPulse      // heartbeats while it is quiet
	life       groupLife       // whether it lives, and what is seen of it
}

// member says which member of which group this is. It does not change.
type member struct {
	id, self uint64
	host     *Host
	config   GroupConfig
}

// hostClock is the clock of a host: it tells the shards how many ticks have passed, and calls everything else
// that happens by time. While nothing is due between two heartbeats it is calm: it beats at heartbeats only,
// since waking an idle process costs more than what it does then. A group that is woken ends that.
type hostClock struct {
	*metronome
	host   *Host
	ticker env.Ticker
	calm   atomic.Bool
	at     atomic.Pointer[sched.Time] // as of the last beat
	pauses pausesSeen

	// Owned by beat.
	ticks, missed int64
	beats         int64 // heartbeat intervals
}

// flightRecorder is the recorder of a host, and the worker that writes a file for each group that stops by
// itself. A turn never writes it: its disk may be the reason why the group stops. A nil one records nothing.
type flightRecorder struct {
	host     *Host
	recorder *flight.Recorder
	task     env.Task

	mu      lock.Mutex
	waiting []stoppedGroup
	written int
	files   lock.Mutex // one file is written at a time
}

// groupTable holds the groups of a host that are open, or on their way to it or from it. It holds the ids
// of those that were removed, which the log remembers.
type groupTable struct {
	mu      lock.RWMutex
	open    map[uint64]*Group // nil: being opened
	removed map[uint64]bool   // for good
	closed  bool
}

type stoppedGroup struct {
	id    uint64
	cause error
}

// Transfer is a leadership that is handed over because a caller wants it (Group.StartTransfer). It rests on
// the transfer of the core. The leader takes no commands, brings the target's log up to its own, and tells
// the target to campaign. After an election timeout the leader gives up and leads again. The group answers
// in its turns, so nothing here waits.
//
// A transfer has ended well when this host knows another leader. Until then it does not: that the order to
// campaign has left says nothing about the votes.
type Transfer struct {
	group *Group
	way   *leadership.Transfer
}

// inbox holds everything that waits for a group's turn: commands of clients, messages of peers, answers of
// the lanes. Any goroutine may put, and wakes the group after that; only the group takes. All but commands a
// turn gets as it begins.
//
// It is bounded in bytes, by budgets of the host: beyond them, Propose answers ErrOverloaded, and messages
// are dropped. Answers of the lanes are never dropped; there are only as many as the group has given out
// work.
type inbox struct {
	memory *memory
	now    func() time.Duration // the clock of the host

	commands atomic.Int64 // that wait; 0 spares those who look the lock
	due      atomic.Bool  // as many wait as verdict says
	woken    atomic.Bool  // commands have woken the group, and no turn has begun since
	answered atomic.Bool  // answers or messages wait: the same
	filled   atomic.Bool  // anything but commands waits, or may: the same

	// given guards what is no command. It is the shard's lock, under which a turn begins and gets it. It may be
	// taken while mu is held, and not the other way round.
	given        *lock.Mutex
	messageBytes int64

	mu            lock.Mutex
	closed        bool // both locks guard it
	waiting       inputs
	paused        bool               // commands stay here for now: the group may be founded before long (founding.go)
	arrivals      proposals.Arrivals // of the commands
	verdict       batches.Verdict    // how many commands must wait for the group to be woken
	proposalBytes int64
	forwardBytes  atomic.Int64
}

// inputs is one turn's worth.
type inputs struct {
	givenInputs
	proposals []proposals.Proposal
	since     time.Duration // when the first of the proposals came
}

// givenInputs is what is no command.
type givenInputs struct {
	campaign    bool
	handOver    bool
	transfer    *leadership.Transfer // nil: none was asked for
	wish        *placement.Wish      // of placement; nil: none
	fetched     []storage.Result     // of the readers
	notCovered  bool                 // a follower is not covered by a pulse
	forgot      appendlane.Outcome
	answers     []raftpb.Message // of the lanes
	messages    []raftpb.Message // of peers
	unreachable []uint64
	questions   []leadership.AppliedRecord // of a leader, one of each host at most,
	applied     []leadership.AppliedRecord // and answers to this one's
	forwards    []proposals.Frame          // commands of hosts that do not lead,
	refusals    []proposals.Refusal        // and refusals of what this one has forwarded
	snapshots   []snapshotStatus           // of transfers that have ended
	replaced    []uint64                   // peers that come with another directory than before
	more        bool                       // messages are left for another turn
}

// snapshotStatus is how a transfer to a member has ended, for the core.
type snapshotStatus struct {
	member uint64
	status raft.SnapshotStatus
}

// groupLeadership is what a group knows of who should lead it. The turn owns what is not atomic.
type groupLeadership struct {
	leader     leadership.Leader
	slow       leadership.SlowMembers
	resume     leadership.Resume
	lateOrders lateOrders
	quietLead  quietLead
	placing    placement.Member // its own comments say who owns what

	staysLeader atomic.Bool // it was asked to hand over, and cannot
}

// groupWork is what a turn works on. The turn owns it.
type groupWork struct {
	taken    inputs
	outgoing outbox.Batches
	held     outbox.CommitDelay
	began    time.Duration  // the turn, by the clock
	entries  []raftpb.Entry // scratch for proposals
	joiner   raftpb.Joiner  // of proposals that become one entry
	ordered  bool           // it was told to campaign, in this turn
	wanted   turn.Wanted    // duties
	dutiesAt sched.Time     // of the last turn,
	bearing  bearing        // and what it was when a duty was called last
	releases bool           // a duty lets commands go, so another turn must follow
}

// secrets returns a source of unpredictable bytes.
func (h *Host) secrets() io.Reader { return h.env.secrets() }
