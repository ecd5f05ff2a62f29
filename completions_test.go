package millrace_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace"
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
	done, session := millrace.NewCompletions[int64](10), n.NewSession()
	for range 2 {
		if taken, err := n.SubmitMany([]int64{5, 6, 7}, []uint64{1, 2, 3}, done, millrace.InSession(session, 1, 1)); taken != 3 || err != nil {
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
	machine, entered, release := held()
	defer release()
	n, err := millrace.Open(t.Context(), alone(t), millrace.InMemory(machine, millrace.Bytes()), quiet())
	if err != nil {
		t.Fatal(err)
	}
	lead(t, n)
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
		if got.Err != nil || got.Read.Index < r.Index || (got.Read.Age == millrace.AgeUnknown) != (i > 0) {
			t.Errorf("%+v, want the log through %d", got, r.Index)
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
