package host

import (
	"context"
	"errors"
	"fmt"
	"github.com/millrace/millrace/host/internal/snapshots"
	"io"
	"iter"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
)

// take is a snapshot that is being taken, from its capture to its end. Its pieces run on a snapshot lane, and
// each is bounded by a read or a write of the whole state at most.
type take struct {
	all    *groupSnapshots
	work   snapshots.Work
	ctx    context.Context // ends with the group
	cancel context.CancelFunc

	// What was captured.
	id       raftpb.EntryID
	view     Snapshot // the machine's; nil: it was closed
	sessions []byte   // the form of the table; nil: the group has no commands
	section  capturedSection
	block    entry.Block
	bytes    int64 // of the log through id, as groupSnapshots.applied counts them
	space    int64 // bytes that the disk had free before the first of its own; 0: not known
	callers  []*Taking
	began    time.Duration

	// Owned by the lane that works on it.
	next   func(*take) error // the next piece; nil: there is none
	callee string            // the function of the user that is being called, or was last
	writer *snapshot.Writer  // nil: none, or it has published
}

// addCaller makes the next snapshot tell a caller.
func (s *groupSnapshots) addCaller(t *Taking) {
	s.mu.Lock()
	s.callers = append(s.callers, t)
	s.mu.Unlock()
	s.want()
}

// want asks for a snapshot soon. It does nothing if one is wanted or under way already, or if the machine
// takes none. It may be called from anywhere.
func (s *groupSnapshots) want() {
	s.mu.Lock()
	wants := s.machine != nil && !s.closed && s.stage == takeNone
	if wants {
		s.stage = takeWanted
	}
	s.mu.Unlock()
	if wants {
		s.group.host.bulk.snapshotLanes.Admit(&s.seat)
	}
}

// lookAt is called when the time of lookAgain has come: after a failure, after a take that was put off, or
// because of SnapshotPolicy.Every. What was put off for an install is not wanted any more when that has
// ended.
func (s *groupSnapshots) lookAt() {
	s.mu.Lock()
	wanted := s.failures > 0 || len(s.callers) > 0
	s.mu.Unlock()
	switch {
	case wanted, s.group.machine.apply.position().Index > s.latest().Index() && (s.policy.Every > 0 || s.group.snapshots.installs.pending.Load()):
		s.want()
	case s.policy.Every > 0:
		s.group.host.bulk.snapshotLanes.LookAgain(&s.seat, s.policy.Every)
	default:
		s.schedule(s.growth.Applied())
	}
}

// runCapture captures, if a snapshot is wanted and may be taken now. It is called by an apply lane, where the
// machine is not being called, and before it applies.
func (q *applyQueue) runCapture() {
	s := &q.group.snapshots
	if !s.granted.Load() || !s.granted.Swap(false) {
		return
	}
	lanes := &q.group.host.bulk.snapshotLanes
	if q.group.Err() != nil {
		lanes.End(false)
		return
	}
	if t := q.capture(); t != nil {
		lanes.Enqueue(&t.work)
	}
}

// capture captures, or ends what was wanted, and then returns nil.
func (q *applyQueue) capture() (t *take) {
	s, lanes := &q.group.snapshots, &q.group.host.bulk.snapshotLanes
	var err error
	returned := false
	q.calling.Lock() // a machine that never blocks is called in turns
	defer func() {
		q.calling.Unlock()
		if p := recover(); p != nil {
			err = fmt.Errorf("millrace: Snapshot of the state machine panicked: %v\n%s", p, debug.Stack())
		} else if !returned {
			err = fmt.Errorf("millrace: Snapshot of the state machine %w", errEnded)
		}
		if err != nil {
			t.fail(err)
			t = nil
		}
	}()
	// Until the log has taken over a snapshot that was received, the machine has its state, and it is not yet
	// the latest: a take would write the same one again, over the one that the log is about to rely on.
	installs := q.group.snapshots.installs.pending.Load()
	id := q.position()
	// Nor does a member that reads in the log how it was added take one from before that: its next start
	// could not begin from it (rejectManifest).
	early := !q.group.wasMemberAt(id.Index)
	switch p := s.latest(); {
	case installs, early, s.section != nil && !s.section.isWhole():
		lanes.End(false)
		s.putOff()
		returned = true
		return nil
	case s.found.Load() == nil || id.Index == 0:
		lanes.End(false)
		s.endWithout(nil, fmt.Errorf("millrace: there is nothing yet that a snapshot of group %d could hold", q.group.id))
		returned = true
		return nil
	case p != nil && id.Index <= p.ID.Index:
		lanes.End(false)
		s.endWithout(p, nil)
		returned = true
		return nil
	case !lanes.Begin():
		lanes.Admit(&s.seat)
		returned = true
		return nil
	}
	t = s.begin(id, q.group.now())
	err = q.captureState(t)
	returned = true
	return t
}

