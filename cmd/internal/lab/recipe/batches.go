package recipe

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/batches"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// nextBatch is the scheduling question that the dissertation leaves open: when should a leader begin its
// second batch? sim/batches/README.md has its figures.
var nextBatch = design[nextBatchScale]{
	name:     "batches",
	question: "When should a leader begin its next batch, while the one before is not committed?",
	source:   "dissertation, section 10.2.2: the open question",
	hosts:    0, // in virtual time: they need no processors of their own
	plan:     scaleNextBatch,
	about:    func(c nextBatchScale) time.Duration { return c.about },
	needMiB:  needMiB(1, 1),
	omits: omissions{
		short:  fewerCells(Quick),
		glance: fewerCells(Glance),
		always: []string{"the single cells: the points are how each rule did over all of them, and the curves of one closed loop. The files beside the archive have every cell"},
	},
	metrics: []archive.Metric{ratioSum, ratioMean, ratioWorst, timeMean, rateShare, cpuShare, ratioHere, opsPerBatch},
	measure: measureNextBatch,
	judge:   judgeNextBatch,
}

// Metrics of the recipe. A ratio is the p99 of a rule by the best p99 of a cell: one network, disk and load.
var (
	ratioSum    = archive.Metric{Name: "sum_of_ratios", Unit: archive.UnitCount, Better: archive.BetterLower, Meaning: "sum of the ratios of all cells: p99 by the best p99 of the cell"}
	ratioMean   = archive.Metric{Name: "mean_ratio", Unit: archive.UnitRatio, Better: archive.BetterLower, Meaning: "mean of the ratios of all cells"}
	ratioWorst  = archive.Metric{Name: "worst_ratio", Unit: archive.UnitRatio, Better: archive.BetterLower, Meaning: "highest ratio of all cells"}
	timeMean    = archive.Metric{Name: "mean_time", Unit: archive.UnitRatio, Better: archive.BetterLower, Meaning: "mean latency by the best one of a cell, geometric mean over the cells"}
	rateShare   = archive.Metric{Name: "rate_to_winner", Unit: archive.UnitRatio, Better: archive.BetterHigher, Meaning: "throughput by that of the rule with the least sum, geometric mean over the closed loops"}
	cpuShare    = archive.Metric{Name: "cpu_to_winner", Unit: archive.UnitRatio, Better: archive.BetterLower, Meaning: "processor time of a write by that of the rule with the least sum, geometric mean over the closed loops"}
	ratioHere   = archive.Metric{Name: "p99_to_best", Unit: archive.UnitRatio, Better: archive.BetterLower, Meaning: "p99 by the best p99 of the cell"}
	opsPerBatch = archive.Metric{Name: "ops_per_batch", Unit: archive.UnitCount, Better: archive.BetterNeither, Meaning: "writes in one batch of the leader"}
)

// atOnce is what a host did before decision 0036, and byTrial is what it does.
const (
	atOnce  = "at once"
	byTrial = "by trial"
)

// What a host's rule may lose.
const (
	maxWorst  = 1.5  // its p99 by the best one, in its worst cell
	maxBehind = 1.02 // its sum of ratios by the least sum
	maxTime   = 1.03 // its mean latency by the best one, mean over the cells
)

// nextBatchScale is the grid, and how long it takes.
type nextBatchScale struct {
	batches.Plan
	about time.Duration
}

func scaleNextBatch(size Size) nextBatchScale {
	plan := pick(size, orLong(size, batches.Coarse(), batches.Full()), batches.Quick(), batches.Quick())
	if size == Glance {
		plan.Delays, plan.Syncs, plan.Clients, plan.RunUp, plan.Learn, plan.Ops = plan.Delays[:1], []time.Duration{time.Millisecond, 2 * time.Millisecond}, []int{4}, 1, 0, 20
	}
	return nextBatchScale{plan, pick(size, orLong(size, 150*time.Second, 25*time.Minute), 100*time.Second, time.Second)}
}

// fewerCells says which part of the full grid a size leaves out.
func fewerCells(size Size) string {
	full, plan := batches.Full(), scaleNextBatch(size)
	return fmt.Sprintf("%d of %d networks, %d of %d disks, %d of %d loads", len(full.Delays)-len(plan.Delays), len(full.Delays), len(full.Syncs)-len(plan.Syncs), len(full.Syncs),
		len(full.Clients)+len(full.Shares)-len(plan.Clients)-len(plan.Shares), len(full.Clients)+len(full.Shares))
}

