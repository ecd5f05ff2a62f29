package sim_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/internal/counting"
	"github.com/millrace/millrace/sim"
)

type sum = counting.Counter

// sums is a workload of positive numbers, on a machine that may be a faulty one.
func sums(newMachine func(host uint64) millrace.StateMachine[int64, int64]) sim.Workload[int64, int64] {
	return sim.Workload[int64, int64]{
		Machine: func(host uint64) millrace.Machine[int64, int64] {
			return millrace.InMemory(newMachine(host), millrace.Binary[int64]())
		},
		Command: func(rng *rand.Rand) int64 { return 1 + rng.Int64N(9) },
		Check:   growing,
	}
}

// growing: each command adds at least one, so the results grow with the log.
func growing(history []sim.Operation[int64, int64]) error {
	applied := slices.DeleteFunc(slices.Clone(history), func(op sim.Operation[int64, int64]) bool { return op.Outcome != sim.Applied })
	slices.SortFunc(applied, func(a, b sim.Operation[int64, int64]) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Pos, b.Pos))
	})
	for i := 1; i < len(applied); i++ {
		if applied[i].Output <= applied[i-1].Output {
			return fmt.Errorf("%+v has a result after that of %+v", applied[i], applied[i-1])
		}
	}
	return nil
}

var machines = flag.Uint64("machines", 12, "run the user's machine with this many seeds")

// TestMachine runs a sound machine, and demands that the histories have everything that a checker needs.
func TestMachine(t *testing.T) {
	outcomes := map[sim.Outcome]int{}
	var overlapping int
	faults := sim.Faults{}
	failed := eachFailure(t, seedsFor(*machines), sums(func(uint64) millrace.StateMachine[int64, int64] { return &sum{} }), func(r sim.Report, history []sim.Operation[int64, int64]) {
		for kind, n := range r.Faults {
			faults[kind] += n
		}
		for i, op := range history {
			outcomes[op.Outcome]++
			if (op.Return == sim.Forever) != (op.Outcome == sim.Unknown) || op.Return < op.Call || i > 0 && op.Call < history[i-1].Call {
				t.Errorf("operation %+v of seed %d", op, r.Seed)
			}
			if i > 0 && history[i-1].Return > op.Call {
				overlapping++
			}
		}
	})
	for _, err := range failed {
		t.Error(err)
	}
	t.Logf("%v; %d called while the one before was under way; %v", outcomes, overlapping, faults)
	if outcomes[sim.Applied] < 1000 || outcomes[sim.Unknown] == 0 || overlapping == 0 {
		t.Errorf("outcomes: %v; %d overlap", outcomes, overlapping)
	}
}

// seedsFor returns how many seeds to run.
func seedsFor(n uint64) uint64 {
	if testing.Short() {
		return n / 5
	}
	return n
}

// eachFailure runs seeds one after the other, and returns their errors.
func eachFailure[C, R any](t *testing.T, n uint64, load sim.Workload[C, R], look func(sim.Report, []sim.Operation[C, R])) (failed []error) {
	for seed := range n {
		report, history, err := sim.RunMachine(sim.Options{Seed: seed + 1}, load)
		if err != nil {
			failed = append(failed, err)
		}
		if look != nil {
			look(report, history)
		}
	}
	return failed
}

// TestMachineSameSeedSameHistory: the history of a seed is the same each time.
func TestMachineSameSeedSameHistory(t *testing.T) {
	load := sums(func(uint64) millrace.StateMachine[int64, int64] { return &sum{} })
	for seed := uint64(1); seed <= 3; seed++ {
		a, historyA, errA := sim.RunMachine(sim.Options{Seed: seed}, load)
		b, historyB, errB := sim.RunMachine(sim.Options{Seed: seed}, load)
		if a != b || errA != nil || errB != nil || !slices.Equal(historyA, historyB) {
			t.Fatalf("seed %d ran differently:\n%v %v\n%v %v", seed, a, errA, b, errB)
		}
	}
}

// TestMachinePublishes: subscribers of a machine of the user get what it publishes. One seed in eight has
// subscribers.
func TestMachinePublishes(t *testing.T) {
	for _, err := range eachFailure(t, seedsFor(3**machines), sums(func(uint64) millrace.StateMachine[int64, int64] {
		return &faulty{apply: func(s *sum, c millrace.Command[int64]) (int64, error) {
			s.N += c.Value
			c.Publish(fmt.Append(nil, s.N))
			return s.N, nil
		}}
	}), nil) {
		t.Error(err)
	}
}

// faulty replaces Apply of a sum.
type faulty struct {
	sum
	apply func(s *sum, c millrace.Command[int64]) (int64, error)
}

func (f *faulty) Apply(batch []millrace.Command[int64], results []int64) (err error) {
	for i := range batch {
		if results[i], err = f.apply(&f.sum, batch[i]); err != nil {
			return err
		}
	}
	return nil
}

