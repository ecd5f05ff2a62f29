package batches

import (
	"cmp"
	"slices"
)

// The verdict: in each cell, a place and a load, a rule has a ratio, its p99 over the best p99 of the cell.
// The rule with the least sum of ratios wins. The p99 is what counts, because a rule can only lose by making
// commands wait.

// Standing is how a rule did over all cells.
type Standing struct {
	Rule  string
	Sum   float64 // of its ratios
	Cells int     // in how many it was measured
	Worst float64 // of its ratios
	// Time is its mean latency by the best of the cell, the geometric mean over the cells.
	Time float64
	// WorstAt is the row of that one.
	WorstAt Row
	// Best is its least p99 in relation to that of the winner in the same cell, and BestAt the row of that.
	Best   float64
	BestAt Row
	// Ahead is the number of cells in which its p99 is less than the winner's by a twentieth or more.
	// Behind is the number of cells in which it is more by as much.
	Ahead  int
	Behind int
	// Rate is its throughput and CPU its processor time for each write, in relation to the winner's. Both
	// are geometric means over the closed loops.
	Rate float64
	CPU  float64
}

// Mean is the mean ratio.
func (s Standing) Mean() float64 { return s.Sum / float64(max(s.Cells, 1)) }

// clearly is the least difference that counts.
const clearly = 1.05

// cellOf identifies the cell of a row.
type cellOf struct {
	delay, sync    float64
	clients, share int
}

func (r Row) cell() cellOf { return cellOf{r.DelayUs, r.SyncUs, r.Clients, r.Share} }

// rank sets the ratios of the rows, and the standings, the winner first.
func (r *Report) rank() {
	best, bestMean := map[cellOf]float64{}, map[cellOf]float64{}
	for _, row := range r.Rows {
		lower(best, row.cell(), row.P99Us)
		lower(bestMean, row.cell(), row.MeanUs)
	}
	var names []string
	by, times := map[string]*Standing{}, map[string]*means{}
	for i := range r.Rows {
		row := &r.Rows[i]
		row.Ratio, row.MeanRatio = row.P99Us/best[row.cell()], row.MeanUs/bestMean[row.cell()]
		s := by[row.Rule]
		if s == nil {
			s = &Standing{Rule: row.Rule}
			by[row.Rule], times[row.Rule], names = s, new(means), append(names, row.Rule)
		}
		times[row.Rule].add(row.MeanRatio)
		s.Sum += row.Ratio
		if s.Cells++; row.Ratio > s.Worst {
			s.Worst, s.WorstAt = row.Ratio, *row
		}
	}
	r.Standings = nil
	for _, name := range names {
		by[name].Time = times[name].geometric()
		r.Standings = append(r.Standings, *by[name])
	}
	slices.SortStableFunc(r.Standings, func(a, b Standing) int { return cmp.Compare(a.Sum, b.Sum) })
	if len(r.Standings) > 0 {
		r.compareWithWinner()
	}
}

// lower makes the figure of a cell the lower one.
func lower(figures map[cellOf]float64, cell cellOf, figure float64) {
	if least, ok := figures[cell]; !ok || figure < least {
		figures[cell] = figure
	}
}

func (r *Report) compareWithWinner() {
	winner := map[cellOf]Row{}
	for _, row := range r.Rows {
		if row.Rule == r.Standings[0].Rule {
			winner[row.cell()] = row
		}
	}
	for i := range r.Standings {
		s := &r.Standings[i]
		var rate, cpu means
		for _, row := range r.Rows {
			w := winner[row.cell()]
			if row.Rule != s.Rule {
				continue
			}
			ratio := row.P99Us / w.P99Us
			if s.Best == 0 || ratio < s.Best {
				s.Best, s.BestAt = ratio, row
			}
			switch {
			case ratio*clearly <= 1:
				s.Ahead++
			case ratio >= clearly:
				s.Behind++
			}
			if row.Clients > 0 {
				rate.add(row.OpsPerSec / w.OpsPerSec)
				cpu.add(row.CPUUsPerOp / w.CPUUsPerOp)
			}
		}
		s.Rate, s.CPU = rate.geometric(), cpu.geometric()
	}
}
