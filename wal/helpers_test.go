package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/internal/crcjoin"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// manual is a scheduler that runs a worker only when the test says so.
type manual struct{ tasks []*manualTask }

type manualTask struct {
	worker env.Worker
	woken  atomic.Bool
	dead   bool
}

func (m *manual) Go(_ string, _ env.Kind, w env.Worker) env.Task {
	t := &manualTask{worker: w}
	m.tasks = append(m.tasks, t)
	return t
}

func (t *manualTask) Wake() { t.woken.Store(true) }
func (t *manualTask) Stop() { t.dead = true }

// step calls each woken worker once.
func (m *manual) step() {
	for _, t := range m.tasks {
		if !t.dead && t.woken.Swap(false) && t.worker.RunOnce() {
			t.woken.Store(true)
		}
	}
}

// runIdle runs the workers until none has anything to do. It panics if a worker always has something to do.
func (m *manual) runIdle() {
	for range 10_000 {
		m.step()
		if !slices.ContainsFunc(m.tasks, func(t *manualTask) bool { return t.woken.Load() && !t.dead }) {
			return
		}
	}
	panic("a worker always has something to do")
}

const testDir = "/log"

func testOptions(fs vfs.FS, s env.Scheduler) Options {
	return Options{FS: fs, Dir: testDir, Scheduler: s, Rand: seeded(1), Owner: 7, SegmentBytes: 4096, CacheBytes: 8192, Clock: &fakeClock{}}
}

// seeded returns a source of random numbers that are the same each time.
func seeded(seed byte) io.Reader { return rand.NewChaCha8([32]byte{seed}) }

