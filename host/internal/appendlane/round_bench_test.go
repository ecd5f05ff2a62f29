package appendlane

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/internal/crcjoin"
	"github.com/millrace/millrace/internal/stopwatch"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
)

// BenchmarkRound is a round of the lane for one group: it takes a message, writes it, syncs, and answers. Its
// disk costs nothing. Compare with another commit in turn:
//
//	go test ./host/internal/appendlane -run '^$' -bench Round -benchtime 5000x -count 6
func BenchmarkRound(b *testing.B) {
	for _, who := range []string{"leader", "follower"} {
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/%d", who, n), func(b *testing.B) {
				w := runRounds(b, b.N, who == "leader", n)
				w.Report(b, "round")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// A steady round allocates nothing but, now and then, memory for what the cache of the log keeps.
func TestAllocationsOfASteadyRound(t *testing.T) {
	w := runRounds(t, 600, false, 1)
	if n := w.Allocations(); n > 0.2 {
		t.Errorf("%v allocations of a round, want at most 0.2", n)
	}
}

func runRounds(b testing.TB, rounds int, leads bool, n int) *stopwatch.Watch {
	disk, tasks := stopwatch.NewDisk(crashfs.New()), &manual{}
	log := openLogWith(b, tasks, disk, 64<<20)
	b.Cleanup(func() { _ = log.Close() })
	l := New(Settings{Log: walLog{log}, Self: 1, To: noPeers{}, Ticks: func() int64 { return 0 }, Fail: func(err error) { b.Fatal(err) }})
	l.Start(&wakes{}, &lateTimer{})
	c := &steadyClient{b: b}
	shard, _ := testShard(&wakes{})
	shard.Enter(&c.seat, turner{}, func(sched.Time) {})
	q := l.NewQueue(theGroup, c, log.Group(theGroup), raftpb.HardState{}, nil)
	disk.Forget()
	data := make([]byte, 1<<10)
	sum := crcjoin.Sum(data)
	entries := make([]raftpb.Entry, n)
	var w stopwatch.Watch
	round := func() {
		for l.RunOnce() {
		}
	}
	for i := range rounds {
		first := uint64(i*n) + 1
		for k := range entries {
			entries[k] = raftpb.Entry{Term: 1, Index: first + uint64(k), Data: data, Sum: sum}
		}
		last := first + uint64(n) - 1
		m := raftpb.Message{Type: raftpb.MsgStorageAppend, To: raft.LocalAppendThread, Term: 1, Vote: 2, Commit: first - 1, Entries: entries}
		if !leads {
			m.Responses = append(m.Responses, raftpb.Message{Type: raftpb.MsgAppResp, From: 1, To: 2, Term: 1, Index: last})
		}
		m.Responses = append(m.Responses, raftpb.Message{Type: raftpb.MsgStorageAppendResp, From: raft.LocalAppendThread, To: 1, Term: 1, LogTerm: 1, Index: last})
		l.Hand(q, m)
		c.answers = 0
		w.Time(round)
		if c.answers != 1 {
			b.Fatalf("%d answers, want 1", c.answers)
		}
		tasks.runIdle()
	}
	return &w
}

// steadyClient is a group of which nothing is asked but to take answers.
type steadyClient struct {
	b       testing.TB
	seat    sched.Seat
	answers int
}

func (c *steadyClient) Appended() {}
func (c *steadyClient) Answer(answers []raftpb.Message, woken *sched.Woken) {
	c.answers += len(answers)
	woken.Add(&c.seat)
}
func (c *steadyClient) DiskFull(err error)             { c.b.Fatal(err) }
func (*steadyClient) Restore(*raftpb.Snapshot, func()) {}
func (*steadyClient) Discarded(Outcome)                {}
func (c *steadyClient) Fail(err error)                 { c.b.Fatal(err) }
func (*steadyClient) Released()                        {}

type noPeers struct{}

func (noPeers) Send(uint64, []transport.Envelope) bool { return true }
