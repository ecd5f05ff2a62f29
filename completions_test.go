package millrace_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/pipeline"
)

// gather takes n outcomes, by tag.
func gather[R any](t *testing.T, done *millrace.Completions[R], n int) []millrace.Completion[R] {
	t.Helper()
	var all, some []millrace.Completion[R]
	for len(all) < n {
		select {
		case <-done.Ready():
			some = done.Take(some)
			all = append(all, some...)
		case <-t.Context().Done():
			t.Fatalf("%d outcomes of %d", len(all), n)
		}
	}
	slices.SortFunc(all, func(a, b millrace.Completion[R]) int { return int(a.Tag) - int(b.Tag) })
	return all
}

// One goroutine has many commands under way, on the leader and on a follower, and gets the result of each.
func TestSubmitManyReturnsResults(t *testing.T) {
	c := three(t, func(uint64) millrace.Machine[int64, int64] {
		return millrace.InMemory(&counter{}, millrace.Binary[int64]())
	})
	leader, followers := c.leader(t)
	want := int64(0)
	for _, n := range []*millrace.Node[int64, int64]{leader, followers[0]} {
		done := millrace.NewCompletions[int64](64)
		commands, tags := make([]int64, 100), make([]uint64, 100)
		for i := range commands {
			commands[i], tags[i] = 1, uint64(i)
		}
		taken, err := n.SubmitMany(commands, tags, done)
		if taken != 64 || !errors.Is(err, millrace.ErrCompletionsFull) {
			t.Fatal(taken, err)
		}
		all := gather(t, done, taken)
		if taken, err = n.SubmitMany(commands[64:], tags[64:], done); taken != 36 || err != nil {
			t.Fatal(taken, err)
		}
		all = append(all, gather(t, done, taken)...)
		var results []int64
		for i, got := range all {
			if got.Tag != uint64(i) || got.Err != nil || got.Receipt.Index == 0 {
				t.Fatalf("outcome %d: %+v", i, got)
			}
			results = append(results, got.Result)
		}
		slices.Sort(results) // a follower may forward them in two frames, which change places
		for _, r := range results {
			if want++; r != want {
				t.Fatalf("the results are %v, want one more each", results)
			}
		}
		if done.Space() != 64 {
			t.Errorf("space for %d, want 64", done.Space())
		}
	}
}

// Commands of a session that are handed in twice are applied once.
func TestSubmitManyInASession(t *testing.T) {
	n := open(t, alone(t), millrace.InMemory(&counter{}, millrace.Binary[int64]()).Results(millrace.Binary[int64]()))
	lead(t, n)
	done, session := millrace.NewCompletions[int64](10), n.NewSession().ID()
	for range 2 {
		if taken, err := n.SubmitMany([]int64{5, 6, 7}, []uint64{1, 2, 3}, done, millrace.InSession(millrace.SessionMark{Session: session, Number: 1})); taken != 3 || err != nil {
			t.Fatal(taken, err)
		}
		for i, got := range gather(t, done, 3) {
			if want := []int64{5, 11, 18}[i]; got.Result != want || got.Err != nil {
				t.Errorf("number %d: %+v, want %d", i+1, got, want)
			}
		}
	}
}

