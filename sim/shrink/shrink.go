// Package shrink makes a failed run smaller. It looks for a part of the schedule of its faults that fails
// in the same way. So a person who explains the failure has few faults to look at.
//
// A schedule has a length, kinds of faults, and single injections. Smallest first ends it soon after the
// failure, then leaves out kinds, then single injections, and begins again while that helps: each step
// makes the next one cheaper. What a cluster does without an injection is another history, and no rule says
// which parts can be left out: each part is tried. What is left fails for certain, because it was run, and
// is not always the smallest that exists. "Delta debugging" (Zeller and Hildebrandt, 2002) is the search
// among parts.
//
// Shrinking inside the simulator, by changing what was drawn, was rejected: it would need a second way
// through every draw, which only shrinking would test.
package shrink

import (
	"context"
	"slices"
	"strings"
	"unicode"
)

// Schedule is what a run is given besides its seed.
type Schedule struct {
	// Length is how long faults last, in a unit of the simulator. 0 is a simulator whose runs have no length.
	Length int `json:"length,omitempty"`
	// Without has the kinds of faults that are not injected.
	Without []string `json:"without,omitempty"`
	// Skip has the ordinals of single injections that do not happen, in order. The first injection of a run
	// is 1.
	Skip []int `json:"skip,omitempty"`
}

// Attempt is what a run of a schedule showed.
type Attempt struct {
	Failed bool
	What   string // the failure in words
	// Kind is the kind of the failure, such as the property that was broken. "" is the beginning of What.
	Kind string
	At   int // when it came, in the unit of Schedule.Length
	// Kinds has the kinds of faults that were injected. A simulator that leaves out none has none.
	Kinds []string
	// Injections is how many there were, with those that were skipped. 0 if single ones cannot be skipped.
	Injections int
}

// Left returns how many of the injections that got an ordinal are not skipped. Those of kinds that are left
// out are among them.
func (a Attempt) Left(s Schedule) int { return a.Injections - len(upTo(s.Skip, a.Injections)) }

// upTo returns the ordinals that a run with n injections has given.
func upTo(skip []int, n int) []int {
	end, _ := slices.BinarySearch(skip, n+1)
	return skip[:end:end]
}

// Result is the smallest schedule that was found.
type Result struct {
	Schedule Schedule
	Attempt  Attempt // what its run showed
	Runs     int     // that were tried
	Complete bool    // the search ended before its context did
}

// search is one call of Smallest.
type search struct {
	ctx    context.Context
	try    func(Schedule) Attempt
	failed string // the kind of the failure
	best   Result
}

// Smallest returns the smallest schedule that it finds to fail like the first, whose run has shown failed.
// try runs a schedule; it need not watch ctx, which ends the search between two runs. Each run is tried
// once.
func Smallest(ctx context.Context, first Schedule, failed Attempt, try func(Schedule) Attempt) Result {
	s := &search{ctx: ctx, try: try, failed: kindOf(failed), best: Result{Schedule: first, Attempt: failed}}
	for before := -1; before != s.size() && s.more(); {
		before = s.size()
		s.shorten()
		s.leaveOutKinds()
		s.skipInjections()
	}
	s.best.Complete = s.more()
	return s.best
}

func (s *search) more() bool { return s.ctx.Err() == nil }

// size is what each round of steps must make smaller.
func (s *search) size() int {
	b := &s.best
	return b.Schedule.Length + b.Attempt.Left(b.Schedule) + len(b.Attempt.Kinds)
}

// fails runs a schedule, and keeps it as the best if it fails like the first one.
func (s *search) fails(schedule Schedule) bool {
	if !s.more() {
		return false
	}
	s.best.Runs++
	a := s.try(schedule)
	if !a.Failed || kindOf(a) != s.failed {
		return false
	}
	schedule.Skip = upTo(schedule.Skip, a.Injections) // later ordinals are not given any more
	s.best.Schedule, s.best.Attempt = schedule, a
	return true
}

// shorten makes faults end right after the failure, and then earlier. A sixteenth is not worth another run.
func (s *search) shorten() {
	length := s.best.Schedule.Length
	if length == 0 {
		return
	}
	shorter := func(to int) bool {
		next := s.best.Schedule
		next.Length = to
		return s.fails(next)
	}
	if at := s.best.Attempt.At + 1; at < length && shorter(at) {
		length = at
	}
	for passes := 0; length-passes > 1+length/16 && s.more(); {
		if half := (passes + length) / 2; shorter(half) {
			length = half
		} else {
			passes = half
		}
	}
}

// leaveOutKinds leaves out kinds of faults.
func (s *search) leaveOutKinds() {
	kinds := slices.Clone(s.best.Attempt.Kinds)
	slices.Sort(kinds)
	without := slices.Clone(s.best.Schedule.Without)
	keepFew(kinds, func(kept []string) bool {
		next := s.best.Schedule
		next.Without = append(slices.Clone(without), missing(kinds, kept)...)
		slices.Sort(next.Without)
		return s.fails(next)
	})
}

// skipInjections leaves out single injections.
func (s *search) skipInjections() {
	skipped := slices.Clone(s.best.Schedule.Skip)
	var left []int
	for n := 1; n <= s.best.Attempt.Injections; n++ {
		if _, is := slices.BinarySearch(skipped, n); !is {
			left = append(left, n)
		}
	}
	keepFew(left, func(kept []int) bool {
		next := s.best.Schedule
		next.Skip = append(slices.Clone(skipped), missing(left, kept)...)
		slices.Sort(next.Skip)
		return s.fails(next)
	})
}

// missing returns the items of all that are not kept. Both are in the same order.
func missing[T comparable](all, kept []T) (out []T) {
	for _, item := range all {
		if len(kept) > 0 && kept[0] == item {
			kept = kept[1:]
			continue
		}
		out = append(out, item)
	}
	return out
}

// keepFew calls fails with fewer and fewer of the items, in their order, and returns the last ones with
// which it failed. It leaves out all, then halves, then quarters, down to single items.
func keepFew[T any](items []T, fails func(kept []T) bool) []T {
	if len(items) == 0 || fails(nil) {
		return nil
	}
	for part := (len(items) + 1) / 2; ; part = (part + 1) / 2 {
		for begin := 0; begin < len(items) && len(items) > 1; {
			kept := slices.Concat(items[:begin], items[min(begin+part, len(items)):])
			if len(kept) > 0 && fails(kept) {
				items = kept
				continue
			}
			begin += part
		}
		if part <= 1 {
			return items
		}
	}
}

// kindOf returns what two failures of one kind have in common. Without a kind of their own it is the
// beginning of the sentence without its numbers.
func kindOf(a Attempt) string {
	if a.Kind != "" {
		return a.Kind
	}
	words := strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, a.What))
	return strings.Join(words[:min(len(words), kindWords)], " ")
}

// kindWords is how many words tell what is wrong; names and positions follow.
const kindWords = 6
