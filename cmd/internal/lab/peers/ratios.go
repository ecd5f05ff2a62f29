package peers

import (
	"slices"

	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Row is one system under one load. A ratio is of two samples of one round, which are neighbours in time; the
// row has the median over the rounds. Rejected: the ratio of two medians, which may be of rounds minutes
// apart. 0 is a ratio that there is not.
type Row struct {
	report.Result
	Kind      Kind    `json:"-"`
	ToBare    float64 `json:"to_bare"`      // throughput
	ToFull    float64 `json:"to_bare_full"` // to bare with checksums and state machines
	ToCohort  float64 `json:"to_bare_cohort"`
	ToPeer    float64 `json:"to_best_go_peer"`
	CPUToPeer float64 `json:"cpu_to_best_go_peer"`
	Durable   bool    `json:"durable"` // enough fsyncs were counted for every acknowledged write
}

// durableShare of the fewest fsyncs have to be counted: writes at the two ends of the window are counted with
// the fsyncs of another one.
const durableShare = 0.9

// groupOf merges what was measured under one load.
func (r *runner) groupOf(clients int) []Row {
	of := func(system int) []report.Result { return r.runs[point{system, clients}] }
	var bases []int // the baselines
	best, bestOps := -1, 0.0
	for i, s := range r.plan.Systems {
		if len(of(i)) == 0 {
			continue
		}
		if s.Kind == Baseline {
			bases = append(bases, i)
		}
		if ops := report.Median(of(i)).OpsPerSec; s.Kind == GoPeer && ops > bestOps {
			best, bestOps = i, ops
		}
	}
	var rows []Row
	for i, s := range r.plan.Systems {
		runs := of(i)
		if len(runs) == 0 {
			continue
		}
		row := Row{Result: report.Median(runs), Kind: s.Kind}
		row.Durable = row.FsyncsPerOp >= durableShare*r.plan.fewestFsyncs(clients)
		if len(bases) > 0 {
			row.ToBare = ratio(runs, of(bases[0]), throughput)
		}
		if len(bases) > 1 {
			row.ToFull = ratio(runs, of(bases[1]), throughput)
		}
		if len(bases) > 2 {
			row.ToCohort = ratio(runs, of(bases[2]), throughput)
		}
		if best >= 0 {
			row.ToPeer, row.CPUToPeer = ratio(runs, of(best), throughput), ratio(runs, of(best), cpu)
		}
		rows = append(rows, row)
	}
	return rows
}

func throughput(r report.Result) float64 { return r.OpsPerSec }
func cpu(r report.Result) float64        { return r.CPUUsPerOp }

// ratio is the median over the rounds that both have.
func ratio(a, b []report.Result, figure func(report.Result) float64) float64 {
	var of []float64
	for i := range min(len(a), len(b)) {
		if figure(b[i]) > 0 {
			of = append(of, figure(a[i])/figure(b[i]))
		}
	}
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}
