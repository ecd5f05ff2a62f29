package storage

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// memoryLog is a log that begins at entry 1, and of which nothing is recent.
type memoryLog struct {
	entries []raftpb.Entry
	err     error // of Entries
}

// put appends entries, in place of those from the first of them on.
func (l *memoryLog) put(entries []raftpb.Entry) {
	l.entries = append(l.entries[:entries[0].Index-1], entries...)
}

func (l *memoryLog) HardState() raftpb.HardState { return raftpb.HardState{Vote: 2} }
func (l *memoryLog) FirstIndex() uint64          { return 1 }
func (l *memoryLog) LastIndex() uint64           { return uint64(len(l.entries)) }
func (l *memoryLog) Typed(lo, hi uint64) (indexes []uint64) {
	for _, e := range l.entries[lo-1 : hi-1] {
		if e.Type != raftpb.EntryNormal {
			indexes = append(indexes, e.Index)
		}
	}
	return indexes
}

func (l *memoryLog) Term(i uint64) (uint64, error) {
	if i > l.LastIndex() {
		return 0, wal.ErrUnavailable
	}
	return l.entries[i-1].Term, nil
}

func (l *memoryLog) Recent(lo, hi, maxBytes uint64) ([]raftpb.Entry, bool) { return nil, false }

func (l *memoryLog) Entries(lo, hi, maxBytes uint64) ([]raftpb.Entry, error) {
	switch {
	case l.err != nil:
		return nil, l.err
	case hi-1 > l.LastIndex():
		return nil, wal.ErrUnavailable
	}
	return slices.Clone(l.entries[lo-1 : hi-1]), nil
}

// readGroup is the group of a storage.
type readGroup struct {
	id      uint64
	arrived []Result
	unknown []uint64
}

func (g *readGroup) ID() uint64                        { return g.id }
func (g *readGroup) Unknown(member uint64, _ error)    { g.unknown = append(g.unknown, member) }
func (g *readGroup) Snapshot() (raftpb.Snapshot, bool) { return raftpb.Snapshot{}, false }
func (g *readGroup) Arrived(r Result)                  { g.arrived = append(g.arrived, r) }

// task counts wakes.
type task struct{ wakes int }

func (t *task) Wake() { t.wakes++ }
func (t *task) Stop() {}

func span(lo, hi, term uint64) (entries []raftpb.Entry) {
	for i := lo; i < hi; i++ {
		entries = append(entries, raftpb.Entry{Index: i, Term: term})
	}
	return entries
}

// Entries that a lane has read for a follower count only if the log still has them when the core asks again:
// meanwhile another leader may have replaced them.
func TestEntriesThatWereReadAreComparedWithTheLog(t *testing.T) {
	log := &memoryLog{}
	log.put(span(1, 4, 1))
	s := New(log)
	read := func() (bool, error) {
		s.Keep(Result{Reader: 2, Lo: 1, Entries: span(1, 4, 1)})
		_, found, err := s.pop(2, 1, 4)
		return found, err
	}
	if found, err := read(); !found || err != nil {
		t.Errorf("entries that the log has: found %t, %v", found, err)
	}
	log.put(span(3, 5, 2))
	if found, err := read(); found || err != nil {
		t.Errorf("entries of which the last was replaced: found %t, %v", found, err)
	}
}

// While a read hangs, leaderships come and go: one request of a group waits behind it, the latest.
func TestWaitingReadIsReplaced(t *testing.T) {
	l, g := Reader{host: 2}, &readGroup{id: 1}
	for term := range uint64(5) {
		l.enqueue(request{group: g, reader: 2, lo: term, hi: term + 1})
		l.enqueue(request{group: &readGroup{id: 100 + term}, reader: 2})
	}
	if n := len(l.waiting); n != 6 || l.waiting[0].group != g || l.waiting[0].lo != 4 {
		t.Errorf("%d requests wait, the first for entries from %d of group %d; want 6, the first for 4 of 1", n, l.waiting[0].lo, l.waiting[0].group.ID())
	}
}

// A core that asks for old entries is told to wait, a lane reads them, and the core gets them when it asks
// again; once.
func TestOldEntriesAreReadAside(t *testing.T) {
	log, g := &memoryLog{}, &readGroup{id: 1}
	log.put(span(1, 6, 1))
	lanes := map[string]env.Worker{}
	var woken task
	var later func()
	readers := StartReaders([]uint64{2}, func(name string, w env.Worker) env.Task { lanes[name] = w; return &woken }, func(wake func(), _ error) { later = wake })
	s := New(log)
	if entries, err := s.EntriesFor(2, 2, 5, 1<<20); err != nil || len(entries) != 3 {
		t.Errorf("while the core starts: %d entries, %v", len(entries), err)
	}
	s.Begin(g, readers)
	ask := func(reader uint64) ([]raftpb.Entry, error) { return s.EntriesFor(reader, 2, 5, 1<<20) }
	if _, err := ask(2); !errors.Is(err, raft.ErrEntriesPending) || woken.wakes != 1 {
		t.Fatalf("%v, and a lane was woken %d times", err, woken.wakes)
	}
	lane := lanes["reader for host 2"]
	log.err = syscall.EMFILE
	if lane.RunOnce() || len(g.arrived) > 0 || later == nil {
		t.Fatalf("arrived %+v, although nothing could be opened", g.arrived)
	}
	log.err = nil
	if lane.RunOnce(); len(g.arrived) != 1 {
		t.Fatal("a lane has not read again")
	}
	s.Keep(g.arrived[0])
	if entries, err := ask(2); err != nil || len(entries) != 3 || entries[0].Index != 2 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	if _, err := ask(2); !errors.Is(err, raft.ErrEntriesPending) {
		t.Errorf("what was read was given twice: %v", err)
	}
	lane.RunOnce()
	s.Keep(g.arrived[1])
	if s.Forget(); s.Kept() > 0 {
		t.Error("a member that does not lead keeps what was read for others")
	}
	if _, err := ask(9); !errors.Is(err, raft.ErrEntriesPending) || !slices.Equal(g.unknown, []uint64{9}) {
		t.Errorf("a host that is not known: %v, said of %v", err, g.unknown)
	}
	if entries, err := ask(raft.LocalApplyThread); err != nil || len(entries) != 3 {
		t.Errorf("for the state machine: %d entries, %v", len(entries), err)
	}
}

// The core sees the errors of the log as its own, and which entries change members.
func TestLogForTheCore(t *testing.T) {
	log := &memoryLog{}
	log.put([]raftpb.Entry{{Index: 1, Term: 1}, {Index: 2, Term: 1, Type: raftpb.EntryConfChange}, {Index: 3, Term: 1, Type: raftpb.EntryHost}})
	s := New(log)
	s.Conf = raftpb.ConfState{Voters: []uint64{1, 2}}
	if hs, conf, err := s.InitialState(); err != nil || hs.Vote != 2 || len(conf.Voters) != 2 {
		t.Errorf("%+v, %+v, %v", hs, conf, err)
	}
	if changes, err := s.Changes(1, 4); err != nil || !slices.Equal(changes, []uint64{2}) {
		t.Errorf("changes of members: %v, %v", changes, err)
	}
	if _, err := s.Term(4); !errors.Is(err, raft.ErrUnavailable) {
		t.Error(err)
	}
	log.err = wal.ErrCompacted
	if _, err := s.Entries(1, 2, 1); !errors.Is(err, raft.ErrCompacted) {
		t.Error(err)
	}
	if _, err := s.Snapshot(); !errors.Is(err, raft.ErrSnapshotTemporarilyUnavailable) {
		t.Error(err)
	}
}