// TestFaultyMachinesAreFound: each fault is found within a few seeds, and the sentence names it.
func TestFaultyMachinesAreFound(t *testing.T) {
	add := func(s *sum, c millrace.Command[int64]) (int64, error) {
		s.N += c.Value
		return s.N, nil
	}
	for _, c := range []struct {
		fault string
		apply func(host uint64) func(*sum, millrace.Command[int64]) (int64, error)
		want  string
	}{
		{"the order of a map", func(uint64) func(*sum, millrace.Command[int64]) (int64, error) {
			last := map[int64]bool{}
			return func(s *sum, c millrace.Command[int64]) (int64, error) {
				last[c.Value] = true
				for v := range last {
					s.N += v
					break
				}
				return s.N, nil
			}
		}, "the machine is not deterministic: entry"},
		{"what host it is", func(host uint64) func(*sum, millrace.Command[int64]) (int64, error) {
			return func(s *sum, c millrace.Command[int64]) (int64, error) {
				if host == 2 && c.Value == 7 {
					c.Value = 8
				}
				return add(s, c)
			}
		}, "the machine is not deterministic: entry"},
		{"an error for a command", func(uint64) func(*sum, millrace.Command[int64]) (int64, error) {
			return func(s *sum, c millrace.Command[int64]) (int64, error) {
				if c.Value == 5 && c.Index%10 == 3 {
					return 0, errors.New("five is not allowed")
				}
				return add(s, c)
			}
		}, "five is not allowed"},
		{"what is published", func(host uint64) func(*sum, millrace.Command[int64]) (int64, error) {
			return func(s *sum, c millrace.Command[int64]) (int64, error) {
				c.Publish(fmt.Appendf(nil, "host %d", host))
				return add(s, c)
			}
		}, "the machine is not deterministic: entry"},
		{"what the check of the user forbids", func(uint64) func(*sum, millrace.Command[int64]) (int64, error) {
			return func(s *sum, c millrace.Command[int64]) (int64, error) {
				if c.Value == 9 {
					s.N = 0
				}
				return add(s, c)
			}
		}, "Workload.Check: "},
	} {
		t.Run(c.fault, func(t *testing.T) {
			load := sums(func(host uint64) millrace.StateMachine[int64, int64] {
				return &faulty{apply: c.apply(host)}
			})
			for seed := uint64(1); seed <= 10; seed++ {
				_, _, err := sim.RunMachine(sim.Options{Seed: seed}, load)
				if err == nil {
					continue
				}
				t.Log(err)
				if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), fmt.Sprintf("replay: call sim.RunMachine with sim.Options{Seed: %d", seed)) {
					t.Errorf("the sentence lacks %q, or how to replay it", c.want)
				}
				return
			}
			t.Error("not found in ten seeds")
		})
	}
}

// forgetful forgets a part of its state when it is restored; full refuses to be.
type forgetful struct {
	sum
	full bool
}

func (f *forgetful) Restore(ctx context.Context, r io.Reader) error {
	if err := f.sum.Restore(ctx, r); err != nil {
		return err
	}
	if f.full {
		return errors.New("no room")
	}
	f.N -= f.N % 10
	return nil
}

// TestFaultyRestoresAreFound: snapshots of a user's machine are taken and restored, and what is lost with
// them is found within 15 seeds.
func TestFaultyRestoresAreFound(t *testing.T) {
	for full, want := range map[bool]string{false: "the machine is not deterministic: entry", true: "cannot restore a snapshot that it has written: no room"} {
		load := sums(func(uint64) millrace.StateMachine[int64, int64] { return &forgetful{full: full} })
		var failed []error
		for seed := uint64(1); seed <= 15; seed++ {
			_, _, err := sim.RunMachine(sim.Options{Seed: seed}, load)
			if failed = append(failed, err); err != nil && strings.Contains(err.Error(), want) {
				break
			}
		}
		if last := failed[len(failed)-1]; last == nil || !strings.Contains(last.Error(), want) {
			t.Errorf("in 15 seeds: %v, want %q", failed, want)
		}
	}
}

// TestDigestOfAMachine: a difference that no result shows is found by the digest.
func TestDigestOfAMachine(t *testing.T) {
	_, _, err := sim.RunMachine(sim.Options{Seed: 1}, sim.Workload[int64, int64]{
		Machine: func(host uint64) millrace.Machine[int64, int64] {
			m := &sum{}
			return millrace.InMemory(m, millrace.Binary[int64]()).Digest(func() uint64 { return uint64(m.N) + host/3 })
		},
		Command: func(rng *rand.Rand) int64 { return rng.Int64N(10) },
	})
	if err == nil || !strings.Contains(err.Error(), "the machine is not deterministic") {
		t.Error(err)
	}
}

func TestWorkloadThatLacksSomething(t *testing.T) {
	if _, _, err := sim.RunMachine(sim.Options{Seed: 1}, sim.Workload[int64, int64]{}); err == nil || !strings.Contains(err.Error(), "Workload needs") {
		t.Error(err)
	}
	_, _, err := sim.RunMachine(sim.Options{Seed: 1}, sim.Workload[int64, int64]{
		Machine: func(uint64) millrace.Machine[int64, int64] { return millrace.Machine[int64, int64]{} },
		Command: func(rng *rand.Rand) int64 { return 1 },
	})
	if err == nil || !strings.Contains(err.Error(), "without a state machine") {
		t.Error(err)
	}
}
