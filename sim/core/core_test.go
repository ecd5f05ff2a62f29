package core

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/property"
)

var (
	theSeed   = flag.Uint64("seed", 0, "run this seed only")
	first     = flag.Uint64("first", 0, "run seeds behind this one")
	seeds     = flag.Uint64("seeds", 300, "how many seeds to run")
	ticks     = flag.Int("ticks", DefaultTicks, "how long faults last, in ticks")
	events    = flag.Bool("events", false, "print every event")
	cellSeeds = flag.Uint64("cells", 150, "how many seeds to run for TestEveryCellIsHit")
	without   = flag.String("without", "", "faults of package coverage that do not happen, as in crash,pause")
	skip      = flag.String("skip", "", "ordinals of injections that do not happen, as in 3,17")
	withLiar  = flag.Bool("liar", false, "with a liar that drives terms")
	unchecked = flag.String("unchecked", "", "a property of package property that is not checked")
	most      = flag.Int64("failures", 1, "stop after so many seeds have failed")
)

// TestMain lets garbage be: most runs have little that lasts, and would collect it all the time. A few hold a
// gigabyte; they collect as soon as the heap has the limit.
func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(1600)
	debug.SetMemoryLimit(3 << 30)
	os.Exit(m.Run())
}

func TestSeeds(t *testing.T) {
	if *theSeed != 0 {
		choice, err := coverage.ParseChoice(*without, *skip)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Seed: *theSeed, Ticks: *ticks, Choice: choice, Liar: *withLiar, Unchecked: property.Name(*unchecked)}
		if *events {
			o.Trace = os.Stdout
		}
		report, err := Run(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(report)
		return
	}
	n := *seeds
	if testing.Short() {
		n = min(n, 100)
	}
	sum := runSeeds(t, *first, n, *withLiar)
	if n < 100 {
		return
	}
	for kind, times := range sum.Faults {
		if times == 0 {
			t.Errorf("in %d seeds there were no %v", n, Fault(kind))
		}
	}
	if sum.Reads == 0 || sum.Leaders == 0 {
		t.Error("nothing was read, or no node led")
	}
}

// TestEveryCellIsHit: each fault comes in each phase in which it can come, ten times and more in as many
// seeds as .ci/run runs. In fewer seeds, most cells are hit.
func TestEveryCellIsHit(t *testing.T) {
	n := *cellSeeds
	if testing.Short() {
		n = min(n, 50)
	}
	sum := runSeeds(t, *first, n, false)
	t.Logf("injections by fault and phase:\n%v", &sum.Coverage)
	ofHosts := func(c coverage.Cell) bool { return coverage.OfHosts(c.Fault) }
	lacks := func(hits uint64) []coverage.Cell { return slices.DeleteFunc(sum.Coverage.Missing(hits), ofHosts) }
	possible := len(slices.DeleteFunc(coverage.Possible(), ofHosts))
	t.Logf("%d of %d cells can be hit; of these %d were, and %d of them %d times or more; %d hits in all", possible, len(coverage.Faults())*len(coverage.Phases()),
		possible-len(lacks(1)), possible-len(lacks(cellHits)), cellHits, sum.Coverage.Sum())
	if missing := lacks(cellHits); n >= allCells && len(missing) > 0 {
		t.Errorf("in %d seeds there were fewer than %d of each of these: %v", n, cellHits, missing)
	}
	if missing := lacks(1); len(missing) > possible/2 {
		t.Errorf("in %d seeds %d of %d cells were not hit", n, len(missing), possible)
	}
	for _, c := range coverage.Cells() {
		if reason, never := coverage.Impossible(c.Fault, c.Phase); never && sum.Coverage.At(c.Fault, c.Phase) > 0 {
			t.Errorf("%v is said to be impossible (%s), and was hit", c, reason)
		}
	}
}

// TestLiar: terms that a liar has driven apart come together when it has ended, and nothing else is wrong.
func TestLiar(t *testing.T) {
	runSeeds(t, *first, min(*seeds, 60), true)
}

const (
	cellHits = 10
	allCells = 4900 // seeds in which all cells are hit so often
)

