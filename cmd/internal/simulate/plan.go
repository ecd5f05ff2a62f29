package simulate

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/shrink"
)

// Plan says which seeds to run, and for how long.
type Plan struct {
	Profile string
	Seeds   Seeds
	Part    Part
	// Minutes is how long new seeds are begun; 0 is no bound.
	Minutes time.Duration
	// Length is how long faults last in each run, in the unit of the level; 0 is the level's own. A profile
	// of several levels takes no other.
	Length int
	// Without has kinds of faults that are not injected, and Skip numbers of single injections. Skip needs
	// one seed.
	Without []string
	Skip    []int
	Workers int // runs at a time; 0 is one for each core
	// Failures is after how many of them no new seed is begun.
	Failures int
	// Shrink bounds the search for a smaller schedule of each failure; 0 is no search.
	Shrink time.Duration
	// Patience is how long one run may take. A run that takes longer has failed.
	Patience time.Duration
	// Hits is how often each possible cell of the matrix must be hit by all seeds of the result; 0 demands
	// nothing.
	Hits int
	// Soak is the file in which results are added up; "" is none.
	Soak string
	// Trace, if set, receives every event. It needs one seed.
	Trace io.Writer
}

// Seeds are the numbers [From, To).
type Seeds struct{ From, To uint64 }

// Endless is the To of seeds without an end.
const Endless = uint64(math.MaxUint64)

// ParseSeeds reads "A:B", the seeds from A up to and without B, "A:" without an end, and "A", a single
// seed.
func ParseSeeds(text string) (Seeds, error) {
	first, last, isRange := strings.Cut(text, ":")
	from, err := strconv.ParseUint(first, 10, 64)
	if err != nil {
		return Seeds{}, fmt.Errorf("%q: want A:B (the seeds from A up to and without B), A: (without an end), or A (one seed)", text)
	}
	s := Seeds{From: from, To: from + 1}
	switch {
	case isRange && last == "":
		s.To = Endless
	case isRange:
		if s.To, err = strconv.ParseUint(last, 10, 64); err != nil {
			return Seeds{}, fmt.Errorf("%q: %q is not a number", text, last)
		}
	}
	if s.From >= s.To {
		return Seeds{}, fmt.Errorf("%q has no seed: %d is not below %d", text, s.From, s.To)
	}
	return s, nil
}

// IsOne reports whether there is only one seed.
func (s Seeds) IsOne() bool { return s.To-s.From == 1 }

// String returns what ParseSeeds reads.
func (s Seeds) String() string {
	switch {
	case s.IsOne():
		return fmt.Sprint(s.From)
	case s.To == Endless:
		return fmt.Sprintf("%d:", s.From)
	}
	return fmt.Sprintf("%d:%d", s.From, s.To)
}

// Part is the part of the seeds that a machine of several runs: seeds whose remainder by Of is Index.
type Part struct {
	Index uint64 `json:"index"`
	Of    uint64 `json:"of"`
}

// whole is the shard with all seeds.
var whole = Part{0, 1}

// maxParts is far more than anyone has machines.
const maxParts = 1 << 20

// ParsePart reads "I/N": the I-th of N, where the first is 0.
func ParsePart(text string) (Part, error) {
	i, n, ok := strings.Cut(text, "/")
	index, err := strconv.ParseUint(i, 10, 32)
	of, err2 := strconv.ParseUint(n, 10, 32)
	if !ok || err != nil || err2 != nil || of == 0 || of > maxParts || index >= of {
		return Part{}, fmt.Errorf("%q: want I/N, where N is at most %d and I at least 0 and below N, as in 0/100 … 99/100", text, maxParts)
	}
	return Part{index, of}, nil
}

func (s Part) String() string { return fmt.Sprintf("%d/%d", s.Index, s.Of) }

// first returns the first seed of the shard that is not below from.
func (s Part) first(from uint64) uint64 {
	return from + (s.Of+s.Index-from%s.Of)%s.Of
}

// Bounds of a plan.
const (
	maxWorkers  = 1024
	maxMinutes  = 366 * 24 * time.Hour
	maxFailures = 1000
	maxLength   = 10_000_000
)

// Validate returns the first reason why the plan cannot be carried out. It wraps lab.ErrInvalid.
func (p *Plan) Validate() error {
	profile, known := profileNamed(p.Profile)
	switch {
	case !known:
		return lab.Invalid("Profile", "%q is none of %s", p.Profile, profileNames())
	case p.Seeds.From >= p.Seeds.To:
		return lab.Invalid("Seeds", "there is none in [%d, %d)", p.Seeds.From, p.Seeds.To)
	case p.Seeds.To == Endless && p.Minutes == 0:
		return lab.Invalid("Minutes", "seeds without an end need a bound of time")
	case p.Part.Of == 0 || p.Part.Index >= p.Part.Of:
		return lab.Invalid("Part", "%v is not a part", p.Part)
	case p.Minutes < 0 || p.Minutes > maxMinutes:
		return lab.Invalid("Minutes", "%v is not between 0 and %v", p.Minutes, maxMinutes)
	case p.Workers < 0 || p.Workers > maxWorkers:
		return lab.Invalid("Workers", "%d is not between 0 and %d", p.Workers, maxWorkers)
	case p.Failures < 1 || p.Failures > maxFailures:
		return lab.Invalid("Failures", "%d is not between 1 and %d", p.Failures, maxFailures)
	case p.Shrink < 0 || p.Shrink > maxMinutes:
		return lab.Invalid("Shrink", "%v is not between 0 and %v", p.Shrink, maxMinutes)
	case p.Patience <= 0 || p.Patience > maxMinutes:
		return lab.Invalid("Patience", "%v is not between 1ns and %v", p.Patience, maxMinutes)
	case p.Hits < 0:
		return lab.Invalid("Hits", "%d is below 0", p.Hits)
	case p.Trace != nil && !p.Seeds.IsOne():
		return lab.Invalid("Trace", "every event can be shown of one seed only, and %v are more", p.Seeds)
	case len(p.Skip) > 0 && !p.Seeds.IsOne():
		return lab.Invalid("Skip", "single injections can be skipped in one seed only, and %v are more", p.Seeds)
	}
	return p.validateSchedule(profile)
}

// validateSchedule checks Length and Without.
func (p *Plan) validateSchedule(profile Profile) error {
	for _, name := range p.Without {
		if _, err := coverage.ParseFault(name); err != nil {
			return lab.Invalid("Without", "%v", err)
		}
	}
	if p.Length == 0 {
		return nil
	}
	level := profile.mixture[0]
	switch {
	case slices.ContainsFunc(profile.mixture, func(l *Level) bool { return l != level }):
		return lab.Invalid("Length", "the levels of the profile %s count in different units; choose a profile of one level", p.Profile)
	case level.Length == 0:
		return lab.Invalid("Length", "a run of %s tells its story to the end, and has no other length", level.Name)
	case p.Length < 0 || p.Length > maxLength:
		return lab.Invalid("Length", "%d %s is not between 1 and %d", p.Length, level.Unit, maxLength)
	}
	return nil
}

// schedule returns the schedule of each run in a level.
func (p *Plan) schedule(l *Level) shrink.Schedule {
	s := shrink.Schedule{Length: p.Length, Without: slices.Clone(p.Without), Skip: slices.Clone(p.Skip)}
	if s.Length == 0 {
		s.Length = l.Length
	}
	return s
}

func (p *Plan) workers() int {
	if p.Workers == 0 {
		return runtime.GOMAXPROCS(0)
	}
	return p.Workers
}
