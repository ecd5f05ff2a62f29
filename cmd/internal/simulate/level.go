package simulate

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"github.com/millrace/millrace/sim"
	"github.com/millrace/millrace/sim/core"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/shrink"
)

// Level is one kind of run.
type Level struct {
	Name, About string
	// Length is how long faults last in a run, in Unit, unless a plan says otherwise. 0 is a level whose
	// runs end with their story.
	Length int
	Unit   string

	run func(seed uint64, schedule shrink.Schedule, trace io.Writer) Outcome
}

// Outcome is what one run showed.
type Outcome struct {
	Events   uint64
	Ticks    uint64        // of the core
	Virtual  time.Duration // of whole hosts
	Coverage coverage.Matrix
	Counts   map[string]int // of faults and their effects, by name
	// Failure says what went wrong; "" if nothing did. Property is what was broken, if that has a name, and
	// At when, in the unit of the level.
	Failure    string
	Property   string
	At         int
	Injections int // ordinals that were given, as in shrink.Attempt

	endless bool // it has not ended, and what it has shown is not known
}

// Levels returns all levels; the first one is the core.
func Levels() []*Level { return slices.Clone(levels) }

var levels = allLevels()

const (
	coreLevel = "core"
	ticks     = "ticks"
	millis    = "ms of virtual time"
)

func allLevels() []*Level {
	all := []*Level{{
		Name: coreLevel, About: "clusters of the core alone, with storage that tears writes", Unit: ticks, Length: core.DefaultTicks, run: runCore,
	}}
	for _, s := range sim.Scenarios() {
		all = append(all, &Level{
			Name: s.Name, About: s.About, Unit: millis, Length: int(s.Faults / time.Millisecond),
			run: func(seed uint64, schedule shrink.Schedule, trace io.Writer) Outcome {
				return runHosts(s, seed, schedule, trace)
			},
		})
	}
	return all
}

func levelNamed(name string) *Level {
	if i := slices.IndexFunc(levels, func(l *Level) bool { return l.Name == name }); i >= 0 {
		return levels[i]
	}
	return nil
}

// Run runs one seed. A panic is a failure: the simulator runs the code of a host in this goroutine, and
// whatever stops a host must not stop the other seeds. A length of 0 is the level's own.
func (l *Level) Run(seed uint64, schedule shrink.Schedule, trace io.Writer) (o Outcome) {
	defer func() {
		if r := recover(); r != nil {
			o.Failure = fmt.Sprintf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return l.run(seed, schedule, trace)
}

// runCore runs a seed of the core alone.
func runCore(seed uint64, schedule shrink.Schedule, trace io.Writer) Outcome {
	r, err := core.Run(core.Options{Seed: seed, Ticks: schedule.Length, Trace: trace, Choice: choice(schedule)})
	o := Outcome{Events: r.Events, Ticks: uint64(r.Ticks), Coverage: r.Coverage, Injections: r.Injections, Counts: map[string]int{}}
	for kind, n := range r.Faults {
		o.count(core.Fault(kind).String(), n)
	}
	var v *core.Violation
	if errors.As(err, &v) {
		o.Failure, o.Property, o.At = v.What, string(v.Property), v.At
	} else if err != nil {
		o.Failure = err.Error()
	}
	return o
}

// runHosts runs a seed of a scenario.
func runHosts(s sim.Scenario, seed uint64, schedule shrink.Schedule, trace io.Writer) Outcome {
	r, err := s.Run(sim.Options{Seed: seed, Faults: time.Duration(schedule.Length) * time.Millisecond, Trace: trace, Choice: choice(schedule)})
	o := Outcome{Events: uint64(r.Events), Virtual: r.Virtual, Coverage: r.Coverage, Injections: r.Injections, Counts: map[string]int{}}
	for kind, n := range r.Faults {
		o.count(sim.Fault(kind).String(), n)
	}
	var v *sim.Violation
	if errors.As(err, &v) {
		o.Failure, o.Property, o.At = v.What, string(v.Property), int(v.At/time.Millisecond)
	} else if err != nil {
		o.Failure = err.Error()
	}
	return o
}

// choice returns what a schedule leaves out. A plan has checked the names.
func choice(s shrink.Schedule) coverage.Choice {
	c := coverage.Choice{Skip: s.Skip}
	for _, name := range s.Without {
		if f, err := coverage.ParseFault(name); err == nil {
			c.Without = append(c.Without, f)
		}
	}
	return c
}

// rates are the faults that are a rate in many runs, besides injections that are counted.
var rates = []coverage.Fault{coverage.DropBurst, coverage.DuplicateBurst, coverage.LongDelay, coverage.CorruptFrame}

// kinds returns the faults that a run of the schedule has, or may have.
func (o *Outcome) kinds(s shrink.Schedule) (names []string) {
	for _, f := range coverage.Faults() {
		injected := slices.ContainsFunc(coverage.Phases(), func(p coverage.Phase) bool { return o.Coverage.At(f, p) > 0 })
		if (injected || slices.Contains(rates, f)) && !slices.Contains(s.Without, f.String()) {
			names = append(names, f.String())
		}
	}
	return names
}

func (o *Outcome) count(name string, n int) {
	if n > 0 {
		o.Counts[name] = n
	}
}