// runSeeds runs seeds behind the first one on all cores, and returns the sum of their reports.
func runSeeds(t *testing.T, first, seeds uint64, liar bool) (sum Report) {
	var next atomic.Uint64
	var failed atomic.Int64
	reports := make(chan Report, 64)
	workers := runtime.GOMAXPROCS(0)
	begin := time.Now()
	for range workers {
		go func() {
			defer func() { reports <- Report{} }()
			for n := next.Add(1); n <= seeds && failed.Load() < *most; n = next.Add(1) {
				report, err := Run(Options{Seed: first + n, Ticks: *ticks, Liar: liar, Unchecked: property.Name(*unchecked)})
				if err != nil {
					failed.Add(1)
					t.Error(err)
				}
				reports <- report
			}
		}()
	}
	for workers > 0 {
		r := <-reports
		if r.Seed == 0 {
			workers--
		}
		sum.Faults.Add(r.Faults)
		sum.Coverage.Add(&r.Coverage)
		sum.Events, sum.Reads, sum.Leaders, sum.Committed = sum.Events+r.Events, sum.Reads+r.Reads, sum.Leaders+r.Leaders, sum.Committed+r.Committed
		sum.Ticks = max(sum.Ticks, r.Ticks)
		sum.Injections += r.Injections
	}
	t.Logf("%d seeds, %d events (%.2f million in a second), %d leaders, %d entries committed, %d reads, %d injections, in order again within %d ticks; %v",
		seeds, sum.Events, float64(sum.Events)/1e6/time.Since(begin).Seconds(), sum.Leaders, sum.Committed, sum.Reads, sum.Injections, sum.Ticks, sum.Faults)
	return sum
}

// TestInjectionsCanBeLeftOut: without the kinds of a run nothing is injected, and the others keep their
// ordinals through the first one that is left out.
func TestInjectionsCanBeLeftOut(t *testing.T) {
	struck, changed := 0, 0 // runs that had injections, and that are other ones without the last
	for seed := uint64(1); seed <= 20; seed++ {
		all, err := Run(Options{Seed: seed, Ticks: 100})
		if err != nil {
			t.Fatal(err)
		}
		none, err := Run(Options{Seed: seed, Ticks: 100, Choice: coverage.Choice{Without: coverage.Faults()}})
		if err != nil {
			t.Fatal(err)
		}
		if n := none.Coverage.Sum(); n != 0 || none.Faults[Crashed]+none.Faults[Cut]+none.Faults[Lost]+none.Faults[Forgot]+none.Faults[Paused] > 0 {
			t.Errorf("without all faults there are %d hits and %v", n, none.Faults)
		}
		if all.Injections == 0 {
			continue
		}
		last, err := Run(Options{Seed: seed, Ticks: 100, Choice: coverage.Choice{Skip: []int{all.Injections}}})
		if err != nil {
			t.Fatal(err)
		}
		struck++
		if last.Digest != all.Digest {
			changed++
		}
		if last.Injections < all.Injections {
			t.Errorf("seed %d: without injection %d there are %d injections", seed, all.Injections, last.Injections)
		}
	}
	if struck < 10 || changed < struck/2 {
		t.Errorf("%d runs had injections, and %d are other runs without the last one", struck, changed)
	}
}

// The same seed gives the same run.
func TestSameSeed(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		var digests [2]Report
		for i := range digests {
			report, err := Run(Options{Seed: seed, Ticks: 100})
			if err != nil {
				t.Fatal(err)
			}
			digests[i] = report
		}
		if digests[0] != digests[1] {
			t.Errorf("%v\nand then %v", digests[0], digests[1])
		}
	}
}

// A storage that tears its writes in another order than the contract's is found, and so is a node that keeps
// its authority although its disk has forgotten something. Strikes of one kind make it soon.
func TestMistakesAreFound(t *testing.T) {
	for _, row := range []struct {
		name  string
		wrong bug
		aim   coverage.Cell
		most  uint64 // seeds
	}{
		{"entries first", entriesFirst, coverage.Cell{Fault: coverage.TornWrite, Phase: coverage.NewLeader}, 200},
		{"commit index first", commitFirst, coverage.Cell{Fault: coverage.TornWrite, Phase: coverage.Conflict}, 200},
		{"authority kept", keepsAuthority, coverage.Cell{Fault: coverage.BitFlip, Phase: coverage.PipelineFull}, 100},
	} {
		t.Run(row.name, func(t *testing.T) {
			for seed := uint64(1); seed <= row.most; seed++ {
				if _, err := Run(Options{Seed: seed, bug: row.wrong, aim: &row.aim}); err != nil {
					t.Logf("%.200s", err)
					if _, err := Run(Options{Seed: seed, aim: &row.aim}); err != nil {
						t.Errorf("without the mistake: %v", err)
					}
					return
				}
			}
			t.Errorf("%d seeds have not found it", row.most)
		})
	}
}

// The report of a violation names the command that runs the seed again.
func TestViolationNamesItsSeed(t *testing.T) {
	v := &Violation{Seed: 7, Ticks: 50, At: 3, What: "x", Choice: coverage.Choice{Skip: []int{4, 5}}}
	if text := v.Error(); !strings.Contains(text, "-seed=7 -events -ticks=50 -skip=4,5") || !strings.Contains(text, "tick 3") {
		t.Error(text)
	}
}
