package simulate

import (
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/shrink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a level whose runs a test decides.
const fake = "fake"

// plant adds the level fake for one test, or replaces it.
func plant(t *testing.T, run func(seed uint64, s shrink.Schedule) Outcome) {
	t.Helper()
	before := levels
	others := slices.DeleteFunc(slices.Clone(levels), func(l *Level) bool { return l.Name == fake })
	levels = append(others, &Level{Name: fake, About: "a fake", Length: 100, Unit: ticks, run: func(seed uint64, s shrink.Schedule, _ io.Writer) Outcome {
		return run(seed, s)
	}})
	t.Cleanup(func() { levels = before })
}

// good is a run in which nothing is wrong, of which some depends on the seed.
func good(seed uint64, _ shrink.Schedule) Outcome {
	o := Outcome{Events: 1000 + seed%7, Ticks: 100, Injections: 3, Counts: map[string]int{"crashes": int(1 + seed%3)}}
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 3 {
		o.Coverage.Hit(coverage.Faults()[rng.IntN(30)], coverage.Steady)
	}
	return o
}

func planFor(seeds Seeds) *Plan {
	return &Plan{Profile: fake, Seeds: seeds, Part: whole, Workers: 3, Failures: 1, Patience: time.Minute}
}

// heard is a Progress that remembers what it heard.
type heard struct {
	failed  []Failure
	last    Status
	shrinks int
	ends    int
}

func (h *heard) Update(s Status) { h.last = s }
func (h *heard) Failed(f *Failure) {
	h.failed = append(h.failed, *f)
}
func (h *heard) Shrinking(*Failure, int, int) { h.shrinks++ }
func (h *heard) End()                         { h.ends++ }

func unsaved(*Result) error { return nil }

// mustRun runs a plan from nothing.
func mustRun(t *testing.T, p *Plan) *Result {
	t.Helper()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	r := NewResult(p)
	if err := Run(t.Context(), p, r, &heard{}, unsaved); err != nil {
		t.Fatal(err)
	}
	return r
}

// bare returns the JSON of a result without what differs from run to run: times and machines.
func bare(t *testing.T, r *Result) string {
	t.Helper()
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := decode(data)
	if err != nil {
		t.Fatal(err)
	}
	again.Machines = nil
	for _, tally := range again.Levels {
		tally.Busy, tally.Slowest, tally.SlowSeed = 0, 0, 0
	}
	data, err = again.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
