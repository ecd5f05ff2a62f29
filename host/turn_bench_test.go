package host

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/crcjoin"
	"github.com/millrace/millrace/internal/stopwatch"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
)

// These benchmarks drive a host of three by hand and play the other two. They measure the turns, and the
// rounds of the apply lane: a command comes, and its round goes on without a tick. Their times mean something
// only beside those of another commit, on one machine and in turn:
//
//	go test ./host -run '^$' -bench 'Turn|Receive' -benchtime 5000x -count 6

// steady is a group that replicates commands, whose turns are measured.
type steady struct {
	*Host
	group   *Group
	manual  *manualEnv
	turns   stopwatch.Watch
	applies stopwatch.Watch // rounds of the apply lanes
	reads   int64           // of the clock, in turns
	counted int
}

// silentTransport drops what is sent.
type silentTransport struct{ recordingTransport }

func (*silentTransport) Send(uint64, []transport.Envelope) bool { return true }

type ignore struct{}

func (ignore) Apply([]statemachine.Entry) error { return nil }

func newSteady(b testing.TB) *steady {
	s, disk := &steady{manual: &manualEnv{}}, stopwatch.NewDisk(crashfs.New())
	c := Config{ID: 1, Dir: "data", Members: map[uint64]string{1: "a", 2: "b", 3: "c"}, MemoryBytes: 256 << 20}
	h, err := Open(b.Context(), c, WithEnv(s.manual.env()), WithFS(disk), WithTransport(&silentTransport{}), WithLogger(quiet))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ended := make(chan error)
		go func() { ended <- h.Close(context.Background()) }()
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
				s.manual.runIdle()
			}
		}
	})
	s.Host = h
	for _, id := range h.others() {
		in := (*inbound)(h)
		peer := in.Introduce()
		peer.ID, peer.Incarnation, peer.Addr = id, incarnationOf(id), fmt.Sprint("host ", id)
		if err := in.Admit(peer, "test"); err != nil {
			b.Fatal(err)
		}
		in.Receive(id, nil)
	}
	s.manual.runIdle()
	if s.group, err = h.OpenGroup(b.Context(), GroupConfig{ID: theGroup}, ignore{}); err != nil {
		b.Fatal(err)
	}
	s.manual.runIdle()
	disk.Forget()
	return s
}

// work lets everything run until it is idle, and measures the turns.
func (s *steady) work() {
	for idle := false; !idle; {
		idle = true
		for _, t := range s.manual.tasks {
			if !t.woken || t.dead {
				continue
			}
			t.woken, idle = false, false
			before := s.manual.reads.Load()
			switch w := t.worker.(type) {
			case *sched.Worker:
				s.turns.Begin()
				t.woken = w.RunOnce()
				s.turns.End()
				s.reads += s.manual.reads.Load() - before
				s.counted++
			case *apply.Lane:
				s.applies.Begin()
				t.woken = w.RunOnce()
				s.applies.End()
			default:
				t.woken = w.RunOnce()
			}
		}
	}
}

func (s *steady) hear(from uint64, m raftpb.Message) {
	m.From, m.To = from, 1
	(*inbound)(s.Host).Receive(from, []transport.Envelope{{Group: theGroup, Message: m}})
}

func (s *steady) lead(b testing.TB) {
	s.group.Campaign()
	s.manual.runIdle()
	s.hear(2, raftpb.Message{Type: raftpb.MsgPreVoteResp, Term: 1})
	s.manual.runIdle()
	s.hear(2, raftpb.Message{Type: raftpb.MsgVoteResp, Term: 1})
	s.manual.runIdle()
	for index := uint64(1); index <= begun; index++ {
		for _, id := range s.others() {
			s.hear(id, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: index})
		}
		s.manual.runIdle()
	}
	if st := s.group.Status(); st.Committed != begun || st.Leader != 1 {
		b.Fatalf("the host does not lead: %+v", st)
	}
	s.manual.fireTimers()
}

// report reports what a turn and a round have cost.
func (s *steady) report(b *testing.B) {
	s.turns.Report(b, "turn")
	s.applies.Report(b, "apply")
	b.ReportMetric(float64(s.counted)/float64(b.N), "turns/op")
	b.ReportMetric(float64(s.reads)/float64(s.counted), "clocks/turn")
	b.ReportMetric(0, "ns/op")
}

var benchBatches = []int{1, 100}

