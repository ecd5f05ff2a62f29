package apply

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/containment"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/storage"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/arena"
	"github.com/millrace/millrace/internal/goroutine"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
)

// Queue is what one group has for the lanes: committed entries for its state machine, most of them as
// ranges of the log. The core bounds how much can wait (MaxCommittedSizePerReady).
type Queue struct {
	workqueue.Queue
	Settings
	Seat  Seat // at the lanes
	Skips Skips
	Time  LogTime

	member  Member
	calls   atomic.Uint64
	entries atomic.Uint64
	applied atomic.Uint64 // the last entry
	through atomic.Uint64 // the last entry that the machine has, which may be in the middle of a message,
	term    atomic.Uint64 // and its term
	trying  atomic.Uint64 // the last entry with which the machine was called, or is about to be (hold.go)
	kept    atomic.Uint64 // through here a machine on disk has the log, also if a later call has halted it
	owed    atomic.Uint64 // through here the core was told that it is applied, by a halted machine
	// unanswered is the last entry of what is handed out, is not in the log, and waits for a halted machine.
	unanswered atomic.Uint64
	drained    atomic.Pointer[func()]           // to be called when everything is applied
	waiting    atomic.Pointer[WaitingForObject] // the entry that must wait (wait.go); nil: none does
	lost       atomic.Uint64                    // the entry that waits for what no member has; 0: none does
	passing    atomic.Pointer[Passage]
	calling    lock.Mutex     // held while the machine is called in a turn, or a function of StartBetween
	halting    halting        // halt.go
	observing  observing      // members.go
	versions   versions       // version.go
	inside     atomic.Uintptr // the goroutine that works on it; 0: none does, or it is not known which

	// Owned by the lane that works on it.
	work      []raftpb.Message // taken, and not finished
	workBytes int64
	answers   []raftpb.Message // scratch: of what the round has finished
	failed    bool
	short     bool // what it was to read could not be opened: Retry

	// Owned by the lane or the turn that calls the machine.
	passed []raftpb.Position // commands that it was not given because the group skips them (skip.go), ascending
	// unpacked is scratch: the commands of the entries that are being applied.
	unpacked []statemachine.Entry

	// Owned by the lane.
	loan       *arena.Loan    // of the log, while the machine is called; nil: the machine may keep what it is given
	lends      lender         // the log, if it is one
	borrowed   []raftpb.Entry // scratch: what was read from it
	note       noteText       // note.go
	rebuilt    rebuildPurpose // for which the machine was made again last, or could not be (rebuild.go)
	noteFailed bool           // it is not on the disk
	rebuilding bool
	inTurn     bool   // the pipeline applies in the turn, where nothing can wait
	rebuildTo  uint64 // what it must have before it works again, at least
}

// Settings are what the queue of a group is told when the group is opened.
type Settings struct {
	Group, Self uint64
	Machine     statemachine.Machine
	Hook        Hook // nil: the machine gets each command as it is
	Lanes       *Lanes
	Log         Log
	FS          vfs.FS
	Dir         string       // of the group, for the note
	InMemory    bool         // the log is, so nothing is noted
	Blocks      *arena.Pool  // for what the machine borrows
	Ticks       func() int64 // that were not missed, as of the last beat
	Logger      *slog.Logger
	// Retry makes f run later, because a file cannot be opened for now.
	Retry func(f func(), err error)
}

// Log is the log of the group.
type Log interface {
	FirstIndex() uint64
	LastIndex() uint64
	Term(index uint64) (uint64, error)
	// Recent returns entries that are in memory, and Entries all.
	Recent(lo, hi, maxBytes uint64) (entries []raftpb.Entry, ok bool)
	Entries(lo, hi, maxBytes uint64) ([]raftpb.Entry, error)
}

// lender is a Log that lends entries: Recent, whose data may be valid only as long as the loan. Without a
// loan, data is what Recent returns, and only the array of entries is the caller's.
type lender interface {
	Borrow(lo, hi, maxBytes uint64, loan *arena.Loan, into []raftpb.Entry) (entries []raftpb.Entry, ok bool)
}

// Member is what a round asks of its group. Lanes call it, and turns that call the machine.
type Member interface {
	// Leads reports whether the group leads here, and Err why it has stopped, or nil.
	Leads() bool
	Err() error
	// Released says that the lanes do nothing for the group any more.
	Released()
	// Fail stops the group.
	Fail(error)
	// Between runs what must run while the machine is not called: it locks calling meanwhile.
	Between(calling sync.Locker)
	// Counted says that the machine has got entries, and Done which answers the core gets for what is applied
	// through an entry; 0: the machine is halted. The lane uses the array of answers again.
	Counted(entries []raftpb.Entry)
	Done(through uint64, answers []raftpb.Message)
	// Suspend says that the machine has halted, and Resume that it works again. Want asks the next turn to
	// look at it (Untold), and Wake for a turn. Report tells those who write about it, once for a halt.
	Suspend(*outcome.HaltedError)
	Want()
	Wake()
	Resume()
	Report(*outcome.HaltedError)
	// VersionChanged says that commands have another version from now on.
	VersionChanged()
	// SkipNoted says that the next start knows of more commands that are skipped.
	SkipNoted()
	// Snapshot returns how the machine is restored from the latest snapshot, and its name; nil: it cannot
	// be now.
	Snapshot() (restore func() error, name string)
}

