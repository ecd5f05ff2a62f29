//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/tests/history"
)

// The verdict on what clients saw. Each judge also gets a copy of the evidence in which something is wrong,
// and must reject it.

// perKey bounds the search for an order of the operations of one key.
const perKey = 30 * time.Second

func (e *episode) judge() error {
	h := e.load.recorder.History()
	e.tally.count(e.load, h)
	began := time.Now()
	if err := h.Linearizable(perKey); err != nil {
		return err
	}
	if err := inOrder(e.load.places); err != nil {
		return err
	}
	if err := checkSums(e.load.sums, e.load.final); err != nil {
		return err
	}
	e.tally.judged = time.Since(began)
	return e.judgeJudges(h)
}

// judgeJudges plants a stale read, an answer that is behind an earlier one, a lost add and one that counted
// twice.
func (e *episode) judgeJudges(h history.History) error {
	planted, err := h.WithStaleRead(e.seed)
	if err != nil {
		return err
	}
	if planted.Linearizable(perKey) == nil {
		return fmt.Errorf("a history with a stale read planted into it was accepted")
	}
	places := slices.Clone(e.load.places)
	slices.SortFunc(places, func(a, b place) int { return int(a.call - b.call) })
	places[len(places)-1].index = places[len(places)/2].index - 1
	if inOrder(places) == nil {
		return fmt.Errorf("answers of which the last is behind earlier ones were accepted")
	}
	for _, s := range e.load.sums {
		for _, wrong := range []int{s.n - 1, s.n + 2} {
			if checkSums([]sum{s}, map[string]int{s.key: wrong}) == nil {
				return fmt.Errorf("%s with %d in place of %d was accepted", s.key, wrong, s.n)
			}
		}
	}
	return nil
}

// inOrder returns an error if an operation that was called after another one had returned is not behind it in
// the log: a read has seen everything that was answered before, of all keys, and a change is later.
func inOrder(places []place) error {
	calls := slices.Clone(places)
	slices.SortFunc(calls, func(a, b place) int { return int(a.call - b.call) })
	returns := slices.Clone(places)
	slices.SortFunc(returns, func(a, b place) int { return int(a.back - b.back) })
	var last place // of those that have returned, the one that is latest in the log
	next := 0
	for _, p := range calls {
		for ; next < len(returns) && returns[next].back < p.call; next++ {
			if returns[next].index > last.index {
				last = returns[next]
			}
		}
		if p.index < last.index || p.change && p.index == last.index {
			return fmt.Errorf("%s, called at %v, is at index %d, although %s, which had returned at %v, was at %d", p.what, p.call, p.index, last.what, last.back, last.index)
		}
	}
	return nil
}

// checkSums compares the counters with what the clients know: each add that was answered has counted once.
func checkSums(sums []sum, final map[string]int) error {
	for _, s := range sums {
		if n := final[s.key]; n != s.n && !(s.open && n == s.n+1) {
			return fmt.Errorf("%s is %d, and %d adds were answered (one more is open: %v)", s.key, n, s.n, s.open)
		}
	}
	return nil
}

// TestInOrder: places that fit the times of their operations, and some that do not.
func TestInOrder(t *testing.T) {
	for _, c := range []struct {
		name, want string
		places     []place
	}{
		{"one after the other", "", []place{{call: 1, back: 2, index: 5, change: true}, {call: 3, back: 4, index: 5}, {call: 5, back: 6, index: 6, change: true}}},
		{"at the same time", "", []place{{call: 1, back: 4, index: 6, change: true}, {call: 2, back: 3, index: 5}}},
		{"a read behind a change", "index 4", []place{{call: 1, back: 2, index: 5, change: true}, {call: 3, back: 4, index: 4}}},
		{"a read behind a read", "index 4", []place{{call: 1, back: 2, index: 5}, {call: 3, back: 4, index: 4}}},
		{"a change at the place of another one", "index 5", []place{{call: 1, back: 2, index: 5, change: true}, {call: 3, back: 4, index: 5, change: true}}},
	} {
		if err := inOrder(c.places); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