// putOff makes what was wanted wait for a while.
func (s *groupSnapshots) putOff() {
	s.mu.Lock()
	s.stage = takeNone
	s.mu.Unlock()
	s.group.host.bulk.snapshotLanes.LookAgain(&s.seat, ticksPerHeartbeat)
}

// begin notes that a take has begun.
func (s *groupSnapshots) begin(id raftpb.EntryID, now time.Duration) *take {
	t := &take{all: s, id: id, bytes: s.growth.Applied(), began: now, next: (*take).write}
	t.work = snapshots.Work{Seat: &s.seat, Doing: "which takes a snapshot", Piece: t.piece, Takes: true}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage, s.take = takeWriting, t
	t.callers, s.callers = s.callers, nil
	return t
}

// captureState takes the view of the machine, and what the host keeps beside it.
func (q *applyQueue) captureState(t *take) (err error) {
	t.block = q.group.hostBlock(t.id.Index)
	t.block.Skipped = slices.Clone(q.passed)
	if m, ok := q.machine.(*commandGroup); ok {
		_, counted := m.table.Sessions()
		t.sessions = m.table.AppendTo(make([]byte, 0, counted/8))
		if s := t.all.section; s != nil {
			t.section = s.capture()
		}
		t.block.HasSums, t.block.Sums = true, m.sums.State()
		t.block.Last = max(m.last, m.held)
	}
	if t.view, err = t.all.machine.Snapshot(); err == nil && t.view == nil {
		err = errors.New("millrace: Snapshot of the state machine returned nil and no error")
	}
	return err
}

// endWithout ends what was wanted without a capture.
func (s *groupSnapshots) endWithout(p *snapshots.Published, err error) {
	s.mu.Lock()
	callers := s.callers
	s.callers, s.stage = nil, takeNone
	if err == nil {
		s.failures, s.lastErr = 0, nil // a snapshot of this state was received
	}
	s.mu.Unlock()
	s.schedule(s.growth.Applied())
	tell(callers, p, err)
}

