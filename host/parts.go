package host

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/flight"
	"github.com/millrace/millrace/host/internal/appendlane"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/budget"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/host/internal/feed"
	"github.com/millrace/millrace/host/internal/founding"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/host/internal/objects"
	"github.com/millrace/millrace/host/internal/peers"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/host/internal/reads"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/internal/storage"
	"github.com/millrace/millrace/host/internal/versions"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/internal/arena"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/internal/repetition"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// What a group and a host consist of, as far as it knows neither. host.go puts it together.

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

// quiescence is what a turn leaves for that. It belongs to the turn, and between turns to the shard's lock.
type quiescence struct {
	isIdle  bool  // the latest turn had nothing to do but to hear pulses
	remains int64 // ticks from the latest turn to the core's next deadline
}

// groupPulse is what a group has heard of pulses, which stand for heartbeats while it is quiet.
type groupPulse struct {
	subscription pulse.Subscription // the pulses that speak for its leader
	quiescence   quiescence
	peerPulses   *pulse.PeerPulses // of the last pulse that the core was told,
	pulseCount   int64             // and its number there
	idle         bool              // only its leader's pulses concern it
}

// groupReads is reads and the lease.
type groupReads struct {
	queue reads.Queue
	round reads.Round // owned by the turn
}

// published is a Status that any goroutine may read, and the turn alone writes. Neither waits for the
// other: a reader that meets a change reads again.
type published struct {
	leads   atomic.Bool   // Role is leader
	changes atomic.Uint64 // so far; odd while one is under way
	now     [8]atomic.Uint64

	s diagnosis.Status // what now says; of the turn
}

// words are the fields of a status that turns publish.
func words(s *diagnosis.Status) [8]uint64 {
	return [...]uint64{s.ID, s.Term, uint64(s.Role), s.Leader, s.Applied, s.Committed, s.Durable, s.LastIndex}
}

func (p *published) Load() (s diagnosis.Status) {
	for {
		before := p.changes.Load()
		w := &p.now
		s = diagnosis.Status{
			ID: w[0].Load(), Term: w[1].Load(), Role: event.Role(w[2].Load()), Leader: w[3].Load(),
			Applied: w[4].Load(), Committed: w[5].Load(), Durable: w[6].Load(), LastIndex: w[7].Load(),
		}
		if before%2 == 0 && p.changes.Load() == before {
			return s
		}
		runtime.Gosched() // the turn may have lost its processor
	}
}

// own is Load for the turn.
func (p *published) own() diagnosis.Status { return p.s }

// commit publishes what is committed before the turn hands it over: callers that are answered find it.
func (p *published) commit(through, lastIndex uint64) {
	if s := p.s; through > s.Committed {
		s.Committed, s.LastIndex = through, lastIndex
		p.Store(s)
	}
}

func (p *published) Store(s diagnosis.Status) {
	p.leads.Store(s.Role == event.RoleLeader)
	was, now := words(&p.s), words(&s)
	p.changes.Add(1)
	for i := range now {
		if now[i] != was[i] {
			p.now[i].Store(now[i])
		}
	}
	p.changes.Add(1)
	p.s = s
}

