package host

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	inprocess "github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// Heartbeats and messages do not wait for commands.
func TestShardDoesNotGatherBeforeUrgentWork(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	l.submit("x")
	l.submit("y")
	l.manual.runIdle()
	s := l.worker()
	l.submit("z")
	if !s.Gathers() {
		t.Fatal("two clients wait, and the shard does not gather")
	}
	heartbeat := raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1, From: 2, To: 1}
	(*inbound)(l.Host).Receive(2, envelopes(theGroup, heartbeat))
	if s.Gathers() {
		t.Error("a message waits for commands")
	}
	l.manual.runIdle()
	l.submit("z")
	if !s.Gathers() {
		t.Fatal("three clients wait, and the shard does not gather")
	}
	for range ticksPerHeartbeat {
		l.manual.pass(1)
	}
	if s.Gathers() {
		t.Error("a heartbeat that is due waits for commands")
	}
}

// A shard with work for two groups does not wait for more.
func TestShardOfTwoGroupsDoesNotGather(t *testing.T) {
	l := openTestHost(t, 3)
	other := l.open(theGroup+1, &commands{})
	l.lead()
	for range 2 {
		l.submit("x")
	}
	l.manual.runIdle()
	l.submit("y")
	if !l.worker().Gathers() {
		t.Fatal("two clients wait, and the shard does not gather")
	}
	if _, err := other.Submit([]byte("y")); err != nil {
		t.Fatal(err)
	}
	if l.worker().Gathers() {
		t.Error("a group waits for the commands of another one")
	}
}

// waits names the scheduler on which a benchmark of a busy process runs.
type waits string

// schedulerWith hides or overrides a worker's Gatherer.
type schedulerWith struct {
	env.Scheduler
	waits waits
}

func (s schedulerWith) Go(name string, kind env.Kind, w env.Worker) env.Task {
	switch g, ok := w.(env.Gatherer); {
	case ok && s.waits == "never":
		w = struct{ env.Worker }{w}
	case ok && s.waits == "always":
		w = always{g.(*sched.Worker)}
	}
	return s.Scheduler.Go(name, kind, w)
}

// always gathers without regard to what a wait costs, as earlier versions did.
type always struct{ *sched.Worker }

func (a always) Gathers() bool {
	t := a.Gatherer()
	if t == nil {
		return false
	}
	g := seatedGroup(t)
	return g.proposals.SeveralWait() || len(g.work.taken.proposals) > 1
}
func (a always) Gathered(time.Duration) {}

// BenchmarkBusyProcess runs hosts inside a program that computes something else: 20 clients, three hosts in
// memory, one processor, and a number of goroutines that never wait. The figures are in decision 0007.
func BenchmarkBusyProcess(b *testing.B) {
	for _, spinners := range []int{0, 5, 20, 50} {
		for _, w := range []waits{"never", "always", "bounded"} {
			b.Run(fmt.Sprintf("spinners=%d/waits=%s", spinners, w), func(b *testing.B) { benchBusy(b, spinners, w) })
		}
	}
}

// discard is a state machine without state.
type discard struct{}

func (discard) Apply([]statemachine.Entry) error { return nil }

func benchBusy(b *testing.B, spinners int, w waits) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	network, peers := inprocess.NewNetwork(), map[uint64]string{1: "a:1", 2: "b:1", 3: "c:1"}
	e := env.Real()
	e.Scheduler = schedulerWith{e.Scheduler, w}
	var hosts []*Host
	for id := uint64(1); id <= 3; id++ {
		transport := network.Host(id)
		for p := range peers {
			transport.SetPeer(p, "")
		}
		h, err := openOne(Config{ID: id, Dir: "/d", Members: peers, Durability: wal.ModeMemory}, discard{},
			WithTransport(transport), WithFS(crashfs.New()), WithLogger(quiet), WithEnv(e))
		if err != nil {
			b.Fatal(err)
		}
		defer h.Close(context.Background())
		hosts = append(hosts, h)
	}
	g := hosts[0].Group(theGroup)
	g.Campaign()
	for g.Status().Leader != 1 {
		if _, err := g.WaitLeader(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	var stop atomic.Bool
	var spinning, clients sync.WaitGroup
	for range spinners {
		spinning.Go(func() {
			for x := uint64(1); !stop.Load(); x = x*6364136223846793005 + 1 {
			}
		})
	}
	var left, done, refused atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	for range 20 {
		clients.Go(func() {
			for at := 0; left.Add(-1) >= 0; {
				for {
					if _, err := hosts[at].Group(theGroup).Propose(b.Context(), make([]byte, 100)); err == nil {
						break
					}
					refused.Add(1)
					at = (at + 1) % len(hosts)
					runtime.Gosched()
				}
				done.Add(1)
			}
		})
	}
	clients.Wait()
	b.StopTimer()
	stop.Store(true)
	spinning.Wait()
	b.ReportMetric(float64(done.Load())/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(refused.Load()), "refused")
	b.ReportMetric(float64(hosts[1].Group(theGroup).Status().Term), "terms")
}