func tell(callers []*Taking, p *snapshots.Published, err error) {
	var info SnapshotInfo
	if p != nil {
		info = infoOf(p)
	}
	for _, c := range callers {
		c.finish(info, err)
	}
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
			t.fail(fmt.Errorf("millrace: %s %w", t.calleeName(), errEnded))
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
	store, err := t.all.store()
	if err != nil {
		return err
	}
	if err := t.rejectSpace(); err != nil {
		return err
	}
	id := snapshot.ID{Index: t.id.Index, Term: t.id.Term}
	if t.writer, err = createSnapshot(store, id); err != nil {
		return err
	}
	t.callee = "WriteTo"
	if err := t.writeStream(snapshot.KindMachine, stateStream, func(w io.Writer) error { return t.view.WriteTo(t.ctx, w) }); err != nil {
		return err
	}
	for name, form := range t.forms() {
		if err := t.writeStream(snapshot.KindHost, name, func(w io.Writer) error { _, err := w.Write(form); return err }); err != nil {
			return err
		}
	}
	if v, ok := t.view.(FileSnapshot); ok {
		t.callee = "Files"
		files := v.Files()
		if _, restores := t.all.machine.(FileRestorer); !restores && len(files) > 0 {
			return fmt.Errorf("millrace: the snapshot has %d files, and the state machine has no method RestoreFiles (FileRestorer) to take them back; add it", len(files))
		}
		if len(files) > maxSnapshotFiles {
			return fmt.Errorf("millrace: the snapshot has %d files, want at most %d", len(files), maxSnapshotFiles)
		}
		for _, f := range files {
			if _, err := t.writer.Link(f.Name, f.Path); err != nil {
				return err
			}
		}
	}
	if t.section.link != nil {
		if err := t.section.link(t.writer); err != nil {
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
		if t.sessions != nil && !yield(sessionsStream, t.sessions) {
			return
		}
		if t.section.form != nil {
			yield(t.section.name, t.section.form)
		}
	}
}

// createSnapshot begins to write a snapshot. One of the same entry that was published before, and is not the
// latest, could not be read: it is written again.
func createSnapshot(store *snapshot.Store, id snapshot.ID) (*snapshot.Writer, error) {
	w, err := store.Create(id)
	if !errors.Is(err, snapshot.ErrPublished) {
		return w, err
	}
	if err := store.Remove(id); err != nil {
		return nil, err
	}
	return store.Create(id)
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
	s, lanes := t.all, &t.all.group.host.bulk.snapshotLanes
	if s.durable.Load() < t.id.Index {
		s.awaits.Store(t.id.Index)
		s.group.want(dutySnapshots)
		lanes.Await(&s.seat, true)
		return errNotDurable
	}
	lanes.Await(&s.seat, false)
	g := s.group
	m := snapshot.Manifest{
		Cluster: g.host.trust.directory.Identity().Cluster, Group: g.id, Index: t.id.Index, Term: t.id.Term,
		Host: t.block.Encode(),
	}
	if c, ok := g.machine.apply.machine.(*commandGroup); ok {
		m.Machine = c.options.Version
	}
	m.Conf, m.Members = t.block.Roster.Conf, entry.ManifestMembers(t.block.Roster)
	if err := t.writer.Publish(m); err != nil {
		return err
	}
	t.writer = nil
	t.next = (*take).readBack
	return nil
}

// readBack reads every byte of what was published. Nothing relies on the snapshot before.
func (t *take) readBack() error {
	store, err := t.all.store()
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
	store, err := t.all.store()
	if err != nil {
		return err
	}
	m, err := store.Manifest(t.storedID())
	if err != nil {
		return err
	}
	t.all.publish(snapshots.NewPublished(m, t.all.group.host.clock.livedAtBeat()))
	return nil
}

// prune removes older snapshots. If that fails the new one stands all the same; they are removed after the
// next one. The latest stays also if a newer one was received and verified: until that is installed, the log
// begins behind the latest, and who opens the group again in this life of the host begins from it.
func (t *take) prune() error {
	store, err := t.all.store()
	if err == nil {
		err = store.Prune(t.all.latest().ID)
	}
	if err != nil {
		t.all.group.host.env.logger.Warn("older snapshots are not removed", "group", t.all.group.id, "host", t.all.group.self, "err", err)
	}
	t.succeed()
	return nil
}

// succeed ends the take.
func (t *take) succeed() {
	s, g := t.all, t.all.group
	took := g.now() - t.began
	t.finish()
	s.mu.Lock()
	s.failures, s.lastErr = 0, nil
	s.gate.End()
	s.mu.Unlock()
	s.taken.Add(1)
	s.tookNanos.Add(int64(took))
	s.schedule(t.bytes)
	p := s.latest()
	g.host.reports.events.emit(event.SnapshotTaken{Group: g.id, Index: t.id.Index, Term: t.id.Term, Bytes: p.Bytes, Took: took})
	g.host.env.logger.Info("snapshot taken", "group", g.id, "host", g.self, "index", t.id.Index, "bytes", p.Bytes, "took", took)
	tell(t.callers, p, nil)
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
	s, g := t.all, t.all.group
	if t.writer != nil {
		err = errors.Join(err, t.writer.Abort())
		t.writer = nil
	}
	if stopped := g.Err(); stopped != nil {
		err = errors.Join(wrap(ErrStopped, stopped), err)
	}
	t.finish()
	now := g.host.clock.livedAtBeat()
	s.mu.Lock()
	if s.failures++; s.failures == 1 {
		s.errSince = now
	}
	s.lastErr = err
	if s.errAt = now; identity.IsFull(err) && t.space > 0 {
		s.tooLittle = t.space
	}
	wait := int64(g.host.config.electionTicks()) << min(s.failures-1, maxBackoffAfter(err))
	repeats, said := s.gate.Admit(g.now())
	s.mu.Unlock()
	if g.Err() == nil {
		s.failed.Add(1)
		s.due.Store(math.MaxInt64)
		if !s.policy.Disabled {
			g.host.bulk.snapshotLanes.LookAgain(&s.seat, wait)
		}
		g.host.reports.events.emit(event.SnapshotFailed{Group: g.id, Index: t.id.Index, Err: err})
		if said {
			g.host.env.logger.Warn("a snapshot was not taken; the log keeps growing until one is", "group", g.id, "host", g.self, "index", t.id.Index, "err", err, "repeats", repeats)
		}
	}
	tell(t.callers, nil, err)
	s.next()
}

// The time between two tries is an election timeout, doubled at most so often. A try costs a whole state, so
// an error of the machine or of the disk is tried more and more seldom. What a machine lacks comes back, and
// the cause must end soon after that. Without a descriptor a try costs nothing. Without space it costs
// nothing, either, except for a few (rejectSpace).
const (
	maxSnapshotBackoff = 8
	maxFullBackoff     = 3
	maxShortBackoff    = 1
)

// maxBackoffAfter returns which of them holds for an error.
func maxBackoffAfter(err error) int {
	switch {
	case vfs.IsShort(err):
		return maxShortBackoff
	case identity.IsFull(err):
		return maxFullBackoff
	}
	return maxSnapshotBackoff
}

// rejectSpace returns the error of the last try if that lacked space, and the disk has about as much as it
// had then. Otherwise each try would fill the disk again, beside the log. But a caller gets a try. So do
// the second, the fourth and so on after a failure, since the state may have shrunk. It reads the disk.
func (t *take) rejectSpace() error {
	s := t.all
	free, err := vfs.FreeBytes(s.group.host.env.fs, s.dir)
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
		s.group.host.env.logger.Warn("a snapshot of the state machine did not close", "group", s.group.id, "host", s.group.self, "err", err)
	}
	s.awaits.Store(0)
	s.group.host.bulk.snapshotLanes.Await(&s.seat, false)
	s.group.host.bulk.snapshotLanes.End(true)
	s.mu.Lock()
	s.take, s.stage = nil, takeNone
	s.mu.Unlock()
}

