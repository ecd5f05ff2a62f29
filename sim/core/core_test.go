package core

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var (
	theSeed = flag.Uint64("seed", 0, "run this seed only")
	first   = flag.Uint64("first", 0, "run seeds behind this one")
	seeds   = flag.Uint64("seeds", 300, "how many seeds to run")
	ticks   = flag.Int("ticks", defaultTicks, "how long faults last, in ticks")
	without = flag.String("without", "", "do not check this property (property.go), with _ for spaces")
	most    = flag.Int64("failures", 1, "stop after this many seeds have failed")
	events  = flag.Bool("events", false, "print every event")
)

// TestMain lets garbage be: a run has little of it, and would collect it all the time.
func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(1600)
	os.Exit(m.Run())
}

// left is the property that is not checked.
func left() Property { return Property(strings.ReplaceAll(*without, "_", " ")) }

func TestSeeds(t *testing.T) {
	if *theSeed != 0 {
		o := Options{Seed: *theSeed, Ticks: *ticks, Without: left()}
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
	var next atomic.Uint64
	var failures atomic.Int64
	reports := make(chan Report, 64)
	workers := runtime.GOMAXPROCS(0)
	begin := time.Now()
	for range workers {
		go func() {
			defer func() { reports <- Report{} }()
			for n := next.Add(1); n <= *seeds && failures.Load() < *most; n = next.Add(1) {
				report, err := Run(Options{Seed: *first + n, Ticks: *ticks, Without: left()})
				if err != nil {
					failures.Add(1)
					t.Error(err)
				}
				reports <- report
			}
		}()
	}
	var sum Report
	for workers > 0 {
		r := <-reports
		if r.Seed == 0 {
			workers--
		}
		sum.Faults.Add(r.Faults)
		sum.Events, sum.Reads, sum.Leaders, sum.Committed = sum.Events+r.Events, sum.Reads+r.Reads, sum.Leaders+r.Leaders, sum.Committed+r.Committed
		sum.Ticks = max(sum.Ticks, r.Ticks)
	}
	t.Logf("%d seeds, %d events (%.2f million in a second), %d leaders, %d entries committed, %d reads, in order again within %d ticks; %v",
		*seeds, sum.Events, float64(sum.Events)/1e6/time.Since(begin).Seconds(), sum.Leaders, sum.Committed, sum.Reads, sum.Ticks, sum.Faults)
	if *seeds < 100 || *theSeed != 0 {
		return
	}
	for kind, n := range sum.Faults {
		if n == 0 {
			t.Errorf("in %d seeds there were no %v", *seeds, Fault(kind))
		}
	}
	if sum.Reads == 0 || sum.Leaders == 0 {
		t.Error("nothing was read, or no node led")
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

// A storage that tears its writes in another order than the contract's is found.
func TestWrongOrdersAreFound(t *testing.T) {
	for _, row := range []struct {
		name  string
		wrong bug
		first uint64 // the seeds from here on find it soon
	}{{"entries first", entriesFirst, 120}, {"commit index first", commitFirst, 1480}} {
		t.Run(row.name, func(t *testing.T) {
			for seed := row.first; seed < row.first+200; seed++ {
				if _, err := Run(Options{Seed: seed, bug: row.wrong}); err != nil {
					t.Logf("%.200s", err)
					return
				}
			}
			t.Errorf("200 seeds from %d on have not found it", row.first)
		})
	}
}

// The report of a violation names the command that runs the seed again.
func TestViolationNamesItsSeed(t *testing.T) {
	v := &Violation{Seed: 7, Ticks: 50, At: 3, What: "x"}
	if text := v.Error(); !strings.Contains(text, "-seed=7 -ticks=50") || !strings.Contains(text, "tick 3") {
		t.Error(text)
	}
}