// New returns the queue of a group.
func New(of Member, s Settings) *Queue {
	q := &Queue{Settings: s, member: of}
	q.lends, _ = s.Log.(lender)
	q.observe()
	if q.borrows() {
		q.loan = arena.NewLoan(s.Blocks)
	}
	if q.Seat.Init(q); s.Lanes != nil {
		q.Lock = &s.Lanes.mu
	}
	return q
}

// borrows reports whether the machine keeps nothing of a command, and the log lends.
func (q *Queue) borrows() bool {
	machine := any(q.Machine)
	if m, is := q.Machine.(*Commands); is {
		machine = m.Machine
	}
	_, lends := q.Log.(lender)
	borrows := false
	err := containment.Call("BorrowsData of the state machine, or DecodeCopies of its codec,", func() error {
		borrows = lends && statemachine.Borrows(machine)
		return nil
	}, nil)
	if err != nil {
		q.Logger.Error("a machine does not say whether it keeps commands, so it counts as one that does", "group", q.Group, "host", q.Self, "err", err)
	}
	return borrows
}

// ID implements Owner.
func (q *Queue) ID() uint64 { return q.Group }

// Leads implements Owner.
func (q *Queue) Leads() bool { return q.member.Leads() }

// Wants implements Owner.
func (q *Queue) Wants(more bool) bool {
	return !q.failed && (more || !q.Empty() && q.WaitsAt() == 0 && !q.short && q.Halted() == nil)
}

// Released implements Owner.
func (q *Queue) Released() { q.member.Released() }

// Wake makes a lane come to the queue.
func (q *Queue) Wake() { q.Lanes.Enqueue(&q.Seat) }

// Leave makes the lanes release the group.
func (q *Queue) Leave() { q.Lanes.Leave(&q.Seat) }

// Hand hands committed entries to the lanes.
func (q *Queue) Hand(m raftpb.Message) {
	var lane *Lane
	leads := q.Leads()
	q.EnqueueAnd(m, func() { lane = q.Lanes.line(&q.Seat, leads) })
	if lane != nil {
		lane.task.Wake()
	}
}

func (q *Queue) retry(err error) { q.Retry(q.Wake, err) }

// retried says that entries could not be read for lack of a descriptor, or a note not written for lack of a
// descriptor or of space. It is tried again.
type retried struct{ error }

// apply passes entries to the state machine, except Raft's own, and those that the group skips. If the
// machine fails, the error is a HaltedError: a panic of the machine becomes one, and so does the end of the
// goroutine, for which there is no caller. A *WaitingForObject says at which entry it has stopped.
func (q *Queue) apply(entries []raftpb.Entry) (err error) {
	returned, with := false, []statemachine.Entry(nil) // with is not empty when something is called
	outside := q.enter()
	defer func() {
		p := recover()
		q.inside.Store(outside)
		switch {
		case p == nil && !returned:
			q.halt(q.haltAt(with, q.callee()+" ended its goroutine while applying", errors.New("runtime.Goexit, as t.Fatal does")))
		case p != nil:
			err = q.haltAt(with, q.callee()+" panicked while applying", &containment.Panic{Text: fmt.Sprint(p), Stack: debug.Stack()})
		}
		q.observing.telling = false
		clear(q.unpacked)
		if q.unpacked = q.unpacked[:0]; cap(q.unpacked) > maxUnpacked {
			q.unpacked = nil
		}
	}()
	for rest := entries; len(rest) > 0; {
		if !rest[0].HoldsCommands() {
			with = ownEntry(&rest[0])
			if err := q.applyOwn(&rest[0]); err != nil {
				if returned = true; isBefore(err) {
					q.countApplied(entries[:len(entries)-len(rest)])
				}
				return err
			}
			rest = rest[1:]
			continue
		}
		if halted := q.rejectVersion(q.At(), rest[0].Index); halted != nil {
			returned = true
			return halted
		}
		n, bad := q.unpack(rest)
		if err := q.prepareSkips(q.unpacked); err != nil {
			if returned = true; errors.As(err, new(retried)) {
				q.countApplied(entries[:len(entries)-len(rest)])
			}
			return err
		}
		for commands := q.unpacked; len(commands) > 0; {
			if !q.isOnDisk() && q.Skips.Of(commands[0].Position()) > 0 {
				with = commands[:1:1]
				q.skip(&commands[0])
				commands = commands[1:]
				continue
			}
			free, held := q.free(commands)
			if held != nil {
				returned = true
				q.countApplied(entries[:held.First-entries[0].Index])
				return held
			}
			m := q.together(commands[:free])
			with = q.notSkipped(commands[:m:m])
			if err := q.Machine.Apply(commands[:m:m]); err != nil {
				returned = true
				if at, ok := err.(*WaitingForObject); ok {
					q.countApplied(entries[:at.Index-entries[0].Index])
					return at
				}
				return q.haltAt(with, "state machine failed to apply", err)
			}
			q.calls.Add(1)
			q.entries.Add(uint64(m))
			if q.isOnDisk() {
				storeMax(&q.kept, commands[m-1].Index)
			}
			commands = commands[m:]
		}
		if rest = rest[n:]; bad != nil {
			returned = true
			return q.haltAt(ownEntry(&rest[0]), "this program cannot read", bad)
		}
	}
	returned = true
	q.countApplied(entries)
	return nil
}