// next takes another snapshot for those who asked while one was being taken.
func (s *groupSnapshots) next() {
	s.mu.Lock()
	waits := len(s.callers) > 0
	s.mu.Unlock()
	if waits {
		s.want()
	}
}

// goOn makes the lane look at the take again.
func (s *groupSnapshots) goOn() {
	s.mu.Lock()
	t := s.take
	s.mu.Unlock()
	if t != nil {
		s.group.host.bulk.snapshotLanes.Enqueue(&t.work)
	}
}

// stop makes what is under way end early: the group ends. The callers see that by themselves.
func (s *groupSnapshots) stop() {
	s.mu.Lock()
	t := s.take
	s.closed = true
	s.mu.Unlock()
	if t != nil {
		t.cancel()
	}
}

// close releases what the group's snapshots hold, when no lane works for the group any more.
func (s *groupSnapshots) close() {
	if s.stop(); s.group == nil {
		return
	}
	s.mu.Lock()
	t, callers := s.take, s.callers
	s.callers = nil
	s.mu.Unlock()
	tell(callers, nil, wrap(ErrStopped, s.group.Err()))
	if s.granted.Swap(false) {
		s.group.host.bulk.snapshotLanes.End(false)
	}
	if t != nil {
		t.fail(s.group.Err())
	}
}

// advanceSnapshots is the part of a turn that concerns snapshots, after its Ready.
func (g *Group) advanceSnapshots() (again bool) {
	s := &g.snapshots
	awaits, through := s.awaits.Load(), s.compact.Load()
	if awaits == 0 && through == 0 {
		return false
	}
	st := g.core.node.BasicStatus()
	if awaits > 0 && st.Durable >= awaits {
		s.durable.Store(awaits)
		s.awaits.CompareAndSwap(awaits, 0)
		s.goOn()
	}
	if through > 0 {
		g.compactLog(through, st.Applied)
	}
	return s.awaits.Load() > 0 || s.compact.Load() > 0
}
