package host

import (
	"testing"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// openJoined opens host 1 on a disk, with a group that hosts 2 and 3 have founded, and that adds it later.
func openJoined(t *testing.T, disk *crashfs.FS) *testHost {
	t.Helper()
	l := &testHost{t: t, manual: &manualEnv{}, disk: disk, out: &recordingTransport{}}
	c := Config{ID: 1, Dir: "data", Members: map[uint64]string{1: "nowhere", 2: "nowhere", 3: "nowhere"}, SegmentBytes: 64 << 10, MemoryBytes: 4 << 20}
	h, err := Open(t.Context(), c, WithEnv(l.manual.env()), WithFS(disk), WithTransport(l.out), WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	l.Host = h
	l.manual.timers = l.manual.timers[1:] // the first is the log's idle timer
	l.meet()
	g, err := h.OpenGroup(t.Context(), GroupConfig{ID: theGroup, Members: []uint64{2, 3}, Joins: true}, Commands(&keeper{}, statemachine.CommandOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	l.group = g
	l.manual.runIdle()
	return l
}

// A member reads in the log how it was added. It takes no snapshot from before that, since the next start
// could not begin from one: such a snapshot is of a group that does not have this directory.
func TestNoSnapshotFromBeforeAMemberWasAdded(t *testing.T) {
	l := openJoined(t, crashfs.New())
	founders := []membership.Member{{ID: 2, Incarnation: incarnationOf(2)}, {ID: 3, Incarnation: incarnationOf(3)}}
	r := membership.Founded(founders)
	stages, err := r.Make([]membership.Want{{Op: membership.Add, Learner: true, Member: membership.Member{ID: 1, Incarnation: l.incarnation()}}})
	if err != nil {
		t.Fatal(err)
	}
	plan := membership.Plan{ID: membership.PlanID{7}, Base: r.Changed, Stages: stages}
	kind, change, err := raftpb.MarshalConfChange(membership.Change{Base: begun + 1, Plan: plan.ID, Steps: stages[0]}.Entry())
	if err != nil {
		t.Fatal(err)
	}
	founded := raftpb.Message{Type: raftpb.MsgApp, Term: 1, Commit: begun, Entries: []raftpb.Entry{{Index: 1, Term: 1},
		foundAt(2, 1, entry.Binding{{ID: 2, Incarnation: incarnationOf(2)}, {ID: 3, Incarnation: incarnationOf(3)}}), foundedAt(begun, 1)}}
	added := raftpb.Message{Type: raftpb.MsgApp, Term: 1, LogTerm: 1, Index: begun, Commit: begun + 2, Entries: []raftpb.Entry{
		{Index: begun + 1, Term: 1, Type: raftpb.EntryHost, Data: append([]byte{entry.PlanKind}, plan.Encode()...)},
		{Index: begun + 2, Term: 1, Type: kind, Data: change}}}

	l.deliver(founded)
	s := l.group.StartSnapshot()
	l.pass(2)
	if info, done, err := s.Poll(); done {
		t.Errorf("host 1 is no member yet, and took %+v, %v", info, err)
	}
	l.deliver(added)
	l.pass(8)
	if info, done, err := s.Poll(); !done || err != nil || info.Index != begun+2 {
		t.Fatalf("host 1 is a member: the snapshot is %+v, done %t, %v; the roster is %+v", info, done, err, l.group.roster())
	}
	if again := openJoined(t, l.disk.Image(crashfs.LoseAll, nil)); again.group.Status().Applied != begun+2 {
		t.Errorf("after a start it is at %+v", again.group.Status())
	}
}

// pass lets beats pass.
func (l *testHost) pass(beats int) {
	for range beats {
		l.manual.tick()
		l.manual.runIdle()
	}
}
