package apply

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/millrace/millrace/host/internal/containment"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/internal/feed"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/raft/raftpb"
)

// Commands is the state machine of a group whose entries have headers. It turns entries into commands,
// and suppresses those that were applied before: on all members alike, because it looks at nothing but the
// log.
//
// Rejected: to suppress duplicates when they are proposed. A leader does not know what an earlier one has
// committed until it has applied it, and two copies may be on the way at once.
type Commands struct {
	Machine statemachine.CommandMachine
	Options statemachine.CommandOptions
	Opening

	queue *Queue // nil: no group has it yet
	table *session.Table
	sums  divergence.Sums

	suppressed atomic.Uint64 // commands that were not applied, of all verdicts
	evicted    atomic.Uint64 // sessions that were forgotten because the table was full
	sessions   atomic.Int64  // in the table

	inDigest bool // the user's Digest is being called; owned by the lane, or the turn

	// Owned by the lane; scratch.
	batch  []statemachine.Command
	found  int    // the callers of this many of batch are known
	unkept []int  // for each command among batch that is skipped, and has a mark: how many are before it
	held   uint64 // the machine holds the commands through this one, from before this life
	last   uint64 // the last command that it was given, or that came with a snapshot
	due    bool   // a checkpoint, at the end of the entry
}

// Opening is the group that the commands are of.
type Opening struct {
	Dir      string // of the host, for people
	Volatile bool
	Now      func() time.Duration
	Callers  Callers
	// Feed gets what the machine publishes.
	Feed *feed.Feed
	// OpenObjects opens the objects of the group, if it has them.
	OpenObjects func() error
	// Compared begins to compare members, and Checkpoint says what the machine is like after a command.
	Compared   func(divergence.Machine)
	Checkpoint func(divergence.Checkpoint)
}

// Callers are the calls of this host that wait for commands. The lane, or the turn that calls the machine,
// calls it.
type Callers interface {
	// FindCallers gives its Caller to each command that waits for the machine. They are in the order of the
	// log.
	FindCallers([]statemachine.Command)
	// Applied says that the machine has given the results to all callers of a batch.
	Applied([]statemachine.Command)
	// The others end the calls for an entry that the machine does not get, or for its mark. AnswerDuplicate:
	// the command was applied before. ExpireCall: its session may be forgotten. RefuseCall: the table has
	// refused it. RefuseApplied: the command is refused, also to a call that was told its commit.
	// AnswerApplied: it is done.
	AnswerDuplicate(at raftpb.Position, term uint64, m session.Mark, r outcome.Receipt, result []byte, kept bool)
	ExpireCall(at raftpb.Position, term uint64, m session.Mark, why error)
	RefuseCall(at raftpb.Position, term uint64, m session.Mark, why error)
	RefuseApplied(at raftpb.Position, term uint64, m session.Mark, why error)
	AnswerApplied(at raftpb.Position, term uint64, m session.Mark)
}

// Open prepares the machine for a group, whose log is there and not yet applied.
func (s *Commands) Open(q *Queue, of Opening) error {
	o := &s.Options
	switch {
	case s.queue != nil:
		return fmt.Errorf("millrace: group %d cannot have the state machine of an earlier OpenGroup; make another one with Commands", q.Group)
	case s.Machine == nil:
		return fmt.Errorf("millrace: Commands needs a CommandMachine for group %d", q.Group)
	case len(o.Version) > divergence.MaxVersion:
		return fmt.Errorf("millrace: CommandOptions.Version of group %d has %d bytes, want at most %d", q.Group, len(o.Version), divergence.MaxVersion)
	}
	if err := o.Versions.Validate(); err != nil {
		return fmt.Errorf("%w (CommandOptions.Versions of group %d)", err, q.Group)
	}
	if err := o.Sessions.Validate(); err != nil {
		return fmt.Errorf("%w (CommandOptions.Sessions of group %d)", err, q.Group)
	}
	if o.Applied != nil {
		if err := s.readApplied(q, of); err != nil {
			return err
		}
	}
	if o.Objects != nil {
		if o.Applied != nil {
			return fmt.Errorf("millrace: the state machine of group %d keeps its state on disk (CommandOptions.Applied), so it cannot have objects; a command decides which objects are kept when it is applied, and this machine gets no command twice", q.Group)
		}
		if err := of.OpenObjects(); err != nil {
			return err
		}
	}
	s.queue, s.Opening, s.table = q, of, session.New(o.Sessions)
	if s.held > 0 {
		s.Feed.Forget(s.held) // it does not publish that again
	}
	m := divergence.Machine{Sessions: o.Sessions, Form: resultForm(o), Version: o.Version, Stops: o.StopDiverged}
	if o.Digest != nil {
		m.Digest = s.digest
	}
	s.sums = divergence.NewSums(&m, s.held == 0)
	of.Compared(m)
	return nil
}

