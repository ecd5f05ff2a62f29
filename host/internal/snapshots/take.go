package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/containment"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
)

// take is a snapshot that is being taken, from its capture to its end. Its pieces run on a snapshot lane, and
// each is bounded by a read or a write of the whole state at most.
type take struct {
	all    *Group
	work   Work
	ctx    context.Context // ends with the group
	cancel context.CancelFunc

	// What was captured.
	id       raftpb.EntryID
	view     statemachine.Snapshot // the machine's; nil: it was closed
	captured Captured
	bytes    int64 // of the log through id, as Growth counts them
	space    int64 // bytes that the disk had free before the first of its own; 0: not known
	callers  []Caller
	began    time.Duration

	// Owned by the lane that works on it.
	next   func(*take) error // the next piece; nil: there is none
	callee string            // the function of the user that is being called, or was last
	writer *snapshot.Writer  // nil: none, or it has published
}

// Capture captures, if a snapshot is wanted and may be taken now. It is called by an apply lane, where the
// machine is not being called, and before it applies. A machine that never blocks is called in turns, so
// calling is locked meanwhile.
func (s *Group) Capture(calling sync.Locker) {
	if !s.granted.Load() || !s.granted.Swap(false) {
		return
	}
	if s.owner.Err() != nil {
		s.Lanes.End(false)
		return
	}
	if t := s.capture(calling); t != nil {
		s.Lanes.Enqueue(&t.work)
	}
}

// capture captures, or ends what was wanted, and then returns nil.
func (s *Group) capture(calling sync.Locker) (t *take) {
	var err error
	returned := false
	calling.Lock()
	defer func() {
		calling.Unlock()
		if p := recover(); p != nil {
			err = fmt.Errorf("millrace: Snapshot of the state machine panicked: %v\n%s", p, debug.Stack())
		} else if !returned {
			err = fmt.Errorf("millrace: Snapshot of the state machine %w", containment.ErrEnded)
		}
		if err != nil {
			t.fail(err)
			t = nil
		}
	}()
	// Until the log has taken over a snapshot that was received, the machine has its state, and it is not yet
	// the latest: a take would write the same one again, over the one that the log is about to rely on.
	installs := s.Installing.Load()
	id := s.owner.Position()
	early := !s.owner.MayCapture(id.Index)
	switch p := s.Latest(); {
	case installs, early, s.Section != nil && !s.Section.IsWhole():
		s.Lanes.End(false)
		s.postpone()
		returned = true
		return nil
	case !s.owner.IsFounded() || id.Index == 0:
		s.Lanes.End(false)
		s.endWithout(nil, fmt.Errorf("millrace: there is nothing yet that a snapshot of group %d could hold", s.ID))
		returned = true
		return nil
	case p != nil && id.Index <= p.ID.Index:
		s.Lanes.End(false)
		s.endWithout(p, nil)
		returned = true
		return nil
	case !s.Lanes.Begin():
		s.Lanes.Admit(&s.Seat)
		returned = true
		return nil
	}
	t = s.begin(id)
	t.captured = s.owner.CaptureState(id.Index)
	if s.Section != nil {
		t.captured.form, t.captured.link = s.Section.Capture()
	}
	t.view, err = s.Machine.Snapshot()
	returned = true
	return t
}

// begin notes that a take has begun.
func (s *Group) begin(id raftpb.EntryID) *take {
	t := &take{all: s, id: id, bytes: s.Growth.Applied(), began: s.owner.Now(), next: (*take).write}
	t.work = Work{Seat: &s.Seat, Doing: "which takes a snapshot", Piece: t.piece, Takes: true}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase, s.take = writing, t
	t.callers, s.callers = s.callers, nil
	return t
}

// piece does one piece of the work, on a snapshot lane.
func (t *take) piece() (more bool) {
	if t.next == nil {
		return false
	}
	returned := false
	defer func() {
		if p := recover(); p != nil {
			t.fail(fmt.Errorf("millrace: %s panicked: %v\n%s", t.calleeName(), p, debug.Stack()))
			more = false
		} else if !returned {
			t.fail(fmt.Errorf("millrace: %s %w", t.calleeName(), containment.ErrEnded))
		}
	}()
	err := t.next(t)
	returned = true
	switch {
	case errors.Is(err, errNotDurable):
		return false
	case err != nil:
		t.fail(err) // also if Close of the view ends this goroutine
	}
	return t.next != nil
}

