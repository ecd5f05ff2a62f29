package millracetest_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/internal/counting"
	"github.com/millrace/millrace/millracetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter is a counter that tests may read at any time.
type counter struct {
	mu sync.Mutex
	counting.Counter
}

func (c *counter) Apply(batch []millrace.Command[int64], results []int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Counter.Apply(batch, results)
}

func (c *counter) Restore(ctx context.Context, r io.Reader) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Counter.Restore(ctx, r)
}

func (c *counter) value() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.N
}

// deadline is a context for what must not take long.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// counters is a cluster of counters, and the latest of each node.
type counters struct {
	*millracetest.Cluster[int64, int64]
	t  *testing.T
	mu sync.Mutex
	of map[uint64]*counter
}

func newCounters(t *testing.T, opts ...millracetest.Option) *counters {
	c := &counters{t: t, of: map[uint64]*counter{}}
	c.Cluster = millracetest.New(t, 3, func(id uint64) millrace.Machine[int64, int64] {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.of[id] = &counter{}
		return millrace.InMemory(c.of[id], millrace.Binary[int64]())
	}, opts...)
	return c
}

func (c *counters) propose(id uint64, by int64) int64 {
	c.t.Helper()
	sum, err := c.Node(id).Propose(deadline(c.t), by)
	if err != nil {
		c.t.Fatalf("node %d: %v", id, err)
	}
	return sum
}

// read reads what a node has, linearizably.
func (c *counters) read(id uint64, how millrace.Consistency) (n int64) {
	c.t.Helper()
	err := c.Node(id).View(deadline(c.t), how, func(millrace.ReadAt) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		n = c.of[id].value()
		return nil
	})
	if err != nil {
		c.t.Fatalf("node %d: %v", id, err)
	}
	return n
}

// inBoth runs a test in real time and in a bubble.
func inBoth(t *testing.T, f func(t *testing.T)) {
	t.Run("in real time", f)
	t.Run("in a bubble", func(t *testing.T) { synctest.Test(t, f) })
}

// TestKillTheLeaderAgainAndAgain: what was acknowledged survives power cuts of one node after another.
func TestKillTheLeaderAgainAndAgain(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		c := newCounters(t)
		for want := int64(1); want <= 10; want++ {
			id := c.Leader(deadline(t))
			if got := c.propose(id, 1); got != want {
				t.Fatalf("the sum is %d, want %d", got, want)
			}
			c.Kill(id)
			if up := c.Up(); len(up) != 2 {
				t.Fatalf("%v are up", up)
			}
			if _, err := c.Node(id).Propose(deadline(t), 1); err == nil || millrace.MayHaveCommitted(err) {
				t.Fatalf("Propose on a dead node: %v", err)
			}
			if next := c.Leader(deadline(t)); next == id {
				t.Fatal("the dead node leads")
			}
			c.Restart(id)
		}
		for id := uint64(1); id <= 3; id++ {
			if n := c.read(id, millrace.Linearizable); n != 10 {
				t.Errorf("node %d has %d, want 10", id, n)
			}
		}
	})
}

// A leader that dies at once after New leaves a group that goes on: Leader does not name one before that.
func TestKillTheFirstLeader(t *testing.T) {
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			c := newCounters(t)
			leader := c.Leader(deadline(t))
			c.Kill(leader)
			c.propose(leader%3+1, 1)
		})
	}
}

// TestAllLoseTheirPower: a power cut of all nodes loses nothing that was acknowledged.
func TestAllLoseTheirPower(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		c := newCounters(t)
		c.propose(c.Leader(deadline(t)), 7)
		for id := uint64(1); id <= 3; id++ {
			c.Kill(id)
		}
		for id := uint64(1); id <= 3; id++ {
			c.Restart(id)
		}
		if n := c.propose(c.Leader(deadline(t)), 0); n != 7 {
			t.Errorf("the sum is %d, want 7", n)
		}
	})
}

// TestCutAndHeal: a leader that is cut off commits nothing, another one leads, and afterwards all agree.
func TestCutAndHeal(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		c := newCounters(t)
		old := c.Leader(deadline(t))
		c.propose(old, 1)
		c.Isolate(old)
		p, err := c.Node(old).Submit(10)
		if err != nil {
			t.Fatal(err)
		}
		leader := c.Leader(deadline(t))
		if leader == old {
			t.Fatal("the node that is cut off counts as the leader")
		}
		c.propose(leader, 100)
		if _, _, done, err := p.Poll(); done && err == nil {
			t.Fatal("a leader that is cut off has committed a command")
		}
		c.Heal()
		_, _, err = p.Wait(deadline(t))
		want := int64(101)
		if err == nil {
			want += 10
		} else if millrace.MayHaveCommitted(err) {
			t.Fatalf("the command of the node that was cut off: %v", err)
		}
		for id := uint64(1); id <= 3; id++ {
			if n := c.read(id, millrace.Linearizable); n != want {
				t.Errorf("node %d has %d, want %d (%v)", id, n, want, err)
			}
		}
	})
}

