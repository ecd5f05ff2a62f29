package logtest

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// naive is a log in memory that keeps the contract, with a disk that is a list of states. Each bug of
// broken_test.go is one word in it: naive asks has(bug) at the place where the bug is.
type naive struct {
	disk *naiveDisk

	syncing sync.Mutex // held during a sync
	mu      sync.Mutex
	state   model
	groups  map[uint64]*naiveGroup
	written []model // states after each write, since Open
	closed  bool
	taken   int // of written, by TakeSync
	failed  atomic.Bool
}

// naiveDisk outlives the logs that are opened on it.
type naiveDisk struct {
	bug string

	mu         sync.Mutex
	changed    *sync.Cond
	durable    model
	log        *naive // that is open
	id         [16]byte
	generation uint64
	full       bool
	reads      bool // hang
	syncs      bool // hang
	hung       func()
	fails      bool // of syncs
}

func newNaiveDisk(bug string) *naiveDisk {
	d := &naiveDisk{bug: bug, durable: model{}, id: [16]byte{1, 2, 3}}
	d.changed = sync.NewCond(&d.mu)
	return d
}

func (d *naiveDisk) has(bug string) bool { return d.bug == bug }

func (d *naiveDisk) store() Store {
	return Store{Open: d.open, Reopens: true, Crash: d.crash, Fill: d.fill, Hang: d.hang, FailSyncs: d.failSyncs}
}

func (d *naiveDisk) open() (host.Log, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.has("the generation stays") {
		d.generation++
	}
	if d.has("another id after each open") {
		d.id[0]++
	}
	if d.has("deletions are forgotten") {
		maps.DeleteFunc(d.durable, func(_ uint64, s groupState) bool { return s.deleted })
	}
	d.log = &naive{disk: d, state: clone(d.durable), groups: map[uint64]*naiveGroup{}}
	return d.log, nil
}

// crash keeps what is durable, and of the writes since then the first half.
func (d *naiveDisk) crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.log
	since := l.since(d.durable)
	if n := len(since); n > 0 {
		before := d.durable
		if n/2 > 0 {
			before = since[n/2-1]
		}
		after := clone(since[n/2])
		switch {
		case d.has("a crash leaves half a write"):
			for id := range after {
				s := after[id]
				s.entries, s.start = before[id].entries, before[id].start
				after[id] = s
			}
			before = after
		case d.has("a crash loses the earlier of two writes") && n > 1:
			last := since[n-1]
			for id, s := range before {
				if s.last() != 0 {
					last[id] = s
					break
				}
			}
			before = last
		}
		d.durable = clone(before)
	}
}

// since returns the states after the durable one.
func (l *naive) since(durable model) []model {
	for n := len(l.written) - 1; n >= 0; n-- {
		if maps.EqualFunc(l.written[n], durable, equalGroups) {
			return l.written[n+1:]
		}
	}
	return l.written
}

func equalGroups(a, b groupState) bool {
	return a.hs == b.hs && a.start == b.start && a.deleted == b.deleted && slices.EqualFunc(a.entries, b.entries, func(a, b raftpb.Entry) bool { return same(&a, &b) })
}

func (d *naiveDisk) fill(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

func (d *naiveDisk) hang(reads, syncs bool, hung func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads, d.syncs, d.hung = reads, syncs, hung
	d.changed.Broadcast()
}

func (d *naiveDisk) waitForReads() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.reads {
		d.hung()
		d.changed.Wait()
	}
}

func (d *naiveDisk) failSyncs(fail bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = fail
}

var errSync = errors.New("input/output error")

func (d *naiveDisk) sync(s model) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.syncs {
		d.hung()
		d.changed.Wait()
	}
	if d.fails && !d.has("a failed sync is not noticed") {
		return errSync
	}
	d.durable = clone(s)
	return nil
}

func (l *naive) has(bug string) bool { return l.disk.has(bug) }

// reject returns the reason to refuse a write to s, or "".
func (l *naive) reject(w *wal.Write, s groupState) string {
	empty := wal.Write{Group: w.Group, Delete: true}
	switch {
	case w.Delete && describe([]wal.Write{*w}) != describe([]wal.Write{empty}):
		return "it deletes the group, and more"
	case w.Snapshot.Index == 0 && w.Snapshot.Term != 0, w.Snapshot.Index != 0 && w.CompactThrough != 0, w.CompactThrough > s.last():
		return "its snapshot or its compaction makes no sense"
	}
	m := model{w.Group: s}
	m.apply(wal.Write{Group: w.Group, Snapshot: w.Snapshot, CompactThrough: w.CompactThrough})
	s = m[w.Group]
	if w.TruncateFrom != 0 && w.TruncateFrom <= s.start.Index {
		return "it truncates what is compacted"
	}
	end := s.last()
	if w.TruncateFrom != 0 {
		end = min(end, w.TruncateFrom-1)
	}
	for i := range w.Entries {
		if at := w.Entries[i].Index; at == 0 || at > end+1 || at <= s.start.Index || at != w.Entries[0].Index+uint64(i) {
			return fmt.Sprintf("entry %d does not follow", at)
		}
		end = max(end, w.Entries[i].Index)
	}
	return ""
}