// write writes the parts and makes them durable.
func (t *take) write() (err error) {
	store, err := t.all.Store()
	if err != nil {
		return err
	}
	if err := t.rejectSpace(); err != nil {
		return err
	}
	if t.writer, err = create(store, t.storedID()); err != nil {
		return err
	}
	t.callee = "WriteTo"
	if err := t.writeStream(snapshot.KindMachine, StateStream, func(w io.Writer) error { return t.view.WriteTo(t.ctx, w) }); err != nil {
		return err
	}
	for name, form := range t.forms() {
		if err := t.writeStream(snapshot.KindHost, name, func(w io.Writer) error { _, err := w.Write(form); return err }); err != nil {
			return err
		}
	}
	t.callee = "Files"
	var files []statemachine.File
	if with, has := t.view.(statemachine.FileSnapshot); has {
		files = with.Files()
	}
	_, takes := t.all.Machine.(statemachine.FileRestorer)
	switch {
	case len(files) > 0 && !takes:
		return fmt.Errorf("millrace: the snapshot has %d files, and the state machine has no method RestoreFiles (FileRestorer) to take them back; add it", len(files))
	case len(files) > maxFiles:
		return fmt.Errorf("millrace: the snapshot has %d files, want at most %d", len(files), maxFiles)
	}
	for _, f := range files {
		if _, err := t.writer.Link(f.Name, f.Path); err != nil {
			return err
		}
	}
	if link := t.captured.link; link != nil {
		if err := link(t.writer); err != nil {
			return err
		}
	}
	if err := t.writer.SyncParts(); err != nil {
		return err
	}
	if err := t.closeView(); err != nil {
		return err
	}
	t.next = (*take).publish
	return nil
}

// forms yields what the host has in streams of its own.
func (t *take) forms() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		if t.captured.Sessions != nil && !yield(SessionsStream, t.captured.Sessions) {
			return
		}
		if published := t.captured.Published; published != nil && !yield(PublishedStream, published()) {
			return
		}
		if form := t.captured.form; form != nil {
			yield(ObjectsStream, form)
		}
	}
}

func (t *take) writeStream(kind snapshot.Kind, name string, write func(io.Writer) error) error {
	w, err := t.writer.Stream(kind, name)
	if err != nil {
		return err
	}
	err = write(untilDone{t.ctx, w})
	if err == nil {
		err = t.ctx.Err()
	}
	return errors.Join(err, w.Close())
}

// untilDone is a writer that fails when ctx has ended, for a machine that does not look at it.
type untilDone struct {
	ctx context.Context
	w   io.Writer
}

func (u untilDone) Write(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.w.Write(b)
}

func (t *take) closeView() error {
	v := t.view
	if t.view = nil; v == nil {
		return nil
	}
	t.callee = "Close"
	return v.Close()
}

var errNotDurable = errors.New("the log is not durable through the snapshot")

// publish publishes the snapshot, as soon as the log of this host is durable through its index.
func (t *take) publish() error {
	s := t.all
	if s.durable.Load() < t.id.Index {
		s.awaits.Store(t.id.Index)
		s.owner.Want()
		s.Lanes.Await(&s.Seat, true)
		return errNotDurable
	}
	s.Lanes.Await(&s.Seat, false)
	m := s.owner.Manifest()
	m.Index, m.Term, m.Host = t.id.Index, t.id.Term, t.captured.Block.Encode()
	m.Conf, m.Members = t.captured.Block.Roster.Conf, entry.ManifestMembers(t.captured.Block.Roster)
	if err := t.writer.Publish(m); err != nil {
		return err
	}
	t.writer = nil
	t.next = (*take).readBack
	return nil
}

// readBack reads every byte of what was published. Nothing relies on the snapshot before.
func (t *take) readBack() error {
	store, err := t.all.Store()
	if err != nil {
		return err
	}
	if err := store.Verify(t.ctx, t.storedID()); err != nil {
		return err
	}
	if err := t.announce(); err != nil {
		return err
	}
	t.next = (*take).prune
	return nil
}

func (t *take) storedID() snapshot.ID { return snapshot.ID{Index: t.id.Index, Term: t.id.Term} }

