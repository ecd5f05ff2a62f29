package simulate

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/sim/coverage"
)

// Result is what the seeds of a profile have shown, over any number of runs and machines. Its JSON form is
// the file of a soak, and what --json prints; names in it do not change.
type Result struct {
	Format  string   `json:"format"`
	Version int      `json:"version"`
	Profile string   `json:"profile"`
	Length  int      `json:"length,omitempty"`  // as in Plan
	Without []string `json:"without,omitempty"` // as in Plan
	Skip    []int    `json:"skip,omitempty"`    // as in Plan
	// Pieces are the seeds that were run: sorted, and no seed is in two of them.
	Pieces []Piece `json:"pieces"`
	// Levels has what the seeds of each level have shown.
	Levels   map[string]*Tally `json:"levels"`
	Coverage coverage.Matrix   `json:"coverage"`
	Failed   uint64            `json:"failed"`   // seeds
	Failures []Failure         `json:"failures"` // the first of them, at most maxKept
	Machines []Machine         `json:"machines"`
	Sum      string            `json:"sum"` // of all of the above; empty while it is computed
}

const (
	format  = "millrace sim"
	version = 1

	// maxKept is how many failures a result describes.
	maxKept = 100
)

// Piece are the seeds of a shard in [From, To).
type Piece struct {
	Part
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// Seeds returns how many seeds a piece has.
func (p Piece) Seeds() uint64 {
	first := p.Part.first(p.From)
	if first >= p.To {
		return 0
	}
	return (p.To-1-first)/p.Of + 1
}

// Tally is what the seeds of one level have shown.
type Tally struct {
	Seeds    uint64            `json:"seeds"`
	Events   uint64            `json:"events"`
	Injected uint64            `json:"injections"` // of faults
	Ticks    uint64            `json:"ticks,omitempty"`
	Virtual  time.Duration     `json:"virtual_ns,omitempty"`
	Busy     time.Duration     `json:"busy_ns"`    // sum of the time that each run took
	Slowest  time.Duration     `json:"slowest_ns"` // the longest run, and its seed
	SlowSeed uint64            `json:"slow_seed"`
	Counts   map[string]uint64 `json:"counts"`
}

// Machine is a machine with a build of the program, and how much it has done.
type Machine struct {
	Revision  string        `json:"revision"` // of the program, "" if unknown; "+" means uncommitted changes
	OS        string        `json:"os"`
	Kernel    string        `json:"kernel"`
	CPU       string        `json:"cpu"`
	Cores     int           `json:"cores"`
	GoVersion string        `json:"go_version"`
	Workers   int           `json:"workers"`
	Runs      int           `json:"runs"` // of the command
	Seeds     uint64        `json:"seeds"`
	Took      time.Duration `json:"took_ns"` // real time, summed over the runs
	First     time.Time     `json:"first"`   // when the first run began
}

// thisMachine describes the machine and the program that run now.
func thisMachine(workers int) Machine {
	e := lab.ReadEnvironment(".")
	return Machine{Revision: e.Revision, OS: e.OS, Kernel: e.Kernel, CPU: e.CPU, Cores: e.Cores, GoVersion: e.GoVersion, Workers: workers, Runs: 1, First: e.Time}
}

// is reports whether two descriptions are of the same build on the same kind of machine.
func (m Machine) is(other Machine) bool {
	m.Runs, m.Seeds, m.Took, m.First = other.Runs, other.Seeds, other.Took, other.First
	return m == other
}

// NewResult returns the result of no seeds.
func NewResult(p *Plan) *Result {
	return &Result{Format: format, Version: version, Profile: p.Profile, Length: p.Length, Without: p.Without, Skip: p.Skip, Levels: map[string]*Tally{}, Pieces: []Piece{}, Failures: []Failure{}}
}

// add counts one seed, the next one of the last piece.
func (r *Result) add(l *Level, seed uint64, o *Outcome, took time.Duration) {
	t := r.Levels[l.Name]
	if t == nil {
		t = &Tally{Counts: map[string]uint64{}}
		r.Levels[l.Name] = t
	}
	t.Seeds++
	t.Injected += uint64(o.Injections)
	t.Events, t.Ticks, t.Virtual, t.Busy = t.Events+o.Events, t.Ticks+o.Ticks, t.Virtual+o.Virtual, t.Busy+took
	if took > t.Slowest {
		t.Slowest, t.SlowSeed = took, seed
	}
	for name, n := range o.Counts {
		t.Counts[name] += uint64(n)
	}
	r.Coverage.Add(&o.Coverage)
}

// fail keeps a failure.
func (r *Result) fail(f Failure) {
	r.Failed++
	if len(r.Failures) < maxKept {
		r.Failures = append(r.Failures, f)
	}
}

// Seeds, Events and Busy are sums over the levels.

// Seeds returns how many seeds were run.
func (r *Result) Seeds() (n uint64) {
	for _, t := range r.Levels {
		n += t.Seeds
	}
	return n
}

// Events returns how many events they had.
func (r *Result) Events() (n uint64) {
	for _, t := range r.Levels {
		n += t.Events
	}
	return n
}

// Injections returns how many faults were injected.
func (r *Result) Injections() (n uint64) {
	for _, t := range r.Levels {
		n += t.Injected
	}
	return n
}

// Took returns the real time of all machines, in sum.
func (r *Result) Took() (d time.Duration) {
	for _, m := range r.Machines {
		d += m.Took
	}
	return d
}

// levelNames returns the levels that were run, in the order of Levels.
func (r *Result) levelNames() (names []string) {
	for _, l := range levels {
		if r.Levels[l.Name] != nil {
			names = append(names, l.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Levels)) {
		if levelNamed(name) == nil { // of another version of the program
			names = append(names, name)
		}
	}
	return names
}

// counts returns the counts of all levels, the largest first.
func (r *Result) counts() (all []count) {
	sum := map[string]uint64{}
	for _, t := range r.Levels {
		for name, n := range t.Counts {
			sum[name] += n
		}
	}
	for name, n := range sum {
		all = append(all, count{name, n})
	}
	slices.SortFunc(all, func(a, b count) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Name, b.Name)) })
	return all
}

type count struct {
	Name string
	N    uint64
}

// extend records that all seeds of a shard in [from, to) are in the result.
func (r *Result) extend(p Piece) {
	if n := len(r.Pieces); n > 0 && r.Pieces[n-1].Part == p.Part && r.Pieces[n-1].To == p.From {
		r.Pieces[n-1].To = p.To
		return
	}
	r.Pieces = append(r.Pieces, p)
}

// addMachine adds a machine, or its work to what it has done before.
func (r *Result) addMachine(m Machine) *Machine {
	for i := range r.Machines {
		if have := &r.Machines[i]; have.is(m) {
			have.Runs, have.Seeds, have.Took = have.Runs+m.Runs, have.Seeds+m.Seeds, have.Took+m.Took
			if m.First.Before(have.First) {
				have.First = m.First
			}
			return have
		}
	}
	r.Machines = append(r.Machines, m)
	return &r.Machines[len(r.Machines)-1]
}