// groupCore is the core of a group, and what its turns know of it. The turn owns it.
type groupCore struct {
	node       *flight.Node     // observed by the flight recorder, if there is one
	at         sched.Time       // through which the core's clocks have run
	nextDue    int64            // the tick at which the core wants to run
	hard       raftpb.HardState // basic and parallel: as last told by the core
	role       raft.SoftState
	lastLeader uint64 // that was known
	openTerm   uint64 // when the group was opened
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

// pausesSeen is what the clock of a host knows of pauses.
type pausesSeen struct {
	longAt atomic.Int64 // tick that was not missed, at the end of the last one that makes orders late
}

func (p *pausesSeen) init() { p.longAt.Store(math.MinInt64 / 2) }

// discarding is the group's part.
type discarding struct {
	restart          func(applied uint64) error // sets the core of the group
	forgetAfterTicks int
	unheard          int    // ticks without a leader, while the disk refuses entries
	waitsForLane     bool   // the append lane was asked to forget, and has not answered
	handed           uint64 // the last entry that was handed to the apply lane
}

// transfers are those of a host, of its two kinds of content. A snapshot is not removed while it is sent,
// and the log behind it is kept, since the receiver needs it next. If that becomes too much
// (bulk.MinPinnedLog), the transfer ends with an event, and the log goes.
type transfers struct {
	bulk.Transfers
	snapshots *bulk.Class
	objects   objects.Fetches
}

// hostTrust says which directory this is, whom it admits, and with which key.
type hostTrust struct {
	directory *identity.Directory
	admission *identity.Admission
	authority members.Authority
	keys      members.Keys
	tokens    plans.Tokens // that this host was given
}

// hostNetwork is the way to other hosts.
type hostNetwork struct {
	transport  Transport
	ownTCP     bool // the transport is not WithTransport's
	peers      peers.Book
	handshakes peers.Handshakes
	pulses     *pulse.Sender
	receiver   *pulse.Receiver
	questions  []pulse.Question // scratch memory of answerLeaders

	strays      atomic.Uint64 // messages for groups that are not open here
	frames      atomic.Uint64 // of forwarded commands, so far
	readNumbers atomic.Uint64 // of questions about reads, so far, in all groups (read.go)
}

// shutdown is the end of a host. All waiting clients are answered before it begins, because a client must not
// hang when a disk does. The parts that may be in the middle of work are asked to stop. When all have
// stopped, and so nothing can write to the log any more, the log is closed.
//
// A disk or a state machine may hang forever, and no call can end that. So each caller of Close waits only as
// long as its context allows. A part that hangs is left behind and keeps the directory locked; if it ever
// returns, the shutdown continues.
type shutdown struct {
	done chan struct{} // closed when everything has stopped

	mu      lock.Mutex
	running []*part // were asked to stop and have not
	errs    []error
}

// part is something that can be asked to stop, and returns when it has. Its doing says what it may be in
// the middle of. It is asked when a caller of Close gives up.
type part struct {
	doing func() string
	stop  func() error
}

func joined(stop func()) func() error {
	return func() error { stop(); return nil }
}

func fixed(text string) func() string { return func() string { return text } }

// hostShutdown is how a host ends.
type hostShutdown struct {
	shutdown
	closing atomic.Bool // Close was called
}

// hostBulk is what is long: snapshots and objects, made, installed and sent.
type hostBulk struct {
	snapshotLanes snapshots.Lanes
	transfers     transfers
	uninstalled   map[uint64]error // why received snapshots of groups could not be installed; it is not changed after Open
}

// lateOrders is what a group knows of the order to campaign that came last.
type lateOrders struct {
	orderAt atomic.Int64 // tick at which it came and waits since; 0: none waits
}

// quietLead is a leader's part in pulses. It belongs to the turn.
type quietLead struct {
	pulsed     bool  // its heartbeats are left to the pulses
	pulseAfter int64 // not before this tick
	activeAt   int64 // the tick through which answers were noted
}

// groupMachine is the way of a group to its state machine.
type groupMachine struct {
	apply      *apply.Queue
	divergence divergence.Comparison
	objects    *objects.Keeper // nil: there are none
	versions   versions.Group
	backlog    proposals.Backlog // of its leader
	decideBy   int64             // the tick at which this leader gives up to skip a command; 0: it skips none (skip.go)
	feed       *feed.Feed        // what it publishes; nil: it is no CommandMachine
}

// groupMembers says who counts in a group, how that began, and how it is to change.
type groupMembers struct {
	members.Group
	commits members.Commits
	changed signal        // the roster
	time    apply.LogTime // of rosters: those are in force before the commands between them are applied

	joinRefused      atomic.Pointer[string] // why this host is not made a member; nil: it is one, or nothing was said
	withoutAuthority atomic.Bool            // changed by the turn only
	authorityLostAt  int64                  // when it was opened without

	founding founding.Group
	plan     plans.Group
}

// memory is the budgets of a host.
type memory struct {
	waiting, proposed, received, writing budget.Budget
}

// hostMemory is what may wait, in bytes, and who waits.
type hostMemory struct {
	memory
	waiters proposals.Pool
	blocks  *arena.Pool // for small commands
}

// groupProposals are the commands of clients, from the door to the answer.
type groupProposals struct {
	*proposals.Queue
	drainRate    proposals.DrainRate
	spaceWaiters proposals.SpaceWaiters
	forwarders   proposals.Forwarders
	copies       proposals.HostCopies
	frames       proposals.SeenFrames
	batching     proposals.Batching // its own comments say who owns what
	alarm        sched.Alarm        // that ends a wait for a larger batch
	gathering    sched.Gathering
	overload     examination.Overload
	hasCommands  bool // its entries have headers (commands.go)

	rejectForwarded func(command []byte) error // that no other host may hand in; nil: there are none

	refused atomic.Uint64
	dropped atomic.Uint64
}

const maxSnapshotEvery = 10 * 365 * 24 * time.Hour

// groupSnapshots is the snapshots of one group, with what of them belongs to others.
type groupSnapshots struct {
	snapshots.Group
	found atomic.Pointer[[]byte] // the entry found, when founded is committed
}

// groupStorage is the log of a group, and what its core reads of it.
type groupStorage struct {
	storage.Storage
	log GroupLog
}

// entries returns how many entries the log has.
func (s *groupStorage) entries() uint64 {
	if first, last := s.log.FirstIndex(), s.log.LastIndex(); last >= first {
		return last - first + 1
	}
	return 0
}

func newStorage(log GroupLog) *groupStorage { return &groupStorage{storage.New(log), log} }