// Append implements host.Log.
func (l *naive) Append(writes []wal.Write) error {
	if l.has("an append waits for a sync") {
		l.syncing.Lock()
		defer l.syncing.Unlock()
	}
	if l.has("an append waits for a read") {
		l.disk.waitForReads()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return wal.ErrClosed
	}
	if l.failed.Load() {
		return errSync
	}
	next, states, hasEntries := clone(l.state), []model{}, false
	for i := range writes {
		w := writes[i]
		s := next[w.Group]
		reason := l.reject(&w, s)
		if l.has("writes are judged by the state before the append") {
			reason = l.reject(&w, l.state[w.Group])
		}
		invalid := &wal.InvalidWriteError{Group: w.Group, Reason: reason}
		if s.deleted && !w.Delete && !l.has("a deleted group can be written") {
			if invalid.Reason = "it is deleted"; !l.has("the error does not say that a group is deleted") {
				invalid.Err = wal.ErrDeleted
			}
		}
		switch {
		case invalid.Reason == "":
		case l.has("gaps are taken") && len(w.Entries) > 0 && w.Entries[0].Index > s.last():
			return nil
		case l.has("an invalid write leaves those before it"):
			l.show(next)
			return invalid
		case l.has("the error does not name the group"):
			return wal.ErrInvalidWrite
		default:
			return invalid
		}
		if s.deleted && !w.Delete {
			next[w.Group] = groupState{}
		}
		l.apply(next, w)
		hasEntries = hasEntries || len(w.Entries) > 0
		states = append(states, clone(next))
	}
	l.disk.mu.Lock()
	full := l.disk.full
	l.disk.mu.Unlock()
	if full && (hasEntries || l.has("a full disk refuses votes")) {
		if l.has("a full disk takes half") {
			l.show(states[0])
		}
		if l.has("a full disk is another error") {
			return errors.New("no space left on device")
		}
		return wal.ErrDiskFull
	}
	if l.written = append(l.written, states...); !l.has("entries are shown when they are durable") {
		l.show(next)
	}
	return nil
}

// apply applies a write, perhaps wrongly.
func (l *naive) apply(m model, w wal.Write) {
	before := m[w.Group]
	m.apply(w)
	s := m[w.Group]
	switch {
	case l.has("entries above replaced ones stay") && len(w.Entries) > 0 && s.last() < before.last() && w.TruncateFrom == 0 && w.Snapshot.Index == 0:
		s.entries = append(slices.Clone(s.entries), before.entries[s.last()-before.start.Index:]...)
	case l.has("a truncation is ignored") && w.TruncateFrom != 0 && len(w.Entries) == 0 && w.TruncateFrom <= before.last() && w.CompactThrough == 0 && w.Snapshot.Index == 0:
		s.entries = before.entries
	case l.has("a snapshot keeps what follows another term") && w.Snapshot.Index > before.start.Index && w.Snapshot.Index < before.last() && len(w.Entries) == 0:
		s.entries = before.entries[w.Snapshot.Index-before.start.Index:]
	case l.has("the commit index is not raised") && w.CompactThrough > before.hs.Commit:
		s.hs.Commit = before.hs.Commit
	case l.has("a vote of 0 keeps the old vote") && w.HardState.Vote == 0 && w.HardState.Term > 0:
		s.hs.Vote = before.hs.Vote
	case l.has("the term of the compacted entry is forgotten") && s.start.Index > before.start.Index:
		s.start.Term = 0
	case l.has("entries are kept as they were passed") && len(before.entries) == 0:
		s.entries = w.Entries
	case l.has("entry types are lost"):
		s.entries = slices.Clone(s.entries)
		for i := range s.entries {
			s.entries[i].Type = 0
		}
	}
	m[w.Group] = s
}

// show shows a state to readers, each group at one moment.
func (l *naive) show(m model) {
	l.state = m
	for id := range m {
		g, s := l.group(id), m[id]
		g.mu.Lock()
		if g.state = s; l.has("readers see half a write") {
			g.state.hs = raftpb.HardState{Term: max(s.hs.Term, 1) - 1}
			g.mu.Unlock()
			looked := g.looks.Load()
			letRun(func() bool { return g.looks.Load() > looked+1 })
			g.mu.Lock()
			g.state.hs = s.hs
		}
		if !l.has("Recent shows truncated entries") || len(g.recent.entries) == 0 || s.last() > g.recent.last() || s.start != g.recent.start {
			g.recent = s
		}
		g.mu.Unlock()
	}
}

// group returns a group's reading end. mu is held.
func (l *naive) group(id uint64) *naiveGroup {
	if l.groups[id] == nil {
		l.groups[id] = &naiveGroup{log: l, state: l.state[id], recent: l.state[id]}
	}
	return l.groups[id]
}

type naiveFlush struct {
	log *naive
	at  int
}

// TakeSync implements host.Log.
func (l *naive) TakeSync() (host.Flush, time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, 0, wal.ErrClosed
	}
	if l.failed.Load() {
		return nil, 0, errSync
	}
	if l.counts() || l.has("a flush that is left alone is lost") && l.taken == len(l.written) {
		return nil, 0, nil
	}
	l.taken = len(l.written)
	return &naiveFlush{l, l.taken}, 0, nil
}

