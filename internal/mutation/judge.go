//go:build linux

package mutation

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// What happens to a mutant.
const (
	Killed    = "killed"   // a test failed, twice, and passed without the mutant
	KilledBy  = "time"     // a test did not end, twice, and ended soon without the mutant
	Survived  = "survived" // all tests passed that fit into the budget
	Unreached = "unreached"
)

// A Result is what happened to one mutant.
type Result struct {
	Mutant
	Result      string
	Test        string   `json:",omitempty"` // that killed it
	Doubtful    []string `json:",omitempty"` // tests that failed, and then passed, or failed without the mutant, too
	Ran, Reach  int      // tests that were run, and that reach it
	Seconds     float64  // of the clock
	CPU         float64  // of processors
	Tail        string   `json:"-"`          // of the output that killed it
	KillSeconds float64  `json:",omitempty"` // that the test took which killed it
}

// firstBatch is how long the tests of the first process take together; each further process has twice as
// much. A test that kills is found soon if it is cheap, and a process for each test would cost more than
// most tests.
const firstBatch = 0.3

// judge runs a mutant against the tests that reach it: the cheapest first, as many as take budget together.
func (b *programs) judge(ctx context.Context, number int, budget time.Duration) (Result, error) {
	r := Result{Mutant: b.mutants[number].mutant, Result: Survived}
	began := time.Now()
	plan, reach := b.plan(r.ID, budget.Seconds())
	if r.Reach = reach; reach == 0 {
		r.Result = Unreached
		return r, nil
	}
	for size := firstBatch; len(plan) > 0 && r.Result == Survived; size *= 2 {
		n := batch(plan, size)
		if err := b.try(ctx, &r, plan[:n], number); err != nil {
			return r, err
		}
		plan = plan[n:]
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// try runs tests of one program in one process. The test that fails is run once more, alone, and then once
// without the mutant. If it passes with it, or does not pass well without it, then it has killed nothing: the
// test is a matter of chance, or the machine is busy. The others are run again without it.
func (b *programs) try(ctx context.Context, r *Result, tests []*test, number int) error {
	for len(tests) > 0 {
		o, err := b.run(ctx, tests, number, "")
		if err != nil {
			return err
		}
		r.CPU += o.cpu
		if o.passed {
			r.Ran += len(tests)
			return nil
		}
		suspects := slices.DeleteFunc(slices.Clone(tests), func(t *test) bool { return t.name != o.failed })
		if len(suspects) == 0 {
			suspects = tests // the program ended before the first
		}
		again, err := b.run(ctx, suspects, number, "")
		if err != nil {
			return err
		}
		r.CPU += again.cpu
		r.Ran++
		if !again.passed {
			control, err := b.run(ctx, suspects, -1, "")
			if err != nil {
				return err
			}
			if r.CPU += control.cpu; control.passedWell() {
				r.die(tests[0].judge, again)
				return nil
			}
		}
		r.Doubtful = append(r.Doubtful, o.failed)
		tests = slices.DeleteFunc(slices.Clone(tests), func(t *test) bool { return slices.Contains(suspects, t) })
	}
	return nil
}

// die notes which test killed the mutant.
func (r *Result) die(j *Judge, o outcome) {
	r.Result, r.Test, r.Tail, r.KillSeconds = Killed, j.Package+"."+o.failed, strings.Join(o.tail, "\n"), o.seconds
	if o.timedOut {
		r.Result = KilledBy
	}
}

// plan returns the tests that are run for a mutant, and the number of all that reach it. The cheapest that
// fit into the budget are run; among them those first that are cheap, or have killed others.
func (b *programs) plan(id string, budget float64) (plan []*test, reach int) {
	var all []*test
	for _, tests := range b.tests {
		for _, t := range tests {
			if t.reaches[id] && !t.failed {
				all = append(all, t)
			}
		}
	}
	sortBy(all, func(t *test) float64 { return t.cost })
	for _, t := range all {
		if budget -= t.cost; budget < 0 {
			break
		}
		plan = append(plan, t)
	}
	sortBy(plan, func(t *test) float64 { return t.cost / float64(1+t.kills) })
	return plan, len(all)
}

func sortBy(tests []*test, cost func(*test) float64) {
	slices.SortFunc(tests, func(x, y *test) int {
		return cmp.Or(cmp.Compare(cost(x), cost(y)), strings.Compare(x.String(), y.String()))
	})
}

// remember counts which tests have killed, from the results that there are.
func (b *programs) remember(results []Result) {
	for _, tests := range b.tests {
		for _, t := range tests {
			for _, r := range results {
				if r.Test == t.String() {
					t.kills++
				}
			}
		}
	}
}

// batch moves tests of the first one's judge with the same arguments to the front of the plan, as many as
// take about size seconds, and returns how many.
func batch(plan []*test, size float64) int {
	n, sum := 0, 0.0
	for i, t := range plan {
		if t.judge != plan[0].judge || !slices.Equal(t.args(), plan[0].args()) {
			continue
		}
		if sum += t.cost; n > 0 && sum > size {
			break
		}
		copy(plan[n+1:i+1], plan[n:i])
		plan[n] = t
		n++
	}
	return n
}