// enter says that this goroutine works on the queue, and returns what inside must be afterwards.
func (q *Queue) enter() (outside uintptr) {
	outside = q.inside.Load()
	q.inside.Store(goroutine.ID())
	return outside
}

// IsInside reports whether the goroutine that asks works on the queue: it is in a function of the user that
// the lane, or the turn, has called.
func (q *Queue) IsInside() bool {
	id := q.inside.Load()
	return id != 0 && id == goroutine.ID()
}

// maxUnpacked bounds the scratch that a queue keeps, in commands.
const maxUnpacked = 4 << 10

// ownEntry returns an entry as a command, for the error about it.
func ownEntry(e *raftpb.Entry) []statemachine.Entry {
	return []statemachine.Entry{{Index: e.Index, Term: e.Term, Data: e.Data}}
}

// unpack makes the commands of the first entries those of the scratch, and returns how many entries that are.
// It stops before an entry that holds no commands, or that cannot be read.
func (q *Queue) unpack(rest []raftpb.Entry) (n int, bad error) {
	q.unpacked = q.unpacked[:0]
	for ; n < len(rest) && rest[n].HoldsCommands(); n++ {
		e := &rest[n]
		if e.Type == raftpb.EntryNormal {
			q.unpacked = append(q.unpacked, statemachine.Entry{Index: e.Index, Term: e.Term, Data: e.Data})
			continue
		}
		b, err := raftpb.ReadBatch(e.Data)
		if err != nil {
			return n, err
		}
		for pos := uint32(0); b.Len() > 0; pos++ {
			command := b.Next()
			q.unpacked = append(q.unpacked, statemachine.Entry{Index: e.Index, Term: e.Term, Pos: pos, More: b.Len() > 0, Data: command})
		}
	}
	return n, nil
}

// together returns how many of the first commands are one call of the machine, at least one. A machine that
// keeps its state on disk gets all commands with one index in one call: Commands passes those by that the
// group skips.
func (q *Queue) together(commands []statemachine.Entry) (n int) {
	onDisk := q.isOnDisk()
	for n < len(commands) && (n == 0 || onDisk || q.Skips.Of(commands[n].Position()) == 0) {
		if c := &commands[n]; n > 0 && (q.isSuspect(c.Index) || q.isSuspect(commands[n-1].Index)) && (c.Pos == 0 || !onDisk) {
			return n
		}
		n++
	}
	return n
}

// notSkipped returns commands without those at both ends that the group skips, or all if it skips them all.
func (q *Queue) notSkipped(commands []statemachine.Entry) []statemachine.Entry {
	isGiven := func(e statemachine.Entry) bool { return q.Skips.Of(e.Position()) == 0 }
	first := slices.IndexFunc(commands, isGiven)
	if first < 0 || !q.Skips.Any() {
		return commands
	}
	last := len(commands) - 1
	for !isGiven(commands[last]) {
		last--
	}
	return commands[first : last+1 : last+1]
}

// isOnDisk reports whether the machine keeps its state on disk, so that an index alone says what it has.
func (q *Queue) isOnDisk() bool {
	m, ok := q.Machine.(*Commands)
	return ok && m.Options.Applied != nil
}

// applyOwn does what an entry means for the machine that the machine is not given.
func (q *Queue) applyOwn(e *raftpb.Entry) error {
	if entry.IsSkip(e.Type, e.Data) {
		if halted := q.checkSkip(e); halted != nil {
			return halted
		}
	}
	if entry.IsVersion(e.Type, e.Data) {
		if halted := q.beginVersion(e); halted != nil {
			return halted
		}
	}
	return q.takeMembers(e, q.At().Since == e.Index)
}

