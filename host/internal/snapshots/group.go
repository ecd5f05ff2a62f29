package snapshots

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/internal/repetition"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
)

// Settings are what the snapshots of a group are told when the group is opened.
type Settings struct {
	ID, Self            uint64
	FS                  vfs.FS
	Dir                 string
	Lanes               *Lanes
	Machine             statemachine.Snapshotter // nil: it takes and restores none
	Policy              Policy
	Transfers           *bulk.Transfers
	Class               *bulk.Class // of those of snapshots
	Installs            bool        // the pipeline can install what is received
	Heartbeat, Election int64       // intervals, in ticks
}

// Owner is the group as its snapshots see it. It is called with no lock held, except where noted.
type Owner interface {
	// IsLeaving reports whether the group is closed. The lanes' lock is held.
	IsLeaving() bool
	// Released is called when no lane works for a group that is leaving.
	Released()
	// Err returns why the group has stopped, or nil; Stopped is that for callers.
	Err() error
	Stopped() error
	// Wake makes the group have a turn, and Want makes that call Advance.
	Wake()
	Want()
	// Capture makes its apply lane call Group.Capture.
	Capture()
	// Position is that of the machine.
	Position() raftpb.EntryID
	// IsFounded reports whether there is something that a snapshot could hold.
	IsFounded() bool
	// MayCapture reports whether members may begin from a state after an entry.
	MayCapture(index uint64) bool
	// CaptureState is called where the machine is captured.
	CaptureState(index uint64) Captured
	// Manifest returns a manifest with the cluster, the group and the version of the machine.
	Manifest() snapshot.Manifest
	// Now reads the clock, and Ticks counts those that were not missed, as of the last beat.
	Now() time.Duration
	Ticks() int64
	Emit(event.Event)
	Recipient
	Info(text string, args ...any)
	Warn(text string, args ...any)
	Error(text string, args ...any)
}

// Caller is told how the snapshot has ended that it has asked for: p is there, or err.
type Caller func(p *Published, err error)

// Group is the snapshots of one group: the latest, the take that is under way, and what both mean for the
// log. The zero value belongs to a group that is not open.
type Group struct {
	Settings
	Seat    Seat
	Growth  Growth
	Section Section // nil: the group has none
	owner   Owner

	Received   atomic.Pointer[Published] // by a snapshot lane, until the core has taken it
	Installed  atomic.Pointer[Published] // that the core has taken last
	Installing atomic.Bool               // it was handed out, and the core has no answer yet

	latest  atomic.Pointer[Published]
	granted atomic.Bool   // the apply lane may capture
	due     atomic.Int64  // bytes of the log that are applied when the next snapshot is due
	compact atomic.Uint64 // the log may be compacted through here; 0: it was
	awaits  atomic.Uint64 // a take waits until the log is durable through here; 0: none does
	durable atomic.Uint64 // and it is through here

	rejects repetition.Gate // offers that this member can never use; the transfers' lock is held
	refused atomic.Pointer[RefusedOffer]

	taken, failed atomic.Uint64
	took          atomic.Int64 // nanoseconds: all that were taken, from capture to the end

	opening lock.Mutex                     // held while the disk opens the directory, by those who need it
	opened  atomic.Pointer[snapshot.Store] // nil until it is needed

	mu       lock.Mutex // never held while the disk works
	phase    phase
	take     *take // from its capture to its end
	callers  []Caller
	failures int   // in a row
	lastErr  error // of the last take; nil: it was published
	errSince int64 // tick of the first failure in a row
	errAt    int64 // and of the last
	gate     repetition.Gate
	// tooLittle is how many bytes the disk had free before a take that found no space.
	tooLittle int64
	closed    bool
}

// phase is how far a take is, if there is one.
type phase int

const (
	idle    phase = iota
	wanted        // it waits for a grant, and for the apply lane
	writing       // it was captured
)

// Init makes them those of a group that has none yet.
func (s *Group) Init(of Owner, settings Settings) {
	s.owner, s.Settings = of, settings
	s.Seat.Init((*seated)(s))
	s.due.Store(math.MaxInt64)
	s.Growth.Space(s.Policy.Interval(nil))
}

// seated implements Tenant.
type seated Group

