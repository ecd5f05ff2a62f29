package simulate

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/sim/shrink"
)

// Failure is a seed that failed.
type Failure struct {
	Level    string          `json:"level"`
	Seed     uint64          `json:"seed"`
	Schedule shrink.Schedule `json:"schedule"`
	Property string          `json:"property,omitempty"` // that was broken, if it has a name
	What     string          `json:"what"`
	At       string          `json:"at"` // when, with its unit; "" if it is not known
	Revision string          `json:"revision"`
	Replay   string          `json:"replay"`             // the command that shows every event of it
	Smallest *Smallest       `json:"smallest,omitempty"` // nil if no smaller one was looked for

	endless bool // its run has not ended in time, so others of the seed may not
}

// Smallest is the smallest schedule with which a seed still fails.
type Smallest struct {
	Schedule   shrink.Schedule `json:"schedule"`
	What       string          `json:"what"`
	At         string          `json:"at"`
	Injections int             `json:"injections"` // that are left; 0 if single ones are not counted
	Before     int             `json:"before"`     // there were at first
	Runs       int             `json:"runs"`       // that were tried
	Took       time.Duration   `json:"took_ns"`
	Complete   bool            `json:"complete"` // the search ended before its time was over
	Replay     string          `json:"replay"`
}

func newFailure(p *Plan, l *Level, seed uint64, o *Outcome, revision string) Failure {
	f := Failure{Level: l.Name, Seed: seed, Schedule: p.schedule(l), What: o.Failure, Property: o.Property, Revision: revision, endless: o.endless}
	f.At = l.at(o.At)
	f.Replay = replay(l, seed, f.Schedule)
	return f
}

// at renders a time of a level.
func (l *Level) at(n int) string {
	switch {
	case n == 0:
		return ""
	case l.Unit == ticks:
		return fmt.Sprint("tick ", n)
	}
	return fmt.Sprint(time.Duration(n) * time.Millisecond)
}

// replay returns the command that runs a seed with a schedule, and shows every event.
func replay(l *Level, seed uint64, s shrink.Schedule) string {
	line := fmt.Sprintf("millrace sim --profile %s --seeds %d", l.Name, seed)
	if s.Length != l.Length {
		line += fmt.Sprintf(" --length %d", s.Length)
	}
	if len(s.Without) > 0 {
		line += " --without " + strings.Join(s.Without, ",")
	}
	if len(s.Skip) > 0 {
		line += " --skip " + FormatNumbers(s.Skip)
	}
	return line + " --events"
}

// Shrink looks for the smallest schedule with which each failure from the one at first onwards still fails,
// for at most the time of the plan each. An end of ctx ends the search, and keeps what was found.
func Shrink(ctx context.Context, p *Plan, into *Result, first int, progress Progress) {
	for i := first; i < len(into.Failures) && p.Shrink > 0 && ctx.Err() == nil; i++ {
		if f := &into.Failures[i]; !f.endless {
			f.Smallest = smallest(ctx, p, f, progress)
		}
	}
}

func smallest(ctx context.Context, p *Plan, f *Failure, progress Progress) *Smallest {
	level := levelNamed(f.Level)
	ctx, cancel := context.WithTimeout(ctx, p.Shrink)
	defer cancel()
	began, runs := time.Now(), 0
	try := func(s shrink.Schedule) shrink.Attempt {
		a, ended := attempt(ctx, level, f.Seed, s)
		if !ended {
			return shrink.Attempt{}
		}
		runs++
		progress.Shrinking(f, runs, a.Left(s))
		return a
	}
	begin := f.Schedule
	before := try(begin)
	if !before.Failed {
		return nil // the time was too short for one run
	}
	r := shrink.Smallest(ctx, begin, before, try)
	return &Smallest{
		Schedule: r.Schedule, What: r.Attempt.What, At: level.at(r.Attempt.At), Runs: runs, Took: time.Since(began), Complete: r.Complete,
		Before: before.Left(begin), Injections: r.Attempt.Left(r.Schedule),
		Replay: replay(level, f.Seed, r.Schedule),
	}
}

// attempt runs a schedule, and does not wait for its end when the time is over.
func attempt(ctx context.Context, l *Level, seed uint64, s shrink.Schedule) (a shrink.Attempt, ended bool) {
	done := make(chan Outcome, 1)
	go func() { done <- l.Run(seed, s, nil) }()
	select {
	case o := <-done:
		return shrink.Attempt{Failed: o.Failure != "", What: o.Failure, Kind: o.Property, At: o.At, Kinds: o.kinds(s), Injections: o.Injections}, true
	case <-ctx.Done():
		return a, false
	}
}

// FormatNumbers writes numbers in order as "1-3,7".
func FormatNumbers(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		part := strconv.Itoa(numbers[i])
		if j > i {
			part += "-" + strconv.Itoa(numbers[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// maxNumbers is more than a run has injections.
const maxNumbers = 1 << 20

// ParseNumbers reads what FormatNumbers wrote: numbers and ranges with both ends, in order.
func ParseNumbers(text string) (numbers []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		lo, err := strconv.Atoi(first)
		hi := lo
		if err == nil && isRange {
			hi, err = strconv.Atoi(last)
		}
		if err != nil || lo < 1 || hi < lo || hi >= maxNumbers || len(numbers) > 0 && lo <= numbers[len(numbers)-1] {
			return nil, fmt.Errorf("%q in %q: want ordinals, which begin at 1 and are below %d, and ranges, in order, as in 1-3,7", part, text, maxNumbers)
		}
		for n := lo; n <= hi; n++ {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}
