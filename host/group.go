package host

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/flight"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/internal/outbox"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Group is one replicated log on this host: the core, the pipeline that carries out what the core wants, and
// its queues to the lanes of the host. Its shard runs its turns. Each turn takes what is in the inbox, steps
// it, and handles one Ready. Only the turn touches the core.
type Group struct {
	id, self uint64
	host     *Host
	config   GroupConfig

	seat sched.Seat // in its shard

	inbox       inbox
	proposals   proposalQueue
	drain       drain
	spaces      spaces
	time        logTime
	hasCommands bool // its entries have headers (commands.go)
	divergence  divergence.Comparison
	skips       skips
	members     members
	plan        planned
	executions  executions
	append      *appendQueue
	apply       *applyQueue
	storage     *groupStorage
	snapshots   groupSnapshots
	objects     groupObjects
	installs    installs

	onSnapshotLanes int // pieces of work that run; guarded by the lock of the snapshot lanes

	// Owned by the turn.
	node     *flight.Node
	flight   *flight.Log // of node; nil: it is not recorded
	at       moment      // through which the core's clocks have run
	nextDue  int64       // the tick at which the core wants to run
	taken    inputs
	outgoing outbox.Batches
	hard     raftpb.HardState // basic and parallel: as last told by the core,
	stated   stated           // and as written
	entries  []raftpb.Entry   // scratch for proposals
	role     raft.SoftState
	ordered  bool        // it was told to campaign, in this turn
	wanted   turn.Wanted // duties
	dutiesAt moment      // of the last turn,
	bearing  bearing     // and what it was when a duty was called last
	releases bool        // a duty lets commands go, so another turn must follow
	held     outbox.CommitDelay
	batching batching // its own comments say who owns what
	gathering
	forgetting
	founding
	resuming
	gray
	slow slowMembers
	lateOrders
	reads reading // its own comments say who owns what
	quietLead
	placing groupPlacing // its own comments say who owns what
	asleep
	heardList  *pulse.PeerPulses // of the last pulse that the core was told,
	idle       bool              // only its leader's pulses concern it
	router     router
	forwarders forwarders
	copies     map[uint64]*copies // by host
	frames     seenFrames
	openTerm   uint64 // when the group was opened
	heardN     int64  // and its number there

	awaitsAppend atomic.Bool        // an answer of the append lane must wake the group at once,
	awaitsApply  atomic.Bool        // and one of the apply lanes,
	awaitsAcks   atomic.Bool        // and a follower's acknowledgement of what is committed
	cover        pulse.Subscription // the pulses that speak for its leader
	status       published          // as of the last turn that changed it
	roleChanged  signal
	logReaders   atomic.Int32 // that wait for logGrown: for the log to have more entries
	logGrown     signal
	staysLeader  atomic.Bool // it was asked to hand over, and cannot
	refused,
	dropped atomic.Uint64
	roleTimes    roleTimes
	waiting      waitingLine // owned by the turn
	views        memberWatches
	leaderViews  leaderViews
	overload     overload
	counts       groupCounts
	transfer     *Transfer    // under way, and owned by the turn; nil: none
	lastLeader   uint64       // that was known; owned by the turn
	refusesSince atomic.Int64 // refuses is not empty since then

	withoutAuthority atomic.Bool // changed by the turn only
	lostAt           int64       // when it was opened without

	endOnce  sync.Once
	ended    chan struct{} // closed by a failure, by Close and by a removal
	hasEnded atomic.Bool   // the same, for turns, which ask often
	failed   chan struct{} // closed by a failure only
	cause    error         // why it ended; set before ended is closed
	leaving
}

// ID returns the group's id.
func (g *Group) ID() uint64 { return g.id }

// proposeAll offers commands to the core in batches of about one append, and registers their clients at their
// indexes.
func (g *Group) proposeAll() {
	for batch := g.proposals.next(); len(batch) > 0; {
		batch = g.propose(batch)
	}
}

