package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/budget"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// over is a context that has ended: calls that would wait say for what.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// commit makes host 2 send a group entries [lo, hi) of term 1, all committed.
func (l *testHost) commit(group, lo, hi uint64) {
	m := raftpb.Message{Type: raftpb.MsgApp, Term: 1, Index: lo - 1, Entries: span(lo, hi, 1), Commit: hi - 1}
	if lo > 1 {
		m.LogTerm = 1
	}
	for i := range m.Entries {
		m.Entries[i].Data = []byte("x")
	}
	l.deliverTo(group, m)
}

// failure is a way in which one group fails. It happens in the group's work on entry 2.
type failure struct {
	name  string
	apply func(statemachine.Entry) error
	cause func(t *testing.T, l *testHost, g *Group)
	is    func(error) bool
}

var errMachine = errors.New("the state machine cannot go on")

var failures = []failure{
	{"error in Apply", func(statemachine.Entry) error { return errMachine }, nil, func(err error) bool { return errors.Is(err, errMachine) }},
	{"panic in Apply", func(statemachine.Entry) error { panic("a bug of the user") }, nil, func(err error) bool { return strings.Contains(err.Error(), "a bug of the user") }},
	{"broken invariant", nil, func(_ *testing.T, l *testHost, g *Group) {
		g.inbox.enqueueAnswers([]raftpb.Message{bogusAnswer})
		g.wake()
		l.manual.runIdle()
	}, func(err error) bool { return errors.As(err, new(*raft.BrokenInvariant)) }},
	{"invalid write", nil, func(_ *testing.T, l *testHost, g *Group) {
		l.storage.lane.Hand(g.writes.append, raftpb.Message{Type: raftpb.MsgStorageAppend, To: raft.LocalAppendThread, Entries: span(90, 91, 1)})
		l.manual.runIdle()
	}, func(err error) bool { return errors.Is(err, wal.ErrInvalidWrite) }},
}

// One group fails. It stops, or its machine halts, with its cause and an event, and answers its clients. The
// groups beside it, on the same shard, log and lanes, go on, and it can be closed while they do.
func TestFailureStopsOneGroup(t *testing.T) {
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) {
			var stopped []uint64
			l := openTestHost(t, 3, WithEvents(func(e event.Event) {
				if e, ok := e.(event.GroupStopped); ok {
					stopped = append(stopped, e.Group)
				}
			}))
			machines := map[uint64]*commands{2: {}, 3: {fail: f.apply}, 4: {}}
			for id := uint64(2); id <= 4; id++ {
				l.open(id, machines[id])
			}
			sick := l.Group(3)
			for id := uint64(2); id <= 4; id++ {
				l.commit(id, 1, 2)
			}
			if f.cause != nil {
				f.cause(t, l, sick)
			}
			for id := uint64(2); id <= 4; id++ {
				l.commit(id, 2, 3)
			}
			if f.apply != nil { // the machine halts, and the group stops with nothing
				if err := sick.Halted(); err == nil || !f.is(err) || sick.Err() != nil || len(stopped) > 0 {
					t.Fatalf("the machine is halted with %v, and the group stopped with %v", err, sick.Err())
				}
				stopped = []uint64{3}
			} else if err := sick.Err(); err == nil || !f.is(err) {
				t.Fatalf("the group stopped with %v", err)
			}
			if !slices.Equal(stopped, []uint64{3}) {
				t.Errorf("groups %v were reported to have stopped, want 3", stopped)
			}
			if _, err := sick.Submit([]byte("x")); !errors.Is(err, outcome.ErrStopped) && !errors.Is(err, outcome.ErrMachineHalted) {
				t.Errorf("a client of the group was told %v", err)
			}
			for _, id := range []uint64{2, 4} {
				if n := len(machines[id].entries); n != 2 || l.Group(id).Err() != nil {
					t.Errorf("group %d has applied %d of 2 entries, and stopped with %v", id, n, l.Group(id).Err())
				}
			}
			if err := sick.Close(whileWaiting{t.Context(), l.manual.runIdle}); err != nil {
				t.Errorf("Close: %v", err)
			}
			l.commit(4, 3, 4)
			if n := len(machines[4].entries); n != 3 || l.Group(4).Err() != nil {
				t.Errorf("behind the close a group has applied %d of 3 entries, and stopped with %v", n, l.Group(4).Err())
			}
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The log has failed for good. Every group stops, and can still be closed; a group that is opened after that
// is refused with the cause.
func TestGroupsCloseAfterTheLogHasFailed(t *testing.T) {
	l := openTestHost(t, 3)
	l.open(2, &commands{})
	l.disk.SetHook(crashfs.FailNth(crashfs.OpSync, 1, syscall.EIO))
	l.commit(2, 1, 2)
	l.disk.SetHook(nil)
	for _, id := range []uint64{theGroup, 2} {
		g := l.Group(id)
		if err := g.Err(); !errors.Is(err, syscall.EIO) {
			t.Errorf("group %d stopped with %v", id, err)
		}
		if err := g.Close(whileWaiting{t.Context(), l.manual.runIdle}); err != nil {
			t.Errorf("group %d: %v", id, err)
		}
	}
	if _, err := l.OpenGroup(t.Context(), GroupConfig{ID: 5}, &commands{}); !errors.Is(err, syscall.EIO) {
		t.Errorf("OpenGroup says %v", err)
	}
	if err := l.Close(context.Background()); err != nil && !errors.Is(err, wal.ErrDiskFailed) {
		t.Error(err)
	}
}

// Messages for a group that is not open here, because it was never opened, was closed or was removed, are
// counted and do no harm: no group appears, and the others hear theirs.
func TestLateMessagesDoNoHarm(t *testing.T) {
	l := openTestHost(t, 3)
	for id := uint64(2); id <= 3; id++ {
		l.open(id, &commands{})
		l.deliverTo(id, raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}}, Commit: 1})
	}
	closed := l.Group(2)
	_ = closed.Close(over())
	_ = l.RemoveGroup(over(), 3)
	for range 2 { // while they leave, and when they have left
		for _, id := range []uint64{2, 3, 4} {
			for _, m := range []raftpb.Message{
				{Type: raftpb.MsgHeartbeat, Term: 9}, {Type: raftpb.MsgVote, Term: 9, Index: 9, LogTerm: 9},
				{Type: raftpb.MsgApp, Term: 9, Entries: span(1, 3, 9), Commit: 2},
			} {
				m.From, m.To = 2, 1
				(*inbound)(l.Host).Receive(2, []transport.Envelope{{Group: id, Message: m}, {Group: theGroup, Message: raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 7, From: 2, To: 1}}})
			}
		}
		l.manual.runIdle()
	}
	if open := l.Groups(); !slices.Equal(open, []uint64{theGroup}) {
		t.Errorf("groups %v are open, want 1", open)
	}
	for id, want := range map[uint64]uint64{2: 1, 3: 0, 4: 0} {
		if g := l.storage.log.Group(id); g.LastIndex() != want || g.HardState().Term > 1 {
			t.Errorf("the log of group %d ends at %d with %+v, want %d and no term of a late message", id, g.LastIndex(), g.HardState(), want)
		}
	}
	if s := l.group.Status(); s.Term != 7 || s.Leader != 2 {
		t.Errorf("the open group has %+v, want term 7", s)
	}
	if n := l.network.strays.Load(); n < 9 {
		t.Errorf("%d messages were counted, want at least 9", n)
	}
	l.open(2, &commands{})
	if s := l.Group(2).Status(); s.Term != 1 || s.LastIndex != 1 {
		t.Errorf("opened again, group 2 has %+v", s)
	}
	if err := l.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// The table of the groups has its bounds and sentences.