// announce makes the snapshot the latest of its group.
func (t *take) announce() error {
	store, err := t.all.Store()
	if err != nil {
		return err
	}
	m, err := store.Manifest(t.storedID())
	if err != nil {
		return err
	}
	t.all.Publish(NewPublished(m, t.all.owner.Ticks()))
	return nil
}

// prune removes older snapshots. If that fails the new one stands all the same; they are removed after the
// next one. The latest stays also if a newer one was received and verified: until that is installed, the log
// begins behind the latest, and who opens the group again in this life of the host begins from it.
func (t *take) prune() error {
	store, err := t.all.Store()
	if err == nil {
		err = store.Prune(t.all.Latest().ID)
	}
	if err != nil {
		t.all.owner.Warn("older snapshots are not removed", "err", err)
	}
	t.succeed()
	return nil
}

// succeed ends the take.
func (t *take) succeed() {
	s := t.all
	took := s.owner.Now() - t.began
	t.finish()
	s.mu.Lock()
	s.failures, s.lastErr = 0, nil
	s.gate.End()
	s.mu.Unlock()
	s.taken.Add(1)
	s.took.Add(int64(took))
	s.Schedule(t.bytes)
	p := s.Latest()
	s.owner.Emit(event.SnapshotTaken{Group: s.ID, Index: t.id.Index, Term: t.id.Term, Bytes: p.Bytes, Took: took})
	s.owner.Info("snapshot taken", "index", t.id.Index, "bytes", p.Bytes, "took", took)
	answer(t.callers, p, nil)
	s.next()
}

// fail ends the take with an error, and schedules the next try. What was captured is closed then, and that
// Close may panic as well, or end this goroutine.
func (t *take) fail(err error) {
	ended := false
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w; then Close of a snapshot of the state machine panicked: %v", err, p)
		}
		if !ended {
			t.failed(err) // Close is not called again
		}
	}()
	t.failed(err)
	ended = true
}

func (t *take) failed(err error) {
	s := t.all
	if t.writer != nil {
		err = errors.Join(err, t.writer.Abort())
		t.writer = nil
	}
	if stopped := s.owner.Err(); stopped != nil {
		err = errors.Join(s.owner.Stopped(), err)
	}
	t.finish()
	wait, repeats, said := s.fails(err, t.space)
	if s.owner.Err() == nil {
		s.failed.Add(1)
		s.due.Store(math.MaxInt64)
		if !s.Policy.Disabled {
			s.Lanes.InspectLater(&s.Seat, wait)
		}
		s.owner.Emit(event.SnapshotFailed{Group: s.ID, Index: t.id.Index, Err: err})
		if said {
			s.owner.Warn("a snapshot was not taken; the log keeps growing until one is", "index", t.id.Index, "err", err, "repeats", repeats)
		}
	}
	answer(t.callers, nil, err)
	s.next()
}

// rejectSpace returns the error of the last try if that lacked space, and the disk has about as much as it
// had then. Otherwise each try would fill the disk again, beside the log. But a caller gets a try. So do
// the second, the fourth and so on after a failure, since the state may have shrunk. It reads the disk.
func (t *take) rejectSpace() error {
	s := t.all
	free, err := vfs.FreeBytes(s.FS, s.Dir)
	if err != nil {
		return nil // it is not known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if tries := s.failures + 1; identity.IsFull(s.lastErr) && len(t.callers) == 0 && tries&(tries-1) != 0 && free <= s.tooLittle+s.tooLittle/8 {
		return s.lastErr
	}
	t.space = free
	return nil
}

// finish releases what the take holds. It is called once.
func (t *take) finish() {
	s := t.all
	t.next = nil
	t.cancel()
	if err := t.closeView(); err != nil {
		s.owner.Warn("a snapshot of the state machine did not close", "err", err)
	}
	s.awaits.Store(0)
	s.Lanes.Await(&s.Seat, false)
	s.Lanes.End(true)
	s.mu.Lock()
	s.take, s.phase = nil, idle
	s.mu.Unlock()
}

// calleeName names the function of the user that the take is in the middle of.
func (t *take) calleeName() string {
	if t.callee == "WriteTo" {
		if n, names := t.view.(statemachine.NamesCallee); names {
			return containment.Callee(n)
		}
		return "WriteTo of a snapshot of the state machine"
	}
	return t.callee + " of a snapshot of the state machine"
}
