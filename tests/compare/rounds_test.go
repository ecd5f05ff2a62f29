package main

import (
	"slices"
	"time"

	"github.com/millrace/millrace/tests/compare/driver"
)

// A case is measured in rounds. A round takes one sample of every library, so that all of them share what
// happens on the machine meanwhile, and the next round begins with another library. A ratio is of two samples
// of one round. The report has the median over the rounds and their quartiles. Rejected: all rounds of one
// library, then all of the next. A neighbour's compile would then look like a difference between libraries.

// measured is the outcome of one case: samples[l][r] is the sample of library l in round r.
type measured struct {
	what    driver.Case
	samples [][]driver.Sample
}

// measure takes about rounds × sample for each library, and half of that again to find out how much each
// library does in a sample. Samples are of equal time, not of equal amounts: a time that is long enough for a
// slow library is long enough for a fast one too.
func measure(children []*child, what driver.Case, rounds int, sample time.Duration) (measured, error) {
	m := measured{what: what, samples: make([][]driver.Sample, len(children))}
	amounts := make([]int, len(children))
	for l, c := range children {
		var err error
		if amounts[l], err = amountFor(c, what, sample); err != nil {
			return m, err
		}
	}
	for r := range rounds {
		for i := range children {
			l := (i + r) % len(children)
			s, err := children[l].run(what, amounts[l])
			if err != nil {
				return m, err
			}
			m.samples[l] = append(m.samples[l], s)
		}
	}
	return m, nil
}

// amountFor returns the n that keeps a child busy for about d.
func amountFor(c *child, what driver.Case, d time.Duration) (int, error) {
	for n := 256; ; n *= 4 {
		s, err := c.run(what, n)
		if err != nil {
			return 0, err
		}
		if s.CPU >= d/8 {
			return max(1, int(float64(n)*float64(d)/float64(s.CPU))), nil
		}
	}
}

func perUnit(v int64, s driver.Sample) float64 { return float64(v) / float64(s.Units) }

func elapsed(s driver.Sample) float64 { return perUnit(s.Elapsed.Nanoseconds(), s) }
func cpu(s driver.Sample) float64     { return perUnit(s.CPU.Nanoseconds(), s) }
func mallocs(s driver.Sample) float64 { return perUnit(s.Mallocs, s) }
func size(s driver.Sample) float64    { return perUnit(s.Bytes, s) }

// of returns a figure of a library, the median of its samples.
func (m measured) of(lib int, figure func(driver.Sample) float64) float64 {
	var vs []float64
	for _, s := range m.samples[lib] {
		vs = append(vs, figure(s))
	}
	return spreadOf(vs).median
}

// ratio returns the processor time of the first library in terms of another's, over the rounds.
func (m measured) ratio(other int) spread {
	var vs []float64
	for r, ours := range m.samples[0] {
		vs = append(vs, cpu(ours)/cpu(m.samples[other][r]))
	}
	return spreadOf(vs)
}

// spread is the median of some values, and the quartiles around it.
type spread struct{ low, median, high float64 }

// spreadOf sorts vs, which must not be empty.
func spreadOf(vs []float64) spread {
	slices.Sort(vs)
	n := len(vs)
	return spread{vs[n/4], (vs[(n-1)/2] + vs[n/2]) / 2, vs[n-1-n/4]}
}
