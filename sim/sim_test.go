package sim_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/wal"
)

var (
	seed        = flag.Uint64("seed", 0, "run only this seed")
	seeds       = flag.Uint64("seeds", 60, "run TestSeeds with this many seeds, and TestEveryDuty with a third of them (-max-duties); every other test has a flag of its own")
	first       = flag.Uint64("first", 1, "the first of them")
	maxFailures = flag.Int("failures", 3, "stop after this many seeds have failed")
	mode        = flag.String("mode", "", "run in this mode of durability only, as in group-delay(5ms,0,0); otherwise each seed draws one")
	faults      = flag.Duration("faults", 0, "how much virtual time passes in each run before faults stop; 0: as long as package sim does by default")
	without     = flag.String("without", "", "faults of package coverage that do not happen, as in crash,pause")
	skip        = flag.String("skip", "", "ordinals of injections that do not happen, as in 3,17")
	trace       = flag.Bool("events", false, "with -seed: print every event")
	hashes      = flag.String("hashes", "", "write into this file, for each seed, a line with the seed and the hash of all that its run observes")
	everyDuty   = flag.Bool("every-duty", false, "each turn calls all duties of its group: the hashes must be the same")
	observed    = flag.String("observations", "", "with -seed: write all that the run observes into this file")
)

// TestSeeds runs whole clusters through faults. Each seed is a separate run; a failure prints how to repeat
// it.
func TestSeeds(t *testing.T) {
	if *seed != 0 {
		o := options(t, *seed)
		if *trace {
			o.Trace = os.Stdout
		}
		if *observed != "" {
			f, err := os.Create(*observed)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			b := bufio.NewWriter(f)
			defer b.Flush()
			o.Observations = b
		}
		report, err := sim.Run(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(report)
		return
	}
	n := *seeds
	if testing.Short() {
		n = min(n, 50)
	}
	start := time.Now()
	total, failures := runSeeds(options(t, *first), n)
	for _, err := range failures {
		t.Error(err)
	}
	if *hashes != "" {
		if err := os.WriteFile(*hashes, total.hashLines(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	elapsed := time.Since(start)
	t.Logf("%d seeds, %d events (%.0f events/s, %.1f seeds/s), %v of virtual time, %d leaders, %d of %d commands acknowledged",
		total.runs, total.Events, float64(total.Events)/elapsed.Seconds(), float64(total.runs)/elapsed.Seconds(), total.Virtual.Round(time.Second),
		total.Leaders, total.Acked, total.Submitted)
	for kind, times := range total.Faults {
		t.Logf("%6d %v, in %d seeds", times, sim.Fault(kind), total.reached[kind])
		elsewhere := slices.Contains([]sim.Fault{sim.Repaired, sim.LeadersTold, sim.HaltedForGood, sim.PromotionsRefused}, sim.Fault(kind)) // TestRepairs, TestPoison, TestUpgrades
		if times == 0 && len(failures) == 0 && n >= 500 && *mode == "" && *faults == 0 && !elsewhere {
			t.Errorf("no seed had any %v", sim.Fault(kind))
		}
	}
	t.Logf("seeds by mode: %v", total.modes)
	t.Logf("failures by property: %v", byProperty(failures))
	cells := len(coverage.Cells())
	hit := cells - len(total.Coverage.Missing(1))
	t.Logf("injections by fault and phase, %d in all, %d of %d cells:\n%v", total.Coverage.Sum(), hit, cells, &total.Coverage)
	if len(failures) == 0 && n >= 2000 && *mode == "" && hit < wholeHostCells {
		t.Errorf("in %d seeds %d cells were hit, want at least %d (package sim/core hits all of them)", n, hit, wholeHostCells)
	}
	t.Logf("reads: %v", total.Reads)
	for kind, done := range total.Reads {
		if done == 0 && len(failures) == 0 && n >= 50 {
			t.Errorf("no read of kind %d ended well", kind)
		}
	}
	if len(failures) == 0 && total.Acked == 0 {
		t.Error("no command was acknowledged")
	}
}

// wholeHostCells is how many cells of the matrix whole hosts hit in 2,000 seeds. Package sim/core hits all.
const wholeHostCells = 350

// byProperty counts failures by the property that was broken.
func byProperty(failures []error) map[property.Name]int {
	n := map[property.Name]int{}
	for _, err := range failures {
		if v := (*sim.Violation)(nil); errors.As(err, &v) {
			n[v.Property]++
		}
	}
	return n
}

// options returns the options that the flags select.
func options(t *testing.T, seed uint64) sim.Options {
	choice, err := coverage.ParseChoice(*without, *skip)
	if err != nil {
		t.Fatal(err)
	}
	o := sim.Options{Seed: seed, Faults: *faults, Choice: choice, EveryDuty: *everyDuty}
	if *mode != "" {
		m, err := wal.ParseMode(*mode)
		if err != nil {
			t.Fatal(err)
		}
		o.Mode = &m
	}
	return o
}

// totals are the sums of reports.
type totals struct {
	sim.Report
	runs    uint64            // seeds that were run
	reached sim.Faults        // in how many seeds
	modes   map[string]int    // seeds, by kind of mode
	hashes  map[uint64]uint64 // of all that a seed's run observes; empty without -hashes
}

// hashLines returns a line for each seed, in ascending order.
func (t *totals) hashLines() (lines []byte) {
	for _, seed := range slices.Sorted(maps.Keys(t.hashes)) {
		lines = fmt.Appendf(lines, "%d %016x\n", seed, t.hashes[seed])
	}
	return lines
}

func (t *totals) add(r sim.Report) {
	t.runs++
	t.Events += r.Events
	t.Virtual += r.Virtual
	t.Leaders += r.Leaders
	t.Submitted += r.Submitted
	t.Acked += r.Acked
	t.Coverage.Add(&r.Coverage)
	t.Injections += r.Injections
	for kind, n := range r.Reads {
		t.Reads[kind] += n
	}
	for kind, n := range r.Faults {
		t.Faults[kind] += n
		if n > 0 {
			t.reached[kind]++
		}
	}
	name, _, _ := strings.Cut(r.Mode, "(")
	t.modes[name]++
}

// runSeeds runs n seeds from o.Seed on, on all cores, and adds up their reports. It stops after a few
// failures.
func runSeeds(o sim.Options, n uint64) (total totals, failures []error) {
	var mu sync.Mutex
	total.modes, total.hashes = map[string]int{}, map[uint64]uint64{}
	eachSeed(o.Seed, n, func(seed uint64) (more bool) {
		one := o
		one.Seed = seed
		history := fnv.New64a()
		if *hashes != "" {
			one.Observations = history
		}
		r, err := sim.Run(one)
		mu.Lock()
		defer mu.Unlock()
		total.add(r)
		if *hashes != "" {
			total.hashes[seed] = history.Sum64()
		}
		if err != nil {
			failures = append(failures, err)
		}
		if total.runs%1000 == 0 {
			fmt.Fprintf(os.Stderr, "%d of %d seeds, %d failures\n", total.runs, n, len(failures))
		}
		return len(failures) < *maxFailures
	})
	return total, failures
}

// TestSameSeedSameHistory: a seed that gives different runs would be worthless. They run side by side, in
// another order each time, because what one run leaves in memory that they share must not change another
// one.
func TestSameSeedSameHistory(t *testing.T) {
	const n = 32
	var mu sync.Mutex
	histories := map[uint64]string{}
	for round := range uint64(2) {
		eachSeed(0, n, func(k uint64) (more bool) {
			seed := k + 1
			if round == 1 {
				seed = n - k
			}
			report, err := sim.Run(sim.Options{Seed: seed})
			history := fmt.Sprint(report, err)
			mu.Lock()
			defer mu.Unlock()
			if was, ok := histories[seed]; ok && was != history {
				t.Errorf("seed %d ran differently:\n%s\n%s", seed, was, history)
			}
			histories[seed] = history
			return true
		})
	}
}