func (s *seated) ID() uint64      { return s.Settings.ID }
func (s *seated) IsLeaving() bool { return s.owner.IsLeaving() }
func (s *seated) Released()       { s.owner.Released() }
func (s *seated) Wake()           { s.owner.Wake() }
func (s *seated) Inspect()        { (*Group)(s).inspect() }

func (s *seated) Granted() {
	s.granted.Store(true)
	s.owner.Capture()
}

// Latest returns the newest snapshot that was published and read back, or nil.
func (s *Group) Latest() *Published { return s.latest.Load() }

// Begin makes a snapshot the latest when the group is opened from it. The log begins at first, and its
// entries count perEntry bytes each.
func (s *Group) Begin(p *Published, first uint64, perEntry int64) {
	s.latest.Store(p)
	s.Growth.Space(s.Policy.Interval(p))
	s.Growth.Guess(first-1, p.ID.Index, perEntry)
}

// Publish makes a snapshot the latest, unless there is a later one. It was read back, and the machine has
// its state, or a later one. The log may be compacted behind it, and the next one is due when the log has
// grown.
func (s *Group) Publish(p *Published) {
	s.mu.Lock()
	if was := s.latest.Load(); was != nil && was.ID.Index >= p.ID.Index {
		s.mu.Unlock()
		return
	}
	s.latest.Store(p)
	through := s.Growth.Compactable(p.ID.Index, s.Policy.Kept(p))
	s.mu.Unlock()
	if through > 0 {
		for was := s.compact.Load(); was < through && !s.compact.CompareAndSwap(was, through); was = s.compact.Load() {
		}
		s.owner.Want()
		s.owner.Wake()
	}
}

// Schedule sets when the next snapshot is due, counted from the bytes of the log at the last one.
func (s *Group) Schedule(from int64) {
	if s.Machine == nil || s.Policy.Disabled {
		return
	}
	s.due.Store(from + s.Policy.Interval(s.Latest()))
	if every := s.Policy.Every; every > 0 {
		s.Lanes.InspectLater(&s.Seat, every)
	}
}

// Applied counts the bytes of the entries through last that the machine has applied, and asks for a snapshot
// when one is due. It is called after the machine, where that is called.
func (s *Group) Applied(last uint64, bytes int64) {
	if s.Machine == nil {
		return
	}
	if s.Growth.Record(last, bytes) >= s.due.Load() {
		s.due.Store(math.MaxInt64) // until this one ends
		s.Want()
	}
}

// Ask makes the next snapshot tell a caller.
func (s *Group) Ask(c Caller) {
	s.mu.Lock()
	s.callers = append(s.callers, c)
	s.mu.Unlock()
	s.Want()
}

// Want asks for a snapshot soon. It does nothing if one is wanted or under way already, or if the machine
// takes none. It may be called from anywhere.
func (s *Group) Want() {
	s.mu.Lock()
	wants := s.Machine != nil && !s.closed && s.phase == idle
	if wants {
		s.phase = wanted
	}
	s.mu.Unlock()
	if wants {
		s.Lanes.Admit(&s.Seat)
	}
}

// inspect is called when the time of InspectLater has come: after a failure, after a take that was put off,
// or because of Policy.Every. What was put off for an install is not wanted any more when that has ended.
func (s *Group) inspect() {
	s.mu.Lock()
	wanted := s.failures > 0 || len(s.callers) > 0
	s.mu.Unlock()
	switch {
	case wanted, s.owner.Position().Index > s.Latest().Index() && (s.Policy.Every > 0 || s.Installing.Load()):
		s.Want()
	case s.Policy.Every > 0:
		s.Lanes.InspectLater(&s.Seat, s.Policy.Every)
	default:
		s.Schedule(s.Growth.Applied())
	}
}

// postpone makes what was wanted wait for a while.
func (s *Group) postpone() {
	s.mu.Lock()
	s.phase = idle
	s.mu.Unlock()
	s.Lanes.InspectLater(&s.Seat, s.Heartbeat)
}

// endWithout ends what was wanted without a capture.
func (s *Group) endWithout(p *Published, err error) {
	s.mu.Lock()
	callers := s.callers
	s.callers, s.phase = nil, idle
	if err == nil {
		s.failures, s.lastErr = 0, nil // a snapshot of this state was received
	}
	again := s.failures > 0 && !s.Policy.Disabled
	wait := backoff(s.Election, max(s.failures, 1), s.lastErr)
	s.mu.Unlock()
	if s.Schedule(s.Growth.Applied()); again {
		s.Lanes.InspectLater(&s.Seat, wait) // a group that applies nothing more must try again, too
	}
	answer(callers, p, err)
}

