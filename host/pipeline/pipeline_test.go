package pipeline_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// script is a pipeline.Steps that writes down what it is asked to do, and fails where it is told to.
type script struct {
	done   []string
	failAt string
}

var errScript = errors.New("as the script says")

func (s *script) note(step, format string, args ...any) error {
	s.done = append(s.done, strings.TrimSpace(step+" "+fmt.Sprintf(format, args...)))
	if step == s.failAt {
		return errScript
	}
	return nil
}

func (s *script) Save(hs raftpb.HardState, entries []raftpb.Entry, sync bool) error {
	return s.note("save", "%d, term %d, sync %t", len(entries), hs.Term, sync)
}
func (s *script) Send(messages []raftpb.Message) {
	var kinds []string
	for _, m := range messages {
		kinds = append(kinds, fmt.Sprintf("%v:%d", m.Type, m.To))
	}
	_ = s.note("send", "%s", strings.Join(kinds, " "))
}
func (s *script) Acknowledge(committed []raftpb.Entry) {
	_ = s.note("acknowledge", "%d", len(committed))
}

func (s *script) AcknowledgeEarly(committed []raftpb.Entry) {
	_ = s.note("acknowledge early", "%d", len(committed))
}
func (s *script) Apply(committed []raftpb.Entry) error { return s.note("apply", "%d", len(committed)) }
func (s *script) Advance(raft.Ready)                   { _ = s.note("advance", "") }
func (s *script) QueueAppend(m raftpb.Message)         { _ = s.note("queue append", "%d", len(m.Entries)) }
func (s *script) QueueApply(m raftpb.Message)          { _ = s.note("queue apply", "%d", len(m.Entries)) }

// ready is one of a leader that has everything to do at once: 3 entries to save, 2 committed, messages of
// several kinds.
func ready(async bool) raft.Ready {
	rd := raft.Ready{
		HardState:        raftpb.HardState{Term: 7, Vote: 1, Commit: 5},
		Entries:          make([]raftpb.Entry, 3),
		CommittedEntries: make([]raftpb.Entry, 2),
		MustSync:         true,
		Messages: []raftpb.Message{
			{Type: raftpb.MsgHeartbeat, To: 2}, {Type: raftpb.MsgApp, To: 2}, {Type: raftpb.MsgAppResp, To: 3}, {Type: raftpb.MsgApp, To: 3},
		},
	}
	if async {
		rd.Messages = append(rd.Messages,
			raftpb.Message{Type: raftpb.MsgStorageAppend, To: raft.LocalAppendThread, Entries: rd.Entries},
			raftpb.Message{Type: raftpb.MsgStorageApply, To: raft.LocalApplyThread, Entries: rd.CommittedEntries})
	}
	return rd
}

const (
	appends = "send MsgApp:2 MsgApp:3"
	others  = "send MsgHeartbeat:2 MsgAppResp:3"
	all     = "send MsgHeartbeat:2 MsgApp:2 MsgAppResp:3 MsgApp:3"
	save    = "save 3, term 7, sync true"
)

// The schedules, as the package comment draws them.
func TestSchedules(t *testing.T) {
	for _, row := range []struct {
		p    pipeline.Pipeline
		want []string
	}{
		{pipeline.Basic{}, []string{save, all, "apply 2", "acknowledge 2", "advance"}},
		{pipeline.Parallel{}, []string{"acknowledge early 2", appends, save, others, "apply 2", "advance"}},
		{pipeline.Async{}, []string{"acknowledge early 2", all, "queue append 3", "queue apply 2"}},
		{pipeline.Clamped{}, []string{"acknowledge 2", all, "queue append 3", "queue apply 2"}},
	} {
		t.Run(row.p.Name(), func(t *testing.T) {
			s := &script{}
			if err := row.p.Handle(ready(row.p.AsyncStorageWrites()), s); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, s.done); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An error ends the Ready where it stands: nothing that rests on the failed step is done.
func TestSchedulesStopAtErrors(t *testing.T) {
	for _, row := range []struct {
		p      pipeline.Pipeline
		failAt string
		want   []string
	}{
		{pipeline.Basic{}, "save", []string{save}},
		{pipeline.Basic{}, "apply", []string{save, all, "apply 2"}},
		{pipeline.Parallel{}, "save", []string{"acknowledge early 2", appends, save}},
		{pipeline.Parallel{}, "apply", []string{"acknowledge early 2", appends, save, others, "apply 2"}},
	} {
		t.Run(row.p.Name()+"/"+row.failAt, func(t *testing.T) {
			s := &script{failAt: row.failAt}
			if err := row.p.Handle(ready(false), s); !errors.Is(err, errScript) {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(row.want, s.done); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Work for one of the workers only, or for none.
func TestAsyncQueuesWhatThereIs(t *testing.T) {
	for _, row := range []struct {
		messages []raftpb.Message
		want     []string
	}{
		{nil, []string{"acknowledge early 0", "send"}},
		{[]raftpb.Message{{Type: raftpb.MsgApp, To: 2}}, []string{"acknowledge early 0", "send MsgApp:2"}},
		{[]raftpb.Message{{To: raft.LocalAppendThread}}, []string{"acknowledge early 0", "send", "queue append 0"}},
		{[]raftpb.Message{{Type: raftpb.MsgApp, To: 2}, {To: raft.LocalApplyThread}}, []string{"acknowledge early 0", "send MsgApp:2", "queue apply 0"}},
	} {
		s := &script{}
		if err := (pipeline.Async{}).Handle(raft.Ready{Messages: row.messages}, s); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(row.want, s.done); diff != "" {
			t.Error(diff)
		}
	}
}

// The messages of a Ready are immutable: to part them must not write into them.
func TestParallelLeavesTheReadyAsItIs(t *testing.T) {
	rd, want := ready(false), ready(false)
	if err := (pipeline.Parallel{}).Handle(rd, &script{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Messages, rd.Messages, cmp.Comparer(func(a, b raftpb.Message) bool { return a.Type == b.Type && a.To == b.To })); diff != "" {
		t.Error(diff)
	}
}

func TestByName(t *testing.T) {
	for _, p := range pipeline.All {
		if got, err := pipeline.ByName(p.Name()); err != nil || got != p {
			t.Errorf("%s: %v, %v", p.Name(), got, err)
		}
	}
	if _, err := pipeline.ByName("warp"); err == nil || err.Error() != `unknown pipeline "warp"; choose one of basic, parallel, async` {
		t.Error(err)
	}
}