// isBefore reports whether an error about an entry says that nothing of it was done.
func isBefore(err error) bool {
	halted := (*outcome.HaltedError)(nil)
	return errors.As(err, new(retried)) || errors.As(err, &halted) && halted.Held > 0
}

// countApplied notes that entries are applied.
func (q *Queue) countApplied(entries []raftpb.Entry) {
	if len(entries) > 0 {
		if q.setPosition(entries[len(entries)-1].ID()); q.rebuilding {
			return // it was counted
		}
		q.member.Counted(entries)
		if q.Hook != nil {
			q.Hook.Applied()
		}
	}
}

// ApplyNow applies a message in a turn, if its entries are in memory and nothing waits before them. It
// reports whether it did. Then the message is done, or what is left of it is with the lanes.
func (q *Queue) ApplyNow(m *raftpb.Message) (done bool) {
	if q.Held() > 0 || q.Skips.Any() || q.Halted() != nil || !q.calling.TryLock() {
		return false
	}
	defer q.calling.Unlock()
	entries := m.Entries
	if len(entries) == 0 {
		recent, ok := q.Log.Recent(m.Index+1, m.Commit+1, storage.MaxReadBytes)
		if !ok || recent[len(recent)-1].Index < m.Commit {
			return false
		}
		entries = recent
	}
	if err := q.apply(entries); err != nil {
		return q.haltNow(m, err)
	}
	last := entries[len(entries)-1].Index
	q.applied.Store(last)
	q.member.Done(last, m.Responses)
	return true
}

// haltNow halts a machine that has failed in the turn. What it has not applied is left to the lane.
func (q *Queue) haltNow(m *raftpb.Message, err error) (done bool) {
	halted := (*outcome.HaltedError)(nil)
	if !errors.As(err, &halted) {
		q.member.Fail(err)
		return true
	}
	q.Enqueue(*m)
	q.halt(halted)
	return true
}

// ApplyAll applies entries in a turn, for the pipelines that do so.
func (q *Queue) ApplyAll(entries []raftpb.Entry) error {
	q.calling.Lock()
	defer q.calling.Unlock()
	q.inTurn = true
	if err := q.apply(entries); err != nil {
		return err
	}
	q.applied.Store(entries[len(entries)-1].Index)
	return nil
}

// Restored makes the cursors those of a snapshot, whose state the machine has.
func (q *Queue) Restored(id raftpb.EntryID, passed []raftpb.Position, at entry.At, roster *membership.Roster) {
	q.passed = passed
	q.observing.members.From(roster)
	had := q.through.Load()
	q.setPosition(id)
	q.restoreVersion(at, id.Index, had)
	storeMax(&q.applied, id.Index)
}

// Passed returns the commands that the machine was not given. It is called where the machine may be.
func (q *Queue) Passed() []raftpb.Position { return slices.Clone(q.passed) }

// Applied returns the last entry that was applied.
func (q *Queue) Applied() uint64 { return q.applied.Load() }

// Progress changes whenever the state machine has completed something.
func (q *Queue) Progress() uint64 { return q.calls.Load() + q.applied.Load() }

// Calls returns how often the machine was called, and with how many entries.
func (q *Queue) Calls() (calls, entries uint64) { return q.calls.Load(), q.entries.Load() }

// Messages counts those that wait, in the queue or on the lane. It is for tests.
func (q *Queue) Messages() int { return len(q.work) + len(q.Waiting()) }

// StartDrained makes f run on a lane when everything that was queued before is applied, and the machine is
// not being called. It never blocks. There is one such function at a time.
func (q *Queue) StartDrained(f func()) {
	q.drained.Store(&f)
	q.Wake()
}

// runDrained runs it. A lane calls it, with nothing left to apply.
func (q *Queue) runDrained() {
	f := q.drained.Swap(nil)
	if f == nil {
		return
	}
	q.calling.Lock() // a machine that never blocks is called in turns
	defer q.calling.Unlock()
	(*f)()
}

// callee names the function of the user that the machine is in the middle of.
func (q *Queue) callee() string {
	if q.observing.telling {
		return "MembersChanged of the state machine"
	}
	if m, is := q.Machine.(*Commands); is {
		return m.callee()
	}
	return "Apply of the state machine"
}

// storeMax sets a to v unless it is higher.
func storeMax(a *atomic.Uint64, v uint64) {
	for was := a.Load(); was < v && !a.CompareAndSwap(was, v); was = a.Load() {
	}
}

// setPosition notes what the machine has applied. Position returns it: exactly, for a caller that
// may call the machine.
func (q *Queue) setPosition(id raftpb.EntryID) {
	q.through.Store(id.Index)
	q.term.Store(id.Term)
}

func (q *Queue) Position() raftpb.EntryID {
	return raftpb.EntryID{Index: q.through.Load(), Term: q.term.Load()}
}