// A node that closes while its machine hangs answers all.
func TestSubmitManyWhenTheNodeCloses(t *testing.T) {
	n, entered, release := hanging(t)
	defer release()
	done := millrace.NewCompletions[uint64](10)
	if taken, err := n.SubmitMany([][]byte{{1}, {2}}, []uint64{1, 2}, done); taken != 2 || err != nil {
		t.Fatal(taken, err)
	}
	<-entered
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_ = n.Close(over)
	for _, got := range gather(t, done, 2) {
		if !millrace.MayHaveCommitted(got.Err) {
			t.Errorf("%+v", got)
		}
	}
	if taken, err := n.SubmitMany([][]byte{{1}}, []uint64{1}, done); taken != 0 || !errors.Is(err, millrace.ErrStopped) || done.Space() != 10 {
		t.Error(taken, err, done.Space())
	}
	release()
	if err := n.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Reads of each consistency come to Completions too; those that cannot be are refused.
func TestSubmitRead(t *testing.T) {
	n := open(t, alone(t), millrace.InMemory(&counter{}, millrace.Binary[int64]()))
	lead(t, n)
	done := millrace.NewCompletions[int64](3)
	var r millrace.Receipt
	if _, err := n.Propose(t.Context(), 1, millrace.WithReceipt(&r)); err != nil {
		t.Fatal(err)
	}
	for i, c := range []millrace.Consistency{millrace.Linearizable, millrace.AtLeast(r.Index), millrace.Local} {
		if err := n.SubmitRead(uint64(i), c, done); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.SubmitRead(9, millrace.Local, done); !errors.Is(err, millrace.ErrCompletionsFull) {
		t.Error(err)
	}
	for i, got := range gather(t, done, 3) {
		least := r.Index
		if i == 2 {
			least = 0 // a local read promises nothing
		}
		if got.Err != nil || got.Read.Index < least || (got.Read.Age == millrace.AgeUnknown) != (i > 0) {
			t.Errorf("%+v, want the log through %d", got, least)
		}
	}
	for want, c := range map[string]millrace.Consistency{
		"cannot check a lease": millrace.Lease(0, 0.01),
		"want more than 0":     millrace.Bounded(0),
	} {
		if err := n.SubmitRead(1, c, done); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := n.SubmitRead(1, millrace.Local, nil); err == nil {
		t.Error("a read without Completions was taken")
	}
	if _, err := n.SubmitMany([]int64{1, 2}, []uint64{1}, done); err == nil || !strings.Contains(err.Error(), "2 commands and 1 tags") {
		t.Error(err)
	}
}

// ender is a codec that ends: with the value 2 it panics, with 3 it ends its goroutine.
type ender struct{ millrace.Codec[int64] }

func (c ender) Append(dst []byte, v int64) ([]byte, error) {
	switch v {
	case 2:
		panic("boom")
	case 3:
		runtime.Goexit()
	}
	return c.Codec.Append(dst, v)
}

// Where a codec panics, the commands before are taken, and all places are free again. Where it ends the
// goroutine, none is taken.
func TestSubmitManyWithACodecThatEnds(t *testing.T) {
	n := open(t, alone(t), millrace.InMemory(&counter{}, ender{millrace.Binary[int64]()}))
	lead(t, n)
	done, tags := millrace.NewCompletions[int64](9), []uint64{1, 2, 3}
	if taken, err := n.SubmitMany([]int64{1, 2, 1}, tags, done); taken != 1 || err == nil || !strings.Contains(err.Error(), "boom") {
		t.Fatal(taken, err)
	}
	gather(t, done, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = n.SubmitMany([]int64{1, 3, 1}, tags, done)
	}()
	<-ended
	if done.Space() != 9 {
		t.Errorf("space for %d, want 9", done.Space())
	}
}

// boxes is a machine with results that point to memory. It hangs while it applies 0.
type boxes struct {
	counter
	entered, gate chan struct{}
}

func (b *boxes) Apply(batch []millrace.Command[int64], results []*[64]byte) error {
	for i := range batch {
		if batch[i].Value == 0 {
			close(b.entered)
			<-b.gate
		}
		results[i] = new([64]byte)
	}
	return nil
}

// A result that was taken is not kept alive by a later command that hangs.
func TestSubmitManyKeepsNoResults(t *testing.T) {
	machine := &boxes{entered: make(chan struct{}), gate: make(chan struct{})}
	defer close(machine.gate)
	n, err := millrace.Open(t.Context(), alone(t), millrace.InMemory[int64, *[64]byte](machine, millrace.Binary[int64]()), quiet())
	if err != nil {
		t.Fatal(err)
	}
	lead(t, n)
	done := millrace.NewCompletions[*[64]byte](9)
	submit := func(commands ...int64) {
		if taken, err := n.SubmitMany(commands, make([]uint64, len(commands)), done); taken != len(commands) || err != nil {
			t.Fatal(taken, err)
		}
	}
	var results []weak.Pointer[[64]byte]
	for range 5 {
		submit(1, 1)
		for _, got := range gather(t, done, 2) {
			results = append(results, weak.Make(got.Result))
		}
	}
	submit(0)
	<-machine.entered
	runtime.GC()
	kept := 0
	for _, r := range results {
		if r.Value() != nil {
			kept++
		}
	}
	if kept > 1 { // the machine's own array may have the latest
		t.Errorf("%d results of %d that were taken are kept", kept, len(results))
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_ = n.Close(over)
}

// Several goroutines hand in commands and reads at two nodes, and take outcomes, all with one Completions.
// Each tag comes once, and all places are free in the end.
func TestCompletionsOfTwoNodes(t *testing.T) {
	const each, limit = 200, 16
	done := millrace.NewCompletions[int64](limit)
	var submitters, takers sync.WaitGroup
	for i := range uint64(2) {
		n := open(t, alone(t), millrace.InMemory(&counter{}, millrace.Binary[int64]()))
		lead(t, n)
		for j := range uint64(2) {
			submitters.Go(func() {
				commands, tags := make([]int64, each), make([]uint64, each)
				for k := range tags {
					commands[k], tags[k] = 1, (2*i+j)*each+uint64(k)
				}
				for len(tags) > 0 && t.Context().Err() == nil {
					taken, err := n.SubmitMany(commands[:min(3, len(tags))], tags[:min(3, len(tags))], done)
					if commands, tags = commands[taken:], tags[taken:]; err == nil && len(tags) > 0 {
						if err = n.SubmitRead(tags[0], millrace.Linearizable, done); err == nil {
							commands, tags = commands[1:], tags[1:]
						}
					}
					if err != nil && !errors.Is(err, millrace.ErrCompletionsFull) {
						t.Error(err)
						return
					}
					runtime.Gosched()
				}
			})
		}
	}
	var mu sync.Mutex
	came := map[uint64]int{}
	stop := make(chan struct{})
	all := sync.OnceFunc(func() { close(stop) })
	for range 2 {
		takers.Go(func() {
			var outcomes []millrace.Completion[int64]
			for {
				select {
				case <-done.Ready():
				case <-stop:
					return
				}
				outcomes = done.Take(outcomes)
				mu.Lock()
				for _, c := range outcomes {
					if came[c.Tag]++; c.Err != nil || came[c.Tag] > 1 {
						t.Errorf("%+v came %d times", c, came[c.Tag])
					}
				}
				if len(came) == 4*each {
					all()
				}
				mu.Unlock()
			}
		})
	}
	submitters.Wait()
	takers.Wait()
	if done.Space() != limit {
		t.Errorf("space for %d, want %d", done.Space(), limit)
	}
}

// A command that is too large counts once, though an earlier one is refused for lack of memory and both are
// handed in again.
func TestTooLargeCountsOnce(t *testing.T) {
	machine, entered, release := held()
	c := alone(t)
	c.MemoryBytes, c.MaxCommandBytes = 64<<10, 1000
	n, err := millrace.Open(t.Context(), c, millrace.InMemory(machine, millrace.Bytes()), quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		release()
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	lead(t, n)
	done := millrace.NewCompletions[uint64](1 << 20)
	commands, tags := make([][]byte, 1000), make([]uint64, 1000)
	for i := range commands {
		commands[i] = make([]byte, 1000)
	}
	commands[len(commands)-1] = make([]byte, 1001)
	taken, err := n.SubmitMany(commands, tags, done)
	if taken == len(commands) || !errors.Is(err, millrace.ErrOverloaded) {
		t.Fatalf("%d of %d commands are taken: %v; want fewer, and ErrOverloaded", taken, len(commands), err)
	}
	if counted := n.Metrics().Proposals.Refused.TooLarge; counted != 0 {
		t.Errorf("%d commands count as too large before one is refused for that", counted)
	}
	if taken, err := n.SubmitMany(commands[999:], tags[999:], done); taken != 0 || !errors.Is(err, millrace.ErrTooLarge) {
		t.Fatal(taken, err)
	}
	if counted := n.Metrics().Proposals.Refused.TooLarge; counted != 1 {
		t.Errorf("%d commands count as too large, want 1", counted)
	}
	<-entered
}

// Propose, Commit and SubmitMany reuse their Pendings, and each command gets its own outcome, whether the
// host tells its commit before the machine gets it or after that. The order of results is that of positions.
func TestPendingsAreReused(t *testing.T) {
	for _, p := range []pipeline.Pipeline{pipeline.Async{}, pipeline.Basic{}} {
		t.Run(p.Name(), func(t *testing.T) {
			n := open(t, alone(t), millrace.InMemory(&ledger{}, millrace.Bytes()), millrace.WithHostOptions(host.WithPipeline(p)))
			lead(t, n)
			const clients, each = 8, 200
			var mu sync.Mutex
			positions := map[uint64]millrace.Position{} // by result
			got := func(result uint64, r millrace.Receipt) {
				at := millrace.Position{Index: r.Index, Pos: r.Pos}
				mu.Lock()
				defer mu.Unlock()
				if was, twice := positions[result]; twice {
					t.Errorf("two commands have result %d: at %v and at %v", result, was, at)
				}
				positions[result] = at
			}
			soon, cancel := context.WithTimeout(t.Context(), 20*time.Second) // who hears another's commit may wait for ever
			defer cancel()
			var all sync.WaitGroup
			for i := range clients {
				all.Go(func() {
					for range each {
						var r millrace.Receipt
						result, err := n.Propose(soon, []byte{byte(i)}, millrace.WithReceipt(&r))
						if err != nil {
							t.Error(err)
							return
						}
						got(result, r)
					}
				})
			}
			all.Go(func() {
				done := millrace.NewCompletions[uint64](each)
				var outcomes []millrace.Completion[uint64]
				for range clients {
					if taken, err := n.SubmitMany(make([][]byte, each), make([]uint64, each), done); taken != each || err != nil {
						t.Error(taken, err)
						return
					}
					for left := each; left > 0; left -= len(outcomes) {
						select {
						case <-done.Ready():
						case <-soon.Done():
							t.Errorf("%d commands have no outcome", left)
							return
						}
						outcomes = done.Take(outcomes)
						for _, o := range outcomes {
							if o.Err != nil {
								t.Error(o.Err)
							}
							got(o.Result, o.Receipt)
						}
					}
				}
			})
			all.Wait()
			last := millrace.Position{}
			for result := range uint64(2 * clients * each) {
				at, ok := positions[result+1]
				if !ok || at.Index < last.Index || at.Index == last.Index && at.Pos <= last.Pos {
					t.Fatalf("result %d is at %v, and the one before at %v", result+1, at, last)
				}
				last = at
			}
		})
	}
}
