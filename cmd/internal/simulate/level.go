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
	// Length is how long faults last in a run, in Unit, unless a plan says otherwise. 0 is a level whose runs end with
	// their story.
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
	// Failure says what went wrong; "" if nothing did. At is when, in the unit of the level.
	Failure string
	At      int
	// Kinds and Injections are as in shrink.Attempt.
	Kinds      []string
	Injections int
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

// Run runs one seed. A panic is a failure: the simulator runs the code of a host in this goroutine, and whatever stops
// a host must not stop the other seeds. A length of 0 is the level's own.
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
	r, err := core.Run(core.Options{Seed: seed, Ticks: schedule.Length, Trace: trace})
	o := Outcome{Events: r.Events, Ticks: uint64(r.Ticks), Coverage: r.Coverage, Counts: map[string]int{}}
	for kind, n := range r.Faults {
		o.count(core.Fault(kind).String(), n)
	}
	var v *core.Violation
	if errors.As(err, &v) {
		o.Failure, o.At = v.What, v.At
	} else if err != nil {
		o.Failure = err.Error()
	}
	return o
}

// runHosts runs a seed of a scenario.
func runHosts(s sim.Scenario, seed uint64, schedule shrink.Schedule, trace io.Writer) Outcome {
	r, err := s.Run(sim.Options{Seed: seed, Faults: time.Duration(schedule.Length) * time.Millisecond, Trace: trace})
	o := Outcome{Events: uint64(r.Events), Virtual: r.Virtual, Coverage: r.Coverage, Counts: map[string]int{}}
	for kind, n := range r.Faults {
		o.count(sim.Fault(kind).String(), n)
	}
	var v *sim.Violation
	if errors.As(err, &v) {
		o.Failure, o.At = v.What, int(v.At/time.Millisecond)
	} else if err != nil {
		o.Failure = err.Error()
	}
	return o
}

func (o *Outcome) count(name string, n int) {
	if n > 0 {
		o.Counts[name] = n
	}
}
