package apply

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// script is a group without a host: what its queue asks of it is noted.
type script struct {
	queue *Queue
	*bench
	log     []raftpb.Entry
	answers []raftpb.Message
	failed  error
	halts   []*outcome.HaltedError
	resumed int
	noted   int
	retries []func()
	restore func() error // from a snapshot; nil: there is none
	leads   bool
}

func newScript(m statemachine.Machine) *script {
	s := &script{bench: newBench(1)}
	ticks := func() int64 { return 0 }
	s.queue = New(s, Settings{
		Group: 7, Self: 1, Machine: m, Lanes: &s.Lanes, Log: (*scriptLog)(s), FS: crashfs.New(), Dir: "/group", Ticks: ticks,
		Logger: slog.New(slog.DiscardHandler), Retry: func(f func(), _ error) { s.retries = append(s.retries, f) },
	})
	return s
}

func (s *script) Leads() bool                      { return s.leads }
func (s *script) Err() error                       { return s.failed }
func (s *script) Released()                        {}
func (s *script) Fail(err error)                   { s.failed = err }
func (s *script) Between(sync.Locker)              {}
func (s *script) Counted([]raftpb.Entry)           {}
func (s *script) Suspend(*outcome.HaltedError)     {}
func (s *script) Wake()                            {}
func (s *script) Want()                            {}
func (s *script) Resume()                          { s.resumed++ }
func (s *script) Report(h *outcome.HaltedError)    { s.halts = append(s.halts, h) }
func (s *script) SkipNoted()                       { s.noted++ }
func (s *script) VersionChanged()                  {}
func (s *script) Snapshot() (func() error, string) { return s.restore, "a snapshot" }

func (s *script) Done(_ uint64, answers []raftpb.Message) { s.answers = append(s.answers, answers...) }

// scriptLog is its log.
type scriptLog script

func (l *scriptLog) FirstIndex() uint64 { return 1 }
func (l *scriptLog) LastIndex() uint64  { return uint64(len(l.log)) }

func (l *scriptLog) Term(index uint64) (uint64, error) {
	if index == 0 || index > uint64(len(l.log)) {
		return 0, errors.New("the log has no such entry")
	}
	return l.log[index-1].Term, nil
}

func (l *scriptLog) Recent(lo, hi, _ uint64) ([]raftpb.Entry, bool) {
	return l.log[lo-1 : hi-1 : hi-1], true
}

func (l *scriptLog) Entries(lo, hi, _ uint64) ([]raftpb.Entry, error) {
	return l.log[lo-1 : hi-1 : hi-1], nil
}

// commit puts commands into the log, and hands them out as one message.
func (s *script) commit(texts ...string) {
	first := uint64(len(s.log))
	for i, text := range texts {
		s.log = append(s.log, raftpb.Entry{Term: 1, Index: first + uint64(i) + 1, Data: []byte(text)})
	}
	s.queue.Hand(raftpb.Message{Type: raftpb.MsgStorageApply, Index: first, Commit: uint64(len(s.log)), Responses: []raftpb.Message{{Type: raftpb.MsgStorageApplyResp, Index: uint64(len(s.log))}}})
}

// run lets the lane work until nothing is left, and answers the callers of a halted machine, as a turn does.
func (s *script) run() {
	for range 10 {
		ended := make(chan struct{})
		go func() { // which a machine may end
			defer close(ended)
			for _, l := range s.All() {
				for l.RunOnce() {
				}
			}
		}()
		<-ended
		if h := s.queue.Untold(); h != nil {
			s.queue.Told(h)
		}
	}
}

func mixed() []raftpb.Entry {
	return []raftpb.Entry{
		{Index: 1, Term: 1}, // a leader's first
		{Index: 2, Term: 1, Data: []byte("a")},
		{Index: 3, Term: 1, Data: []byte("b")},
		{Index: 4, Term: 1, Type: raftpb.EntryConfChange, Data: []byte("c")},
		{Index: 5, Term: 2},
		{Index: 6, Term: 2, Data: []byte("d")},
		{Index: 7, Term: 3},
	}
}

// shape is a state machine that records the batches of its calls.
type shape struct{ calls []string }

func (s *shape) Apply(entries []statemachine.Entry) error {
	var b strings.Builder
	for _, e := range entries {
		b.Write(e.Data)
	}
	if cap(entries) != len(entries) {
		return errors.New("an append by the state machine would write into the next entries")
	}
	s.calls = append(s.calls, b.String())
	return nil
}

// The state machine gets commands and none of Raft's own entries, in as few calls as possible.
func TestApplyFiltersRaftsOwn(t *testing.T) {
	m := &shape{}
	a := newScript(m).queue
	if err := a.apply(mixed()); err != nil {
		t.Fatal(err)
	}
	if err := a.apply(mixed()[:1]); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal([]string{"ab", "d"}, m.calls) {
		t.Errorf("called with %q", m.calls)
	}
	if calls, n := a.Calls(); calls != 2 || n != 3 {
		t.Errorf("counted %d calls and %d commands", calls, n)
	}
}

// Everything queued is applied in one round, and answered message by message.
func TestApplyLaneJoinsWhatIsQueued(t *testing.T) {
	m := &shape{}
	s := newScript(m)
	q := s.queue
	for i := range uint64(3) {
		entries := []raftpb.Entry{{Index: i + 1, Term: 1, Data: []byte{'a' + byte(i)}}}
		q.Enqueue(raftpb.Message{Entries: entries, Responses: []raftpb.Message{{Type: raftpb.MsgStorageApplyResp, Entries: entries}}})
		q.Wake()
	}
	s.run()
	answers := s.answers
	if !slices.Equal([]string{"abc"}, m.calls) {
		t.Errorf("called with %q", m.calls)
	}
	if len(answers) != 3 || answers[2].Entries[0].Index != 3 {
		t.Errorf("answered %v", answers)
	}
}

// A queue that has been worked off keeps no message: each keeps an array of the core alive, and the group may
// be idle from now on.
func TestApplyKeepsNothingThatIsDone(t *testing.T) {
	s := newScript(&shape{})
	q := s.queue
	for i := range uint64(3) {
		q.Enqueue(raftpb.Message{
			Type: raftpb.MsgStorageApply, Entries: []raftpb.Entry{{Index: i + 1, Data: []byte("x")}},
			Responses: []raftpb.Message{{Type: raftpb.MsgStorageApplyResp, Index: i + 1}},
		})
	}
	for !q.Empty() || len(q.work) > 0 {
		q.Round(1)
	}
	if n := len(s.answers); n != 3 {
		t.Errorf("%d answers, want 3", n)
	}
	for _, of := range append(q.Arrays(), q.work[:cap(q.work)]) {
		for i := range of {
			if of[i].Responses != nil || of[i].Entries != nil {
				t.Errorf("the queue still has %+v", of[i])
			}
		}
	}
}

// What waits until everything is applied is called, also if it came while there was work: nothing else may
// come for this group.
func TestApplyEndsWithWhatIsDrained(t *testing.T) {
	q := newScript(&shape{}).queue
	q.Enqueue(raftpb.Message{Type: raftpb.MsgStorageApply, Entries: []raftpb.Entry{{Index: 1, Data: []byte("x")}}})
	var applied uint64
	drained := func() { applied = q.Position().Index }
	q.drained.Store(&drained)
	for q.Round(workqueue.MaxRoundBytes) || !q.Empty() { // as Wants decides
	}
	if applied != 1 {
		t.Errorf("when the lanes leave the group, entry %d was applied before the function was called, want 1", applied)
	}
}