func measureNextBatch(ctx context.Context, s *run, c nextBatchScale) error {
	s.Warn(archive.WarnFake, "The hosts run in virtual time, on a model of processors, disks and lines: the figures say which rule waits less, and not how fast this machine is.")
	if s.Passed(1) { // the points are saved together, at the end
		return lab.Cannot("Resume", "all points of the run in %s are finished, and were not judged; begin another one, in another directory", s.Out)
	}
	c.Seed = s.Seed
	r, err := batches.Run(ctx, c.Plan, s.Progress)
	if r == nil {
		return err
	}
	partial := err != nil // all points are of all cells
	began := time.Now()
	for _, standing := range r.Standings {
		s.Put(allCells(standing.Rule), map[string]string{"rule": standing.Rule}, archive.Repeat{Seed: c.Seed, Began: began.UTC(), Partial: partial, Figures: map[string]float64{
			ratioSum.Name: standing.Sum, ratioMean.Name: standing.Mean(), ratioWorst.Name: standing.Worst, timeMean.Name: standing.Time, rateShare.Name: standing.Rate, cpuShare.Name: standing.CPU,
		}})
	}
	for _, row := range r.Curves() {
		putCurve(s.Session, c.Plan, row, began.UTC(), partial)
	}
	if err != nil || s.Out == "" { // the pages are of all cells; a run that goes on measures all again
		return err
	}
	return report.WriteFiles(filepath.Join(s.Out, "batches"), r)
}

// allCells is the point of a rule.
func allCells(rule string) string { return "all cells, " + rule }

// putCurve adds one place of a curve.
func putCurve(s *experiment.Session, plan batches.Plan, row batches.Row, began time.Time, partial bool) {
	delay, sync := duration(row.DelayUs), duration(row.SyncUs)
	name := fmt.Sprintf("%v one way, sync %v, %s, %s", delay, sync, report.Plural(row.Clients, "client"), row.Rule)
	labels := map[string]string{
		"rule": row.Rule, archive.LabelNetworkDelay: delay.String(), archive.LabelFsyncDelay: sync.String(), archive.LabelClients: strconv.Itoa(row.Clients),
		archive.LabelPipeline: "async", archive.LabelLog: "millrace/group", archive.LabelNodes: "3", archive.LabelValueBytes: strconv.Itoa(plan.ValueBytes),
		archive.LabelProcesses: "simulated",
	}
	s.Put(name, labels, archive.Repeat{Seed: plan.Seed, Began: began, Partial: partial, Figures: map[string]float64{
		archive.OpsPerSec.Name: row.OpsPerSec, archive.MeanUs.Name: row.MeanUs, archive.P50Us.Name: row.P50Us, archive.P99Us.Name: row.P99Us,
		archive.CPUUsPerOp.Name: row.CPUUsPerOp, ratioHere.Name: row.Ratio, opsPerBatch.Name: row.PerBatch,
	}})
}

func duration(us float64) time.Duration { return time.Duration(us * float64(time.Microsecond)) }

// judgeNextBatch holds what a host does to the answer of decision 0036.
func judgeNextBatch(s *experiment.Session, _ nextBatchScale) {
	host := allCells(byTrial)
	sum, measured := s.Median(host, ratioSum.Name)
	least := sum
	for _, p := range s.Archive.Points {
		if other, ok := p.Median(ratioSum.Name); ok {
			least = min(least, other)
		}
	}
	judgeValue(s, byTrial+", which a host does: its sum of p99 ratios by the least", host, archive.UnitRatio, atMost(maxBehind, " (decision 0036: 1.00)"),
		report.Ratio(sum, least), measured, "no rule of this name was measured")
	worst, measured := s.Median(host, ratioWorst.Name)
	judgeValue(s, byTrial+": its p99 by the best of the cell, in its worst cell", host, archive.UnitRatio, atMost(maxWorst, " (decision 0036: 1.12)"),
		worst, measured, "no rule of this name was measured")
	mean, measured := s.Median(host, timeMean.Name)
	judgeValue(s, byTrial+": its mean latency by the best of the cell, mean over all cells", host, archive.UnitRatio, atMost(maxTime, " (decision 0036: 1.01)"),
		mean, measured, "no rule of this name was measured")
	refer(s, "dissertation, section 10.2.2", "a second batch halfway through the first: its p99 by that of at once, mean over all cells", nil, ratioMean,
		allCells("halfway"), allCells(atOnce), "the source suggests it and gives no figure")
}