// A round of a leader: commands are proposed, its own disk and a follower have them, and they are applied.
// The answer of the other follower comes too late to matter.
func BenchmarkLeaderTurn(b *testing.B) {
	for _, n := range benchBatches {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newSteady(b)
			s.leads(b, b.N, n)
			s.report(b)
		})
	}
}

// leads makes the host lead, and replicates n commands in each of some rounds.
func (s *steady) leads(b testing.TB, rounds, n int) {
	s.lead(b)
	pending := make([]Pending, n)
	for range rounds {
		for i := range pending {
			var err error
			if pending[i], err = s.group.Submit(make([]byte, 1<<10)); err != nil {
				b.Fatal(err)
			}
		}
		s.work()
		m := raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: s.group.Status().LastIndex}
		for _, id := range s.others() {
			s.hear(id, m)
			s.work()
		}
		for i := range pending {
			if _, done, err := pending[i].Poll(); !done || err != nil {
				b.Fatalf("done %t, %v", done, err)
			}
		}
	}
}

// A round of a follower: entries come with the commit index of those before, and are written and applied.
func BenchmarkFollowerTurn(b *testing.B) {
	for _, n := range benchBatches {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newSteady(b)
			s.follows(b, b.N, n)
			s.report(b)
		})
	}
}

// follows makes the host a follower, which gets n entries in each of some rounds.
func (s *steady) follows(b testing.TB, rounds, n int) {
	s.hear(2, raftpb.Message{Type: raftpb.MsgApp, Term: 1, Commit: begun, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, (&testHost{Host: s.Host}).bindingOf(0)), foundedAt(3, 1)}})
	s.manual.runIdle()
	if !s.group.Founding().Founded {
		b.Fatal("the group is not founded")
	}
	data := make([]byte, 1<<10)
	sum := crcjoin.Sum(data)
	for round := range rounds {
		before := uint64(begun + round*n)
		m := raftpb.Message{Type: raftpb.MsgApp, Term: 1, Index: before, LogTerm: 1, Commit: before}
		for i := range n {
			m.Entries = append(m.Entries, raftpb.Entry{Term: 1, Index: before + uint64(i) + 1, Data: data, Sum: sum})
		}
		s.hear(2, m)
		s.work()
		s.hear(2, raftpb.Message{Type: raftpb.MsgApp, Term: 1, Index: before + uint64(n), LogTerm: 1, Commit: before + uint64(n)})
		s.work()
	}
	if st := s.group.Status(); st.Committed != uint64(begun+rounds*n) {
		b.Fatalf("the follower is behind: %+v", st)
	}
}

// What a steady turn does is counted: its shard reads the clock once, and what it hands to the apply lanes
// once more. Its messages are cut from arrays of many. A round of apply allocates nothing.
func TestWhatASteadyTurnCosts(t *testing.T) {
	for name, run := range map[string]func(*steady){
		"leader":   func(s *steady) { s.leads(t, 400, 1) },
		"follower": func(s *steady) { s.follows(t, 400, 1) },
	} {
		s := newSteady(t)
		run(s)
		clocks, allocs := float64(s.reads)/float64(s.counted), s.turns.Allocations()
		t.Logf("%s: a turn reads the clock %.2f times, and allocates %.3f times; a round of apply allocates %.3f times", name, clocks, allocs, s.applies.Allocations())
		if clocks > 1.5 || allocs > 0.2 || s.applies.Allocations() > 0.05 {
			t.Errorf("%s: want at most 1.5 clocks, 0.2 allocations and 0.05", name)
		}
	}
}

// What a frame costs from the transport to the inbox.
func BenchmarkReceive(b *testing.B) {
	for _, n := range benchBatches {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newSteady(b)
			m := raftpb.Message{Type: raftpb.MsgApp, From: 2, To: 1, Term: 1}
			for i := range n {
				m.Entries = append(m.Entries, raftpb.Entry{Term: 1, Index: uint64(i) + 1, Data: make([]byte, 1<<10)})
			}
			batch := []transport.Envelope{{Group: theGroup, Message: m}}
			var taken givenInputs
			var w stopwatch.Watch
			in := (*inbound)(s.Host)
			for range b.N {
				w.Time(func() { in.Receive(2, batch) })
				s.group.inbox.begin(&taken, maxTurnBytes)
			}
			w.Report(b, "frame")
			b.ReportMetric(0, "ns/op")
			taken.reset()
			s.manual.runIdle()
		})
	}
}