// counts reports whether everything is durable. mu is held.
func (l *naive) counts() bool {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	return len(l.written) == 0 || maps.EqualFunc(l.written[len(l.written)-1], l.disk.durable, equalGroups) && l.taken == len(l.written)
}

// Wait implements host.Flush.
func (f *naiveFlush) Wait() error {
	l := f.log
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	at := f.at
	if !l.has("a late flush puts back what an earlier one has done") {
		l.disk.mu.Lock()
		for at < len(l.written) && maps.EqualFunc(l.written[at], l.disk.durable, equalGroups) {
			at++
		}
		for n := len(l.written); n > at; n-- {
			if maps.EqualFunc(l.written[n-1], l.disk.durable, equalGroups) {
				at = n
			}
		}
		l.disk.mu.Unlock()
	}
	s := l.written[at-1]
	if l.has("readers wait for a sync") {
		defer l.mu.Unlock()
	} else {
		l.mu.Unlock()
	}
	if l.has("a sync does nothing") {
		return nil
	}
	if l.has("a sync misses the last write") && at > 1 {
		s = l.written[at-2]
	}
	if err := l.disk.sync(s); err != nil {
		if !l.has("a failed sync is tried again") {
			l.failed.Store(true)
		}
		return err
	}
	return nil
}

// Complete implements host.Flush.
func (f *naiveFlush) Complete() (more bool, err error) {
	l := f.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.has("entries are shown when they are durable") {
		l.show(l.written[len(l.written)-1])
	}
	return len(l.written) > l.taken && !l.has("Complete never says more"), nil
}

// Sync implements host.Log.
func (l *naive) Sync() error {
	f, _, err := l.TakeSync()
	if f == nil || err != nil {
		return err
	}
	if err := f.Wait(); err != nil {
		return err
	}
	_, err = f.Complete()
	return err
}

// Group implements host.Log.
func (l *naive) Group(id uint64) host.GroupLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.group(id)
}

// Groups implements host.Log.
func (l *naive) Groups() (ids []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, s := range l.state {
		if (!s.deleted || l.has("Groups names deleted groups")) && !(l.has("Groups forgets a group without entries") && len(s.entries) == 0) {
			ids = append(ids, id)
		}
	}
	return ids
}

// DeleteGroup implements host.Log.
func (l *naive) DeleteGroup(id uint64) error {
	if err := l.Append([]wal.Write{{Group: id, Delete: true}}); err != nil || l.has("DeleteGroup does not wait for the disk") {
		return err
	}
	return l.Sync()
}

// Deleted implements host.Log.
func (l *naive) Deleted() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.deleted()
}

// ID implements host.Log.
func (l *naive) ID() [16]byte { return l.disk.id }

// Fence implements host.Log.
func (l *naive) Fence() wal.Fence { return wal.Fence{Generation: l.disk.generation} }

// CaughtUp implements host.Log: what was appended is all there is to make durable.
func (l *naive) CaughtUp() error { return l.Sync() }

// Stats implements host.Log.
func (l *naive) Stats() wal.Stats { return wal.Stats{} }

// Close implements host.Log.
func (l *naive) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = !l.has("a closed log goes on")
	if n := len(l.written); n > 0 && !l.has("Close does not sync") {
		if l.failed.Load() {
			return errSync
		}
		return l.disk.sync(l.written[n-1])
	}
	return nil
}

// letRun lets other goroutines run until enough of them have, but not for ever.
func letRun(enough func() bool) {
	for n := 0; n < 10_000 && !enough(); n++ {
		runtime.Gosched()
	}
}

type naiveGroup struct {
	log   *naive
	looks atomic.Int64 // of readers

	mu     sync.Mutex
	state  groupState
	recent groupState
}

func (g *naiveGroup) get() groupState {
	g.looks.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}

// HardState implements host.GroupLog.
func (g *naiveGroup) HardState() raftpb.HardState {
	if g.log.has("readers wait for a sync") {
		g.log.mu.Lock()
		defer g.log.mu.Unlock()
	}
	return g.get().hs
}

// Snapshot implements host.GroupLog.
func (g *naiveGroup) Snapshot() wal.Snapshot { return g.get().start }

// FirstIndex implements host.GroupLog.
func (g *naiveGroup) FirstIndex() uint64 { return g.get().start.Index + 1 }

// LastIndex implements host.GroupLog.
func (g *naiveGroup) LastIndex() uint64 { s := g.get(); return s.last() }

// Term implements host.GroupLog.
func (g *naiveGroup) Term(i uint64) (uint64, error) {
	if g.log.has("Term reads the disk") {
		g.log.disk.waitForReads()
	}
	s := g.get()
	switch {
	case i < s.start.Index && !g.log.has("compacted terms are 0"):
		return 0, wal.ErrCompacted
	case i < s.start.Index:
		return 0, nil
	case i > s.last():
		return 0, wal.ErrUnavailable
	}
	return s.term(i), nil
}