func mustOpen(t testing.TB, opts Options) *Log {
	t.Helper()
	l, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustAppend(t testing.TB, l *Log, writes ...Write) {
	t.Helper()
	if err := l.Append(writes); err != nil {
		t.Fatal(err)
	}
}

func mustSync(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// entries returns the entries [lo, hi) of a term, each with n bytes that depend on its index and term.
func entries(lo, hi, term uint64, n int) []raftpb.Entry {
	var es []raftpb.Entry
	for i := lo; i < hi; i++ {
		es = append(es, entry(i, term, n))
	}
	return es
}

func entry(i, term uint64, n int) raftpb.Entry {
	return raftpb.Entry{Index: i, Term: term, Data: bytes.Repeat([]byte{byte(i*31 + term*7 + 1)}, n)}
}

// groupState is a group of the naive twin: entries[i] has index start+1+i.
type groupState struct {
	hs      raftpb.HardState
	start   Snapshot
	entries []raftpb.Entry
	deleted bool
}

func (s groupState) last() uint64 { return s.start.Index + uint64(len(s.entries)) }

// through returns the entries up to index i.
func (s groupState) through(i uint64) []raftpb.Entry {
	return s.entries[: i-s.start.Index : i-s.start.Index]
}

func (s groupState) term(i uint64) uint64 {
	if i == s.start.Index {
		return s.start.Term
	}
	return s.entries[i-s.start.Index-1].Term
}

// begin makes the log begin after snap.
func (s *groupState) begin(snap Snapshot) {
	switch {
	case snap.Index <= s.start.Index:
		return
	case snap.Index <= s.last() && s.term(snap.Index) == snap.Term:
		s.entries = s.entries[snap.Index-s.start.Index:]
	default:
		s.entries = nil
	}
	s.start = snap
	if s.hs != (raftpb.HardState{}) {
		s.hs.Commit = max(s.hs.Commit, snap.Index)
	}
}

type twin map[uint64]groupState

// parts splits a write into writes with one part each, in the order in which they take effect.
func parts(w Write) []Write {
	var ws []Write
	add := func(some bool, part Write) {
		if part.Group = w.Group; some {
			ws = append(ws, part)
		}
	}
	add(w.Delete, Write{Delete: true})
	add(w.HardState != (raftpb.HardState{}), Write{HardState: w.HardState})
	add(w.Snapshot != (Snapshot{}), Write{Snapshot: w.Snapshot})
	add(w.CompactThrough != 0, Write{CompactThrough: w.CompactThrough})
	add(w.TruncateFrom != 0, Write{TruncateFrom: w.TruncateFrom})
	for _, e := range w.Entries {
		add(true, Write{Entries: []raftpb.Entry{e}})
	}
	return ws
}

func (m twin) apply(writes []Write) {
	for _, w := range writes {
		for _, p := range parts(w) {
			m.applyPart(p)
		}
	}
}

// enumerates skips a test under -race -short. Such a test does the same thing thousands of times, or with
// much memory, on one goroutine: the race detector would make it take minutes, and find nothing.
func enumerates(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("one goroutine, thousands of times: not for the race detector")
	}
}

// append appends writes to a log and to its twin, and syncs the log.
func (m twin) append(t testing.TB, l *Log, writes ...Write) {
	t.Helper()
	mustAppend(t, l, writes...)
	m.apply(writes)
	mustSync(t, l)
}

func (m twin) applyPart(w Write) {
	if w.Delete {
		m[w.Group] = groupState{deleted: true}
		return
	}
	s := m[w.Group]
	switch {
	case w.HardState != (raftpb.HardState{}):
		s.hs = w.HardState
		s.hs.Commit = max(s.hs.Commit, s.start.Index)
	case w.Snapshot != (Snapshot{}):
		s.begin(w.Snapshot)
	case w.CompactThrough > s.start.Index:
		s.begin(Snapshot{w.CompactThrough, s.term(w.CompactThrough)})
	case w.TruncateFrom != 0 && w.TruncateFrom <= s.last():
		s.entries = s.through(w.TruncateFrom - 1)
	case len(w.Entries) > 0:
		s.entries = append(s.through(w.Entries[0].Index-1), w.Entries...)
	}
	m[w.Group] = s
}

func (m twin) clone() twin {
	c := twin{}
	for id, s := range m {
		c[id] = s
	}
	return c
}

// diff returns how group id of l differs from s, or "".
func (s groupState) diff(l *Log, id uint64) string {
	g := l.Group(id)
	if g.Deleted() != s.deleted {
		return fmt.Sprintf("group %d: deleted %v, want %v", id, g.Deleted(), s.deleted)
	}
	if g.HardState() != s.hs {
		return fmt.Sprintf("group %d: hard state %+v, want %+v", id, g.HardState(), s.hs)
	}
	first, last := s.start.Index+1, s.last()
	if g.FirstIndex() != first || g.LastIndex() != last || g.Snapshot() != s.start {
		return fmt.Sprintf("group %d: indexes [%d, %d] after %+v, want [%d, %d] after %+v", id, g.FirstIndex(), g.LastIndex(), g.Snapshot(), first, last, s.start)
	}
	if term, err := g.Term(s.start.Index); err != nil || term != s.start.Term {
		return fmt.Sprintf("group %d: term of %d, before the first, is %d, %v; want %d", id, s.start.Index, term, err, s.start.Term)
	}
	got, err := g.Entries(first, last+1, ^uint64(0))
	if err != nil {
		return fmt.Sprintf("group %d: %v", id, err)
	}
	if len(got) != len(s.entries) {
		return fmt.Sprintf("group %d: read %d entries, want %d", id, len(got), len(s.entries))
	}
	for i, e := range got {
		if w := s.entries[i]; !sameEntry(e, w) {
			return fmt.Sprintf("group %d: entry %d is (index %d, term %d, type %d, %d bytes), want (%d, %d, %d, %d)",
				id, first+uint64(i), e.Index, e.Term, e.Type, len(e.Data), w.Index, w.Term, w.Type, len(w.Data))
		}
		if term, err := g.Term(e.Index); err != nil || term != e.Term {
			return fmt.Sprintf("group %d: term of %d is %d, %v; want %d", id, e.Index, term, err, e.Term)
		}
	}
	return ""
}

// sameEntry compares what is durable, and the sum with the data, if there is one.
func sameEntry(a, b raftpb.Entry) bool {
	if b.Sum != 0 && b.Sum != crcjoin.Sum(b.Data) {
		return false
	}
	return a.Index == b.Index && a.Term == b.Term && a.Type == b.Type && bytes.Equal(a.Data, b.Data)
}

// deleted returns the deleted groups, in order.
func (m twin) deleted() (ids []uint64) {
	for id := range m {
		if m[id].deleted {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (m twin) check(t interface{ Fatal(...any) }, l *Log) {
	if have, want := l.Deleted(), m.deleted(); !slices.Equal(have, want) {
		t.Fatal(fmt.Sprintf("%d deleted groups, want %d: %.200v, want %.200v", len(have), len(want), fmt.Sprint(have), fmt.Sprint(want)))
	}
	for id, s := range m {
		if d := s.diff(l, id); d != "" {
			t.Fatal(d)
		}
	}
}

var (
	errDisk = errors.New("disk is on fire")
	_       = crashfs.SectorBytes
)

// placed is the header of a record, with its segment and offset.
type placed struct {
	record.Header
	Segment uint64
	Offset  int64
}

// readRecords calls yield with each valid record of the log in testDir, in order. It is a naive twin of the
// scan.
func readRecords(t testing.TB, fs *crashfs.FS, yield func(placed) error) error {
	names, err := fs.ReadDir(testDir)
	if err != nil {
		return err
	}
	dir := files(t, fs)
	for _, name := range names {
		id, ok := record.ParseSegmentName(name)
		if !ok {
			continue
		}
		head, _ := record.ParseSegmentHeader(dir[name])
		for off, chain := int64(record.SegmentHeaderBytes), head.CRC; ; {
			h, _, why := record.Parse(dir[name][min(off, int64(len(dir[name]))):], head.Seal(), off, chain)
			if why != record.FlawNone {
				break
			}
			if err := yield(placed{Header: h, Segment: id, Offset: off}); err != nil {
				return err
			}
			off, chain = off+h.Bytes(), h.Chain
		}
	}
	return nil
}