// Refuse ends what is wanted before its capture: the state of the machine is suspect.
func (s *Group) Refuse(err error) {
	if s.granted.Swap(false) {
		s.Lanes.End(false)
		s.endWithout(nil, err)
	}
}

func answer(callers []Caller, p *Published, err error) {
	for _, told := range callers {
		told(p, err)
	}
}

// next takes another snapshot for those who asked while one was being taken.
func (s *Group) next() {
	s.mu.Lock()
	waits := len(s.callers) > 0
	s.mu.Unlock()
	if waits {
		s.Want()
	}
}

// Work is what a turn must do: a take awaits that the log is durable, or the log may be compacted through an
// index; 0: nothing.
func (s *Group) Work() (awaits, compact uint64) { return s.awaits.Load(), s.compact.Load() }

// Durable says through which index the log is durable. A turn calls it if a take awaits that.
func (s *Group) Durable(through uint64) {
	awaits := s.awaits.Load()
	if awaits == 0 || through < awaits {
		return
	}
	s.durable.Store(awaits)
	s.awaits.CompareAndSwap(awaits, 0)
	s.mu.Lock()
	t := s.take
	s.mu.Unlock()
	if t != nil {
		s.Lanes.Enqueue(&t.work)
	}
}

// Compacted says that the log is compacted as far as Work has said.
func (s *Group) Compacted(through uint64) { s.compact.CompareAndSwap(through, 0) }

// Stop makes what is under way end early: the group ends. The callers see that by themselves.
func (s *Group) Stop() {
	s.mu.Lock()
	t := s.take
	s.closed = true
	s.mu.Unlock()
	if t != nil {
		t.cancel()
	}
}

// Close releases what the group's snapshots hold, when no lane works for the group any more.
func (s *Group) Close() {
	if s.Stop(); s.owner == nil {
		return
	}
	s.mu.Lock()
	t, callers := s.take, s.callers
	s.callers = nil
	s.mu.Unlock()
	answer(callers, nil, s.owner.Stopped())
	if s.granted.Swap(false) {
		s.Lanes.End(false)
	}
	if t != nil {
		t.fail(s.owner.Err())
	}
}

// Failures says how many takes in a row have failed, at which ticks the first and the last of them did, and
// with which error.
func (s *Group) Failures() (n int, first, last int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures, s.errSince, s.errAt, s.lastErr
}

// Counts are those of a group's takes.
type Counts struct {
	Taken, Failed uint64
	Took          time.Duration // all that were taken, from capture to the end
	FailedInARow  int
}

// Counts returns the counts.
func (s *Group) Counts() Counts {
	n, _, _, _ := s.Failures()
	return Counts{Taken: s.taken.Load(), Failed: s.failed.Load(), Took: time.Duration(s.took.Load()), FailedInARow: n}
}

// The time between two tries is an election timeout, doubled at most so often. A try costs a whole state, so
// an error of the machine or of the disk is tried more and more seldom. What a machine lacks comes back, and
// the cause must end soon after that. Without a descriptor a try costs nothing. Without space it costs
// nothing, either, except for a few (rejectSpace).
const (
	maxBackoff      = 8
	maxFullBackoff  = 3
	maxShortBackoff = 1
)

// backoff returns how many ticks after failures in a row, of which the last had an error, the next try comes.
func backoff(election int64, failures int, err error) int64 {
	most := maxBackoff
	switch {
	case vfs.IsShort(err):
		most = maxShortBackoff
	case identity.IsFull(err):
		most = maxFullBackoff
	}
	return election << min(failures-1, most)
}

// fails counts a failure, and returns after how many ticks the next try comes, and whether it should be
// logged, as the first or a repeated one.
func (s *Group) fails(err error, free int64) (wait int64, repeats uint64, said bool) {
	now := s.owner.Ticks()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures++; s.failures == 1 {
		s.errSince = now
	}
	s.lastErr = err
	if s.errAt = now; identity.IsFull(err) && free > 0 {
		s.tooLittle = free
	}
	repeats, said = s.gate.Admit(s.owner.Now())
	return backoff(s.Election, s.failures, err), repeats, said
}