// readApplied learns which commands the machine holds. Each of them is in the log: the machine got it after
// the log had made it durable. If it is not, one of the two was wiped or restored.
func (s *Commands) readApplied(q *Queue, of Opening) error {
	held, err := s.appliedHere()
	switch last := q.Log.LastIndex(); {
	case err != nil:
		return fmt.Errorf("millrace: the state machine of group %d does not say what it has applied: %w", q.Group, err)
	case of.Volatile:
		return fmt.Errorf("millrace: Volatile of group %d is set, and its state machine keeps its state on disk (CommandOptions.Applied); a power cut could leave there what the log does not have", q.Group)
	case held > last:
		return fmt.Errorf("millrace: the state machine of group %d has applied entry %d, and the log in %s ends at entry %d: one of the two was restored or replaced; restore both from the same moment, or empty the state machine, so that it gets all commands again", q.Group, held, of.Dir, last)
	}
	s.held = held
	q.kept.Store(held)
	return nil
}

// Apply implements StateMachine. It gives the machine one batch for all entries, or two if it must look at
// the state in between (sums). A machine on disk also gets one batch if the group skips commands of an entry.
func (s *Commands) Apply(entries []statemachine.Entry) error {
	defer s.clear()
	defer s.countSessions()
	version := s.queue.At().Version // an entry that begins another one is between two calls
	for i := range entries {
		e := &entries[i]
		if s.Options.Applied != nil && s.queue.Skips.Of(e.Position()) > 0 {
			isDue := s.passBy(e)
			s.queue.passBy(e.Position())
			if err := s.end(e, isDue); err != nil {
				return err
			}
			continue
		}
		h, command, err := session.Decode(e.Data)
		if err != nil {
			s.leaveEntry(e)
			if before := s.Flush(); before != nil {
				return before
			}
			return &outcome.CommandError{Index: e.Index, Pos: e.Pos, Err: fmt.Errorf("entry %v of group %d: %w", e.Position(), s.queue.Group, err)}
		}
		var c object.Command
		var wrong error
		if hook := s.queue.Hook; hook != nil {
			if c, wrong, err = hook.Before(e, h, command); err != nil {
				return err
			}
			command = c.Data
		}
		if h.HasStamp {
			s.queue.Time.Observe(s.table.Advance(h.Stamp), s.Now())
		}
		verdict := session.Fresh
		if h.HasMark {
			var first session.Record
			verdict, first = s.table.Apply(h.Mark, e.Position(), e.Term)
			if verdict != session.Fresh {
				if err := s.suppress(e, h.Mark, verdict, first); err != nil {
					return err
				}
			}
		}
		switch {
		case verdict != session.Fresh:
		case s.queue.Hook != nil && !s.queue.Hook.Change(e, h, c, wrong):
		case e.Index > s.held:
			s.batch = append(s.batch, statemachine.Command{Index: e.Index, Pos: e.Pos, Term: e.Term, Time: s.table.Now(), Version: version, Data: command, Objects: c.Names, Session: h.Mark.ID, Number: h.Mark.Number})
		case h.HasMark:
			s.table.Keep(nil) // the machine holds it, and its result is not known any more
		}
		if err := s.end(e, s.isDue(e, verdict)); err != nil {
			return err
		}
	}
	return s.Flush()
}

// end takes the checkpoint that is due after a command, if one is.
func (s *Commands) end(e *statemachine.Entry, isDue bool) error {
	if !isDue {
		return nil
	}
	if n := len(s.batch); n > 0 && s.batch[n-1].Index == e.Index {
		s.batch[n-1].EndsBatch = true
	}
	if err := s.Flush(); err != nil {
		return err
	}
	s.checkpoint(e.Index, e.Index >= s.held)
	return nil
}

