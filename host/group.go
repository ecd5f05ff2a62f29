package host

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/flight"
	"github.com/millrace/millrace/host/internal/appendlane"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/host/internal/outbox"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/host/internal/reads"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/internal/repetition"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

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

// ID returns the group's id.
func (g *Group) ID() uint64 { return g.id }

// Err returns why the group has stopped, or nil: the failure, or ErrStopped after Close.
func (g *Group) Err() error {
	if g.life.hasEnded.Load() {
		return g.life.cause
	}
	return nil
}

// Failed is closed when the group has stopped by itself; Err then says why. Close does not close it, so a
// supervisor that waits for it learns of failures only.
func (g *Group) Failed() <-chan struct{} { return g.life.failed }

// now reads the clock of the host.
func (g *Group) now() time.Duration { return g.host.env.env.Clock.Now() }

// groupLife says whether a group lives, and what others see of it.
type groupLife struct {
	endOnce  sync.Once
	ended    chan struct{} // closed by a failure, by Close and by a removal
	hasEnded atomic.Bool   // the same, for turns, which ask often
	failed   chan struct{} // closed by a failure only
	cause    error         // why it ended; set before ended is closed
	leaving  leaving

	status      published // as of the last turn that changed it
	roleChanged signal
	roleTimes   examination.RoleTimes
	waiting     waitingLine // owned by the turn
	views       examination.FollowerWatch
	leaderViews leadership.Views
	counts      groupCounts
}

func newLife() groupLife {
	return groupLife{ended: make(chan struct{}), failed: make(chan struct{}), leaving: leaving{gone: make(chan struct{})}}
}

// bearing is what makes duties wanted when it changes.
type bearing struct {
	term, leader uint64
	role         raft.StateType
	roster       *membership.Roster
}

// leaving is the end of one group: its turn, the append lane and the apply lanes release it, each when it is
// not in the middle of work for it.
type leaving struct {
	began   atomic.Bool
	removes atomic.Bool   // from the log, too
	done    atomic.Uint32 // the parts that have released it
	gone    chan struct{} // closed when all have
}

// leavingPart is a part of a host that may be working for a group.
type leavingPart uint32

const (
	theTurn leavingPart = 1 << iota
	theAppendLane
	theApplyLanes
	theSnapshotLanes
	allParts = theTurn | theAppendLane | theApplyLanes | theSnapshotLanes
)

func (g *Group) isLeaving() bool { return g.life.leaving.began.Load() }

// asleep is what a turn leaves for that. It belongs to the turn, and between turns to the shard's lock.
type asleep struct {
	isIdle  bool  // the latest turn had nothing to do but to hear pulses
	remains int64 // ticks from the latest turn to the core's next deadline
}

// groupPulse is what a group has heard of pulses, which stand for heartbeats while it is quiet.
type groupPulse struct {
	cover     pulse.Subscription // the pulses that speak for its leader
	asleep    asleep
	heardList *pulse.PeerPulses // of the last pulse that the core was told,
	heardN    int64             // and its number there
	idle      bool              // only its leader's pulses concern it
}

// groupReads is reads and the lease.
type groupReads struct {
	queue reads.Queue
	round reads.Round // owned by the turn
}

// published is a Status that any goroutine may read, and the turn alone writes. A lock costs less than memory
// for each change.
type published struct {
	leads atomic.Bool // Role is leader

	mu sync.Mutex
	s  diagnosis.Status
}

func (p *published) Load() diagnosis.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.s
}

// own is Load for the turn. It takes no lock, because nothing else writes.
func (p *published) own() diagnosis.Status { return p.s }

func (p *published) Store(s diagnosis.Status) {
	p.leads.Store(s.Role == event.RoleLeader)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.s = s
}

// groupCore is the core of a group, and what its turns know of it. The turn owns it.
type groupCore struct {
	node       *flight.Node     // observed by the flight recorder, if there is one
	at         moment           // through which the core's clocks have run
	nextDue    int64            // the tick at which the core wants to run
	hard       raftpb.HardState // basic and parallel: as last told by the core
	role       raft.SoftState
	lastLeader uint64 // that was known
	openTerm   uint64 // when the group was opened
}

// groupWork is what a turn works on. The turn owns it.
type groupWork struct {
	taken    inputs
	outgoing outbox.Batches
	held     outbox.CommitDelay
	entries  []raftpb.Entry // scratch for proposals
	ordered  bool           // it was told to campaign, in this turn
	wanted   turn.Wanted    // duties
	dutiesAt moment         // of the last turn,
	bearing  bearing        // and what it was when a duty was called last
	releases bool           // a duty lets commands go, so another turn must follow
}

// waitingLine belongs to the turn. Its moments are in ticks that were not missed.
type waitingLine struct {
	waits bool
	since int64
	gate  repetition.Gate
	said  bool
}

// groupWrites is the way of a group to its log. The turn owns what is not atomic.
type groupWrites struct {
	append     *appendlane.Queue
	storage    *groupStorage
	discarding discarding
	durable    appendlane.DurableState // of the pipelines that write in the turn

	awaitsAppend atomic.Bool  // an answer of the append lane must wake the group at once,
	awaitsApply  atomic.Bool  // and one of the apply lanes,
	awaitsAcks   atomic.Bool  // and a follower's acknowledgement of what is committed
	logReaders   atomic.Int32 // that wait for logGrown: for the log to have more entries
	logGrown     signal
}