// propose offers a batch, and returns the next one.
func (g *Group) propose(batch []proposal) (next []proposal) {
	if err := g.rejectBatch(batch); err != nil {
		return g.proposals.refuse(batch, err)
	}
	g.entries = g.entries[:0]
	bytes := 0
	for i, p := range batch {
		data := p.command
		if g.hasCommands {
			data = g.entryOf(p.waiter.call, i == 0)
		}
		g.entries = append(g.entries, raftpb.Entry{Data: data})
		bytes += len(data)
	}
	first, err := g.proposeEntries(g.entries)
	clear(g.entries)
	switch {
	case errors.Is(err, raft.ErrProposalDropped):
		if g.node.BasicStatus().LeadTransferee == raft.None {
			g.noteOverload(len(batch))
		}
		refusal := error(ErrOverloaded)
		if g.hasCommands {
			g.pauseCalls(1) // those that are tried again would be refused again at once
			refusal = g.overloaded()
		}
		return g.proposals.refuse(batch, refusal)
	case err != nil:
		return g.proposals.refuse(batch, wrap(ErrStopped, err)) // the core has stopped, and lets nothing out any more
	default:
		g.counts.batches.Add(1)
		g.counts.commands.Add(uint64(len(batch)))
		g.counts.bytes.Add(uint64(bytes))
		return g.proposals.accept(g.node.BasicStatus().Term, first, batch)
	}
}

func (g *Group) rejectBatch(batch []proposal) error {
	switch st := g.node.BasicStatus(); {
	case g.Halted() != nil:
		return g.Halted()
	case st.RaftState != raft.StateLeader && st.Lead == raft.None && g.bound.Load() == nil:
		return g.notFounded()
	case st.RaftState != raft.StateLeader:
		return g.host.notLeader(st.Lead)
	case !g.takesCommands():
		return g.notFounded()
	case !g.hasCommands && !g.proposals.hasSpace(proposalBytes(batch)): // calls are counted already
		g.noteOverload(len(batch))
		return ErrOverloaded
	}
	return nil
}

// fail stops the group for good, and no other group. The first cause wins. The event and the log line come
// last, with no lock held; the log line comes after the event, because a log may hang.
func (g *Group) fail(err error) {
	first := false
	g.endOnce.Do(func() {
		g.cause = err
		g.roleTimes.stopped.Store(g.host.clock.livedAtBeat()) // Explain may look as soon as Err is set
		g.hasEnded.Store(true)
		close(g.ended)
		close(g.failed)
		first = true
	})
	if first {
		g.leavePulses()
		g.snapshots.stop()
		g.wake() // its next turn answers the clients that still wait
		g.host.events.emit(event.GroupStopped{Group: g.id, Err: err})
		g.host.flight.groupStopped(g.id, err)
		about := []any{"group", g.id, "host", g.self, "cause", err}
		if p := (*panicked)(nil); errors.As(err, &p) {
			about = append(about, "stack", string(p.stack))
		}
		g.host.env.logger.Error("group stopped", about...)
	}
}

// end stops the group because it is closed or removed.
func (g *Group) end(cause error) {
	g.endOnce.Do(func() {
		g.cause = cause
		g.roleTimes.stopped.Store(g.host.clock.livedAtBeat())
		g.hasEnded.Store(true)
		close(g.ended)
	})
	g.snapshots.stop()
	g.leavePulses()
}

// leavePulses makes no pulse vouch for a group that has stopped, and drops it from those that lead here.
func (g *Group) leavePulses() {
	g.host.pulses.Drop((*pulseLeader)(g))
	g.host.placer.drop(g)
	g.uncover()
}

// Err returns why the group has stopped, or nil: the failure, or ErrStopped after Close.
func (g *Group) Err() error {
	if g.hasEnded.Load() {
		return g.cause
	}
	return nil
}

// Failed is closed when the group has stopped by itself; Err then says why. Close does not close it, so a
// supervisor that waits for it learns of failures only.
func (g *Group) Failed() <-chan struct{} { return g.failed }

// Log returns entries [lo, hi) of this host's log, at least one and about maxBytes at most. They are durable
// or about to be; those up to Status().Committed are committed. It is for tools and judges. Errors are those
// of wal.Group.Entries.
func (g *Group) Log(lo, hi, maxBytes uint64) ([]Entry, error) {
	return g.storage.log.Entries(lo, hi, maxBytes)
}

// abandon answers all waiting clients, those in the inbox and those behind it. It may be called while a turn
// runs.
func (g *Group) abandon() {
	cause := g.Err()
	left := g.inbox.close()
	g.proposals.refusals.note(wrap(ErrStopped, cause), len(left))
	answerAll(left, wrap(ErrStopped, cause))
	g.tellEnded(g.proposals.abandon(cause), cause)
	g.reads.close(cause)
	g.spaces.close(cause)
}

// now reads the clock of the host.
func (g *Group) now() time.Duration { return g.host.env.env.Clock.Now() }