// leaveEntry takes the commands before one of the same entry, which halts the machine, out of the batch of a
// machine on disk: it gets the whole entry, or nothing of it.
func (s *Commands) leaveEntry(e *statemachine.Entry) {
	n := len(s.batch)
	for s.Options.Applied != nil && n > 0 && s.batch[n-1].Index == e.Index {
		n--
	}
	clear(s.batch[n:])
	s.batch, s.found = s.batch[:n], min(s.found, n)
}

// isDue sums a command up, and reports whether a checkpoint is due after it. The commands of one entry have
// none between them: a checkpoint has the index of an entry.
func (s *Commands) isDue(e *statemachine.Entry, v session.Verdict) bool {
	s.due = s.sums.Command(e.Data, v, s.table.Now()) || s.due
	due := s.due && !e.More
	s.due = s.due && !due
	return due
}

// countSessions notes for Metrics what is in the table.
func (s *Commands) countSessions() {
	n, _ := s.table.Sessions()
	s.sessions.Store(int64(n))
	s.evicted.Add(s.table.TakeEvicted())
}

// suppress does not apply a command, and tells the call that waits for it.
func (s *Commands) suppress(e *statemachine.Entry, m session.Mark, v session.Verdict, first session.Record) error {
	if v == session.Duplicate && len(s.batch) > 0 && first.Index >= s.batch[0].Index && s.mayCall(e) {
		if err := s.Flush(); err != nil { // it is one of this batch: a caller that is told may read its effect
			return err
		}
		first, _ = s.table.Lookup(m.ID, m.Number)
	}
	s.findCallers() // in the order of the log
	s.suppressed.Add(1)
	switch {
	case v == session.Duplicate && first.Refused:
		s.Callers.RefuseApplied(e.Position(), e.Term, m, s.queue.RefusedBefore(raftpb.Position{Index: first.Index, Pos: first.Pos}))
	case v == session.Duplicate:
		s.Callers.AnswerDuplicate(e.Position(), e.Term, m, outcome.Receipt{Index: first.Index, Pos: first.Pos, Term: first.Term}, first.Result, first.Kept)
	case v == session.Expired:
		s.Callers.ExpireCall(e.Position(), e.Term, m, outcome.ErrSessionExpired)
	case v == session.Forgotten:
		s.Callers.RefuseCall(e.Position(), e.Term, m, ErrForgotten)
	default:
		s.Callers.RefuseCall(e.Position(), e.Term, m, ErrSessionFull)
	}
	return nil
}

// mayCall reports whether the machine may be called before a command. One that keeps its state on disk knows
// its state by an index alone, so it gets the commands of one entry together.
func (s *Commands) mayCall(e *statemachine.Entry) bool {
	return s.Options.Applied == nil || s.batch[0].Index < e.Index && s.batch[len(s.batch)-1].Index < e.Index
}

// RefusedBefore is the outcome of a copy of a command that was refused, or skipped.
func (q *Queue) RefusedBefore(at raftpb.Position) error {
	if slices.Contains(q.passed, at) || q.Skips.Of(at) > 0 {
		return fmt.Errorf("%w: it came first as entry %v", outcome.ErrSkipped, at)
	}
	return fmt.Errorf("%w: the command was refused at entry %v, where it came first", object.ErrRefused, at)
}

// checkpoint takes a checkpoint. current says whether the state of the machine is that after index. Between a
// command that the group skips and the entry that says so, only commands are compared. A member that does not
// know the entry yet has the effect, and halts at the entry.
func (s *Commands) checkpoint(index uint64, current bool) {
	c := s.sums.Checkpoint(index, current)
	if s.queue.Skips.IsOpen(index) {
		c.HasResults, c.HasDigest = false, false
	}
	if !s.queue.rebuilding {
		s.Checkpoint(c)
	}
}

// Refuse refuses a command that the machine does not get. The lane that applies it calls it.
func (s *Commands) Refuse(e *statemachine.Entry, h session.Header, why error) {
	if h.HasMark {
		s.table.Refuse(h.Mark)
	}
	s.Callers.RefuseApplied(e.Position(), e.Term, h.Mark, why)
}