// TestCutBetweenTwo: the third node still reaches both, so there is one leader and all commands go through.
func TestCutBetweenTwo(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		c := newCounters(t)
		c.propose(c.Leader(deadline(t)), 0) // a group is founded when all its members have met
		c.Cut(1, 2)
		for range 5 {
			c.propose(c.Leader(deadline(t)), 1)
		}
	})
}

// TestWipedNodeDoesNotCount: the others refuse it, and the cluster goes on without it.
func TestWipedNodeDoesNotCount(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		c := newCounters(t)
		id := c.Leader(deadline(t))
		c.propose(id, 1)
		c.Wipe(id)
		c.Restart(id)
		c.propose(c.Leader(deadline(t)), 1)
		if s := c.Node(id).Status(); s.LastIndex > 0 || s.Leader == id {
			t.Errorf("the wiped node takes part: %+v", s)
		}
	})
}

// TestStop: a node that is closed hands over, and continues after Restart.
func TestStop(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		c := newCounters(t)
		for want := int64(1); want <= 4; want++ {
			id := c.Leader(deadline(t))
			c.propose(id, 1)
			c.Stop(id)
			c.Stop(id)
			c.Restart(id)
			if n := c.read(id, millrace.Linearizable); n != want {
				t.Fatalf("node %d has %d, want %d", id, n, want)
			}
		}
	})
}

// TestBubbleTime: in a bubble a minute takes no time, for leases too: a leader that was cut off holds none
// when its time is over.
func TestBubbleTime(t *testing.T) {
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		c := newCounters(t, millracetest.WithGroup(millrace.GroupConfig{Leases: true}))
		old := c.Leader(deadline(t))
		c.propose(old, 1)
		if n := c.read(old, millrace.Lease(time.Second, 0.01)); n != 1 {
			t.Errorf("under a lease the leader has %d, want 1", n)
		}
		c.Isolate(old)
		c.propose(c.Leader(deadline(t)), 1)
		<-time.After(time.Minute) // of the bubble
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Node(old).View(ctx, millrace.Lease(time.Second, 0.01), func(millrace.ReadAt) error { return nil })
		if err == nil {
			t.Error("a leader that was cut off for a minute holds a lease")
		}
	})
	if took := time.Since(began); took > 50*time.Second {
		t.Errorf("a minute in a bubble took %v", took)
	}
}

// failing is a testing.TB of a test that fails.
type failing struct {
	*testing.T
	logged   strings.Builder
	cleanups []func()
}

func (f *failing) Failed() bool        { return true }
func (f *failing) Cleanup(end func())  { f.cleanups = append(f.cleanups, end) }
func (f *failing) Log(args ...any)     { f.logged.WriteString(args[0].(string)) }
func (f *failing) Logf(string, ...any) {}

// TestLogOfAFailedTest: it has the lines of all nodes; one of a test that passes is not printed.
func TestLogOfAFailedTest(t *testing.T) {
	f := &failing{T: t}
	c := millracetest.New(f, 3, func(id uint64) millrace.Machine[int64, int64] {
		return millrace.InMemory(&counter{}, millrace.Binary[int64]())
	})
	c.Leader(deadline(t))
	for _, end := range f.cleanups {
		end()
	}
	for _, want := range []string{"node 1: INFO", "node 2: INFO", "node 3: INFO"} {
		if !strings.Contains(f.logged.String(), want) {
			t.Errorf("no line begins with %q:\n%s", want, f.logged.String())
		}
	}
}

// fatal is a testing.TB whose Fatalf ends the goroutine, and keeps the sentence.
type fatal struct {
	*testing.T
	sentence string
}

func (f *fatal) Fatalf(format string, args ...any) {
	f.sentence = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestSentences: what a test reads when it asks for something that does not come.
func TestSentences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fatal{T: t}
		c := millracetest.New(f, 3, func(id uint64) millrace.Machine[int64, int64] {
			return millrace.InMemory(&counter{}, millrace.Binary[int64]())
		})
		if _, err := c.Node(3).Propose(deadline(t), 1); err != nil {
			t.Fatal(err)
		}
		c.Kill(1)
		c.Kill(2)
		for _, ask := range []struct {
			what func()
			want []string
		}{
			{func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				c.Leader(ctx)
			}, []string{"no leader reaches a majority: context deadline exceeded", "node 1 is down", "node 2 is down", "node 3: {ID:3", "no quorum"}},
			{func() { c.Kill(4) }, []string{"there is no node 4; the ids are 1 to 3"}},
			{func() { c.Node(0) }, []string{"there is no node 0"}},
		} {
			f.sentence = ""
			done := make(chan struct{})
			go func() {
				defer close(done)
				ask.what()
			}()
			<-done
			for _, want := range ask.want {
				if !strings.Contains(f.sentence, want) {
					t.Errorf("%q lacks %q", f.sentence, want)
				}
			}
		}
	})
}