func TestOpenGroupRefuses(t *testing.T) {
	l := openTestHost(t, 3)
	l.Host.config.MaxGroups = 2
	g := l.open(2, &commands{})
	_, err := l.OpenGroup(t.Context(), GroupConfig{ID: 3}, &commands{})
	if want := "millrace: 2 groups are open on this host, the most that Config.MaxGroups allows"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if _, err := l.OpenGroup(over(), GroupConfig{ID: 3}, &commands{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	_ = g.Close(over())
	_, err = l.OpenGroup(t.Context(), GroupConfig{ID: 2}, &commands{})
	if want := "millrace: group 2 is being closed and is still waiting for the disk; open it again when Close has returned nil"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	l.manual.runIdle()
	l.open(2, &commands{})
	if err := l.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := l.OpenGroup(t.Context(), GroupConfig{ID: 3}, &commands{}); !errors.Is(err, outcome.ErrStopped) {
		t.Errorf("on a closed host: %v", err)
	}
	if err := l.RemoveGroup(t.Context(), 2); !errors.Is(err, outcome.ErrStopped) {
		t.Errorf("RemoveGroup on a closed host: %v", err)
	}
}

// A group is closed in the middle of its turn, which queues more after that. What it held of the host's
// memory is free again: else a host on which groups come and go would take fewer and fewer messages.
func TestCloseInATurnFreesMemory(t *testing.T) {
	out := &duringSend{}
	l := openTestHost(t, 3, WithTransport(out))
	l.lead()
	for i := range 5 {
		l.submit(fmt.Sprint(i))
	}
	out.hook = func() {
		_ = l.group.Close(over())
		for l.storage.lane.RunOnce() {
		}
	}
	l.manual.runIdle()
	if err := l.group.Close(over()); err != nil || l.Group(theGroup) != nil {
		t.Fatalf("Close: %v", err)
	}
	for name, b := range map[string]*budget.Budget{"waiting": &l.memory.waiting, "proposed": &l.memory.proposed, "received": &l.memory.received, "writing": &l.memory.writing} {
		if used := b.Used(); used != 0 {
			t.Errorf("no group is open, and %d bytes of the share %q are used", used, name)
		}
	}
	if err := l.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

type duringSend struct {
	recordingTransport
	hook func()
}

func (s *duringSend) Send(to uint64, batch []transport.Envelope) bool {
	if hook := s.hook; hook != nil {
		s.hook = nil
		hook()
	}
	return s.recordingTransport.Send(to, batch)
}
