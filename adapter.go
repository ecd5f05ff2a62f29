package millrace

// The way of a command through the face. A group calls an adapter. It decodes commands, calls the typed state
// machine, and hands its results to those who wait.

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/completion"
)

// commands returns the machine as a group has it.
func (m Machine[C, R]) commands() statemachine.Machine {
	a := &adapter[C, R]{machine: m}
	if !m.keeps {
		a.summer.plan = m.resultPlan()
	}
	files, hasFiles := m.sm.(FileRestorer)
	observer, observes := m.sm.(MembersObserver)
	var machine statemachine.CommandMachine = a
	switch {
	case hasFiles && observes:
		machine = &observingFileAdapter[C, R]{a, files, observer}
	case hasFiles:
		machine = &fileAdapter[C, R]{a, files}
	case observes:
		machine = &observingAdapter[C, R]{a, observer}
	}
	return host.Commands(machine, m.options())
}

// adapter passes the commands of a group to a typed state machine, and its results to those who wait for
// them: host.CommandMachine and host.Snapshotter.
type adapter[C, R any] struct {
	machine Machine[C, R]
	batch   []Command[C]
	results []R
	callee  string // the function of the user that is being called, or was last
	summer  summer // without a plan: results are not summed up

	outcomes completion.Delivery[Completion[R]]
}

// Callee implements host.NamesCallee.
func (a *adapter[C, R]) Callee() string { return a.callee }

// BorrowsData implements statemachine.Borrower: the machine gets decoded values.
func (a *adapter[C, R]) BorrowsData() bool { return copies(a.machine.codec) }

// maxScratch bounds what the scratch memory of an adapter keeps between two batches, in commands.
const maxScratch = 4 << 10

// options returns what the host must know about a machine.
func (m Machine[C, R]) options() statemachine.CommandOptions {
	o := statemachine.CommandOptions{Sessions: m.sessions, KeepResults: m.keeps, Version: m.version, Versions: m.versions, Digest: m.digest, StopDiverged: m.stopDiverged, Objects: m.objects}
	if m.durable != nil {
		o.Applied = m.durable.Applied
	}
	if p := m.resultPlan(); m.keeps {
		o.ResultForm = fmt.Sprintf("kept %T", m.results)
	} else if p != nil {
		o.ResultForm = p.resultForm()
	}
	return o
}

// resultPlan says which part of the results is compared by default; nil: none.
func (m Machine[C, R]) resultPlan() *resultPlan {
	if m.unwatched {
		return nil
	}
	return planResults(reflect.TypeFor[R]())
}

// Apply implements host.CommandMachine: one Apply of the user's machine for each call. A command that cannot
// be decoded halts the machine there: what is before it is applied.
func (a *adapter[C, R]) Apply(commands []statemachine.Command) error {
	applied := false
	defer func() { a.release(applied) }()
	a.callee = "Decode of the codec"
	for i := range commands {
		c := &commands[i]
		value, err := a.machine.codec.Decode(c.Data)
		if err != nil {
			if before := a.applyBatch(a.before(commands, i)); before != nil {
				return before
			}
			a.deliver(commands[:len(a.batch)], false)
			return &outcome.CommandError{Index: c.Index, Pos: c.Pos, Err: fmt.Errorf("millrace: the codec cannot decode command %v, of %d bytes: %w; all members of a group need the codec that the command was proposed with", c.Position(), len(c.Data), err)}
		}
		a.batch = append(a.batch, Command[C]{Index: c.Index, Pos: c.Pos, Term: c.Term, Time: c.Time, Session: c.Session, Number: c.Number, Version: c.Version, Objects: c.Objects, Awaited: c.Awaited, Value: value, published: &c.Published})
	}
	err := a.applyBatch(commands)
	applied = err == nil
	return err
}

// before returns the commands before one that cannot be decoded. A machine that keeps its state on disk gets
// all commands with one index, or none.
func (a *adapter[C, R]) before(commands []statemachine.Command, i int) []statemachine.Command {
	index := commands[i].Index
	for a.machine.durable != nil && i > 0 && commands[i-1].Index == index {
		i--
	}
	a.batch = a.batch[:i]
	return commands[:i]
}

