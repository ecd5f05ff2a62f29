package coverage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Ledger numbers the injections of one run, and decides which of them happen. A run asks it immediately
// before each injection, when everything about it has been drawn. So an injection that is left out changes no
// draw: what happens next differs only by its absence. That is what makes a failing schedule small: leave out
// half of the injections, run again, and keep the half that still fails.
type Ledger struct {
	Matrix  Matrix
	without [faults]bool
	skipped map[int]bool
	count   int
}

// Choice selects the injections of a run that do not happen.
type Choice struct {
	// Without are the kinds of faults that do not happen.
	Without []Fault
	// Skip are the ordinals of injections that do not happen. The first injection of a run has ordinal 1. An
	// injection that is left out keeps its ordinal, so ordinals mean the same in every run of a seed until
	// the histories part.
	Skip []int
}

// IsEmpty reports whether everything happens.
func (c Choice) IsEmpty() bool { return len(c.Without) == 0 && len(c.Skip) == 0 }

// String returns the choice as flags, for the command that runs a seed again; "" if everything happens.
func (c Choice) String() string {
	var flags []string
	if len(c.Without) > 0 {
		names := make([]string, len(c.Without))
		for i, f := range c.Without {
			names[i] = f.String()
		}
		flags = append(flags, "-without="+strings.Join(names, ","))
	}
	if len(c.Skip) > 0 {
		ordinals := make([]string, len(c.Skip))
		for i, n := range c.Skip {
			ordinals[i] = strconv.Itoa(n)
		}
		flags = append(flags, "-skip="+strings.Join(ordinals, ","))
	}
	return strings.Join(flags, " ")
}

// ParseChoice reads the values of the two flags: names of faults and ordinals, with commas between them.
func ParseChoice(without, skip string) (c Choice, err error) {
	list := func(text string) []string {
		return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	}
	for _, name := range list(without) {
		f, err := ParseFault(name)
		if err != nil {
			return Choice{}, err
		}
		c.Without = append(c.Without, f)
	}
	for _, text := range list(skip) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return Choice{}, fmt.Errorf("%q is not the ordinal of an injection, which is a number from 1", text)
		}
		c.Skip = append(c.Skip, n)
	}
	return c, nil
}

// NewLedger returns the ledger of a run.
func NewLedger(c Choice) *Ledger {
	l := &Ledger{}
	for _, f := range c.Without {
		l.without[f] = true
	}
	if len(c.Skip) > 0 {
		l.skipped = make(map[int]bool, len(c.Skip))
		for _, ordinal := range c.Skip {
			l.skipped[ordinal] = true
		}
	}
	return l
}

// Strikes gives the next injection its ordinal and reports whether it happens. If it does, it is counted for
// each phase that holds.
func (l *Ledger) Strikes(f Fault, during Set) bool {
	l.count++
	if l.without[f] || l.skipped[l.count] {
		return false
	}
	l.Matrix.HitAll(f, during)
	return true
}

// Happens reports whether faults of a kind happen in this run. It is for faults that are a rate, and not
// injections.
func (l *Ledger) Happens(f Fault) bool { return !l.without[f] }

// Injections returns how many ordinals were given.
func (l *Ledger) Injections() int { return l.count }

// Cells returns all cells, row by row.
func Cells() (cells []Cell) {
	for _, f := range Faults() {
		for _, p := range Phases() {
			cells = append(cells, Cell{f, p})
		}
	}
	return cells
}

// Possible returns the cells that can be hit, row by row.
func Possible() []Cell {
	return slices.DeleteFunc(Cells(), func(c Cell) bool { _, never := Impossible(c.Fault, c.Phase); return never })
}

// Union returns the set with the phases of another one.
func (s Set) Union(other Set) Set { return s | other }

// String returns the names of the phases.
func (s Set) String() string {
	var names []string
	for _, p := range Phases() {
		if s.Has(p) {
			names = append(names, p.String())
		}
	}
	return strings.Join(names, ", ")
}