// End ends a command that is for the host, and not for the machine.
func (s *Commands) End(e *statemachine.Entry, h session.Header) {
	if h.HasMark {
		s.table.Keep(nil)
	}
	s.Callers.AnswerApplied(e.Position(), e.Term, h.Mark)
}

// findCallers finds the calls of the commands in the batch for which that was not done yet.
func (s *Commands) findCallers() {
	s.Callers.FindCallers(s.batch[s.found:])
	s.found = len(s.batch)
}

// Flush gives the batch to the machine, and its results to the table.
func (s *Commands) Flush() error {
	s.findCallers()
	defer s.clear()
	if len(s.batch) == 0 {
		s.keepResults()
		return nil
	}
	s.markAwaited()
	if err := s.applyBatch(); err != nil {
		return err
	}
	s.last = s.batch[len(s.batch)-1].Index
	s.Feed.Append(s.batch) // before the callers are told: they find what their commands have published
	s.Callers.Applied(s.batch)
	if d, ok := s.Machine.(statemachine.Deliverer); ok {
		d.Deliver(s.batch)
	}
	switch {
	case s.Options.KeepResults:
		s.keepResults()
	case resultForm(&s.Options) != "":
		for i := range s.batch {
			s.sums.ResultSum(s.batch[i].ResultSum)
		}
	}
	return nil
}

// markAwaited says which results are of use. Those that sessions keep are of use on every member. A duplicate
// that comes later, at any member, gets them.
func (s *Commands) markAwaited() {
	for i := range s.batch {
		s.batch[i].Awaited = s.Options.KeepResults || s.batch[i].Caller != nil
	}
}

// keepResults gives the table the results of the batch. It gets them in the order of the commands, and none
// for a command that is skipped.
func (s *Commands) keepResults() {
	unkept := s.unkept
	for i := range len(s.batch) + 1 {
		for ; len(unkept) > 0 && unkept[0] == i; unkept = unkept[1:] {
			s.table.Keep(nil)
		}
		if i == len(s.batch) {
			break
		}
		c := &s.batch[i]
		s.sums.Result(c.Result)
		if c.Number > 0 {
			s.table.Keep(apart(c.Result, c.Data))
		}
	}
	s.unkept = s.unkept[:0]
}

// apart returns the result, or a copy if it is a part of the command. The table counts the bytes of results
// only, and a part of a command keeps the whole entry in memory, with up to 65,535 other commands.
func apart(result, command []byte) []byte {
	first, whole := uintptr(unsafe.Pointer(unsafe.SliceData(result))), uintptr(unsafe.Pointer(unsafe.SliceData(command)))
	if len(result) == 0 || first < whole || first >= whole+uintptr(len(command)) {
		return result
	}
	return bytes.Clone(result)
}

// resultForm names the form in which members compare results; "": they do not.
func resultForm(o *statemachine.CommandOptions) string {
	if o.KeepResults {
		return cmp.Or(o.ResultForm, "kept")
	}
	return o.ResultForm
}

// applyBatch calls the machine.
func (s *Commands) applyBatch() error {
	if hook := s.queue.Hook; hook != nil {
		hook.Calls(true)
		defer hook.Calls(false)
	}
	return s.Machine.Apply(s.batch)
}

// clear empties the scratch.
func (s *Commands) clear() {
	clear(s.batch)
	s.batch, s.found, s.unkept = s.batch[:0], 0, s.unkept[:0]
}

// Why the table of sessions refuses a command.
var (
	ErrForgotten   = fmt.Errorf("%w: its session said before that it waits for this number no more", outcome.ErrIndeterminate)
	ErrSessionFull = fmt.Errorf("%w: %w", outcome.ErrIndeterminate, outcome.ErrSessionFull)
)

func (s *Commands) callee() string {
	if s.inDigest {
		return "Digest of the state machine"
	}
	if m, is := s.Machine.(statemachine.NamesCallee); is {
		return containment.Callee(m)
	}
	return "Apply of the state machine"
}

// digest calls the user's Digest.
func (s *Commands) digest() uint64 {
	s.inDigest = true
	d := s.Options.Digest()
	s.inDigest = false
	return d
}

// appliedHere calls the user's Applied.
func (s *Commands) appliedHere() (held uint64, err error) {
	err = containment.Call("Applied of the state machine", func() (err error) {
		held, err = s.Options.Applied()
		return err
	}, nil)
	return held, err
}