// applyBatch gives the machine the commands that are decoded.
func (a *adapter[C, R]) applyBatch(commands []statemachine.Command) error {
	if len(commands) == 0 {
		return nil
	}
	a.results = slices.Grow(a.results, len(commands))[:len(commands)]
	a.callee = "Apply of the state machine"
	if err := a.machine.sm.Apply(a.batch, a.results); err != nil {
		return err // the host tells those who wait that it has no results
	}
	switch {
	case a.machine.keeps:
		if err := a.encodeResults(commands); err != nil {
			return err
		}
	case a.summer.plan != nil:
		for i := range commands {
			commands[i].ResultSum = a.summer.sum(reflect.ValueOf(&a.results[i]).Elem(), commands[i].EndsBatch)
		}
	}
	return nil
}

// Deliver implements statemachine.Deliverer.
func (a *adapter[C, R]) Deliver(commands []statemachine.Command) {
	a.deliver(commands, true)
	a.release(false)
}

// deliver gives the results of the first commands to those who wait. If last is
// set, the group tells nothing more of them, except a commit that it has not told yet.
func (a *adapter[C, R]) deliver(commands []statemachine.Command, last bool) {
	for i := range commands {
		if p, ok := commands[i].Caller.(*caller[R]); ok {
			p.applied(&commands[i], a.results[i], &a.outcomes, last)
		}
	}
	a.outcomes.Flush()
}

// Snapshot implements host.Snapshotter.
func (a *adapter[C, R]) Snapshot() (Snapshot, error) {
	s, err := a.machine.sm.Snapshot()
	if err != nil || s == nil || a.machine.durable == nil {
		return s, err
	}
	synced := &syncedSnapshot{Snapshot: s, sync: a.machine.durable.Sync}
	if f, ok := s.(FileSnapshot); ok {
		return syncedFileSnapshot{synced, f}, nil
	}
	return synced, nil
}

// Restore implements host.Snapshotter.
func (a *adapter[C, R]) Restore(ctx context.Context, r io.Reader) error {
	return a.machine.sm.Restore(ctx, r)
}

// fileAdapter is the adapter of a machine whose snapshots have files.
type fileAdapter[C, R any] struct {
	*adapter[C, R]
	FileRestorer
}

// observingAdapter and observingFileAdapter are those of a machine that learns of the members.
type observingAdapter[C, R any] struct {
	*adapter[C, R]
	MembersObserver
}

type observingFileAdapter[C, R any] struct {
	*adapter[C, R]
	FileRestorer
	MembersObserver
}

// syncedSnapshot is of a machine that keeps its state on a disk. When it is written that state is durable, so
// after a crash the machine does not need a snapshot in place of commands that the log has forgotten.
type syncedSnapshot struct {
	Snapshot
	sync   func() error
	callee string // what WriteTo calls, or has called last
}

// Callee implements host.NamesCallee.
func (s *syncedSnapshot) Callee() string { return s.callee }

func (s *syncedSnapshot) WriteTo(ctx context.Context, w io.Writer) error {
	s.callee = "Sync of the state machine"
	if err := s.sync(); err != nil {
		return fmt.Errorf("millrace: the state machine's Sync: %w", err)
	}
	s.callee = "WriteTo of a snapshot of the state machine"
	return s.Snapshot.WriteTo(ctx, w)
}

type syncedFileSnapshot struct {
	*syncedSnapshot
	files FileSnapshot
}

func (s syncedFileSnapshot) Files() []SnapshotFile { return s.files.Files() }

// encodeResults sets the results that the group keeps.
func (a *adapter[C, R]) encodeResults(commands []statemachine.Command) (err error) {
	a.callee = "Append of the codec of Machine.Results"
	for i := range commands {
		c := &commands[i]
		if c.Result, err = a.machine.results.Append(nil, a.results[i]); err != nil {
			return fmt.Errorf("millrace: the codec of Machine.Results cannot encode the result of command %d: %w", c.Index, err)
		}
		if c.Result == nil {
			c.Result = []byte{} // a result without bytes is one; nil would be none
		}
	}
	return nil
}

// release forgets the values of a batch, so that only the machine keeps them in memory. It forgets the
// results, too, unless they are delivered later.
func (a *adapter[C, R]) release(keepsResults bool) {
	clear(a.batch)
	if a.batch = a.batch[:0]; cap(a.batch) > maxScratch {
		a.batch = nil
	}
	if keepsResults {
		return
	}
	clear(a.results)
	if a.results = a.results[:0]; cap(a.results) > maxScratch {
		a.results = nil
		a.outcomes.Shrink()
	}
}
