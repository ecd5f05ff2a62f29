//go:build linux

package mutation

import (
	"fmt"
	"math"
)

// A Tally counts the mutants of an area, or of all.
type Tally struct {
	Killed, ByTime, Survived, Unreached int
	Equivalent                          int // of those that survived
	CPU                                 float64
}

// add counts a result.
func (t *Tally) add(r Result, equivalent bool) {
	switch r.Result {
	case Killed:
		t.Killed++
	case KilledBy:
		t.ByTime++
	case Unreached:
		t.Unreached++
	case Survived:
		t.Survived++
		if equivalent {
			t.Equivalent++
		}
	}
	t.CPU += r.CPU
}

// Drawn is the number of mutants that some test reaches.
func (t Tally) Drawn() int { return t.Killed + t.ByTime + t.Survived }

// Score returns the share of the mutants that are not known to be equivalent that were killed, with its 95 %
// confidence interval.
func (t Tally) Score() (share, lo, hi float64) {
	return wilson(t.Killed+t.ByTime, t.Drawn()-t.Equivalent)
}

func (t Tally) String() string {
	share, lo, hi := t.Score()
	raw, rawLo, rawHi := wilson(t.Killed+t.ByTime, t.Drawn())
	return fmt.Sprintf("%d | %d | %d | %d | %d | %d | %s | %s", t.Drawn(), t.Unreached, t.Killed, t.ByTime, t.Survived, t.Equivalent,
		percent(raw, rawLo, rawHi), percent(share, lo, hi))
}

func percent(share, lo, hi float64) string {
	return fmt.Sprintf("%.1f %% (%.1f–%.1f)", 100*share, 100*lo, 100*hi)
}

// wilson returns the share of n that k is, and Wilson's interval in which the true share lies with 95 %
// confidence: unlike the usual one it is right for shares near 1. Of nothing nothing is known: the interval
// is [0, 1].
func wilson(k, n int) (share, lo, hi float64) {
	if n == 0 {
		return 0, 0, 1
	}
	const z = 1.959964
	p, m := float64(k)/float64(n), float64(n)
	centre := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return p, max(0, centre-half), min(1, centre+half)
}
