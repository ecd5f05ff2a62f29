package recipe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/snapshots"
)

// b5 is compaction: what those who write feel while one host, or all, take a snapshot, and while a member
// that was away gets one. The measurement is that of package snapshots; this file gives it the form of a
// recipe.
var b5 = Recipe{
	Name:     "b5",
	Question: "How long does compaction take, and what do clients feel meanwhile?",
	Source:   "dissertation, chapter 10, open question: compaction",
	Hosts:    3,
	NeedMiB:  needMiB(12_000, 3000),
	Run:      runB5,
}

// Metrics of a snapshot.
var (
	applyPause = archive.Metric{Name: "apply_pause_us", Unit: archive.UnitMicroseconds, Better: archive.BetterLower, Meaning: "longest time without Apply around the call that takes the view, on the leader"}
	otherPause = archive.Metric{Name: "other_pause_us", Unit: archive.UnitMicroseconds, Better: archive.BetterNeither, Meaning: "longest time without Apply at any other time"}
	tookSec    = archive.Metric{Name: "took_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "of one snapshot, until it is published or installed"}
	stateBytes = archive.Metric{Name: "state_bytes", Unit: archive.UnitBytes, Better: archive.BetterNeither, Meaning: "of the snapshot"}
	stateRate  = archive.Metric{Name: "state_bytes_per_sec", Unit: archive.UnitBytesPerSecond, Better: archive.BetterHigher, Meaning: "of snapshots that were written or sent"}
)

func runB5(ctx context.Context, s *experiment.Session, size Size) error {
	plan := snapshots.Plan{
		Sections: []snapshots.Section{snapshots.Load}, Clients: 100, ValueBytes: b0Value, Hosts: 3, Dir: s.Work.Path, Seed: s.Seed,
		SendBytesPerSecond: pick(size, int64(64<<20), 32<<20, 8<<20),
		Duration:           pick(size, 10*time.Second, 2*time.Second, 50*time.Millisecond),
		Warmup:             pick(size, 2*time.Second, 500*time.Millisecond, 10*time.Millisecond),
		Runs:               pick(size, 3, 1, 1),
	}
	states := pick(size, []int64{10 << 20, 100 << 20, 1 << 30}, []int64{64 << 20}, []int64{1 << 20})
	loads := pick(size, []int{50, 90}, []int{50}, []int{50})
	if size != Full {
		s.Omit("states of 10 MB, 100 MB and 1 GB; the load of 90 %%; two of three rounds")
	}
	s.Omit("the latency of the log's fsyncs alone; values of other sizes than 1 KiB; peak memory; the time to recycle segments")
	s.Declare(applyPause, otherPause, tookSec, stateBytes, stateRate, experiment.RateRatio)
	for _, state := range states {
		for _, percent := range loads {
			plan.StateBytes, plan.LoadPercent = state, percent
			began := time.Now()
			r, err := snapshots.Run(ctx, plan, s.Progress)
			if r != nil {
				for _, row := range r.Rows {
					err = errors.Join(err, addSnapshots(s, plan, row, began))
				}
			}
			if err != nil {
				return err
			}
		}
	}
	judgeB5(s, states, loads)
	return nil
}

func b5Point(way string, state int64, percent int) string {
	return fmt.Sprintf("%s, state of %s, at %d %%", way, report.Size(int(state)), percent)
}

// addSnapshots makes a row of bench snapshot, the median over its runs, a repeat.
func addSnapshots(s *experiment.Session, plan snapshots.Plan, row snapshots.Result, began time.Time) error {
	labels := experiment.Labels(three(), "async")
	labels["way"], labels["state_bytes"], labels["share"] = row.Way, strconv.FormatInt(plan.StateBytes, 10), fmt.Sprintf("%d%%", plan.LoadPercent)
	f := map[string]float64{
		archive.OpsPerSec.Name: row.OpsPerSec, archive.MeanUs.Name: row.MeanUs, archive.P50Us.Name: row.P50Us, archive.P99Us.Name: row.P99Us,
		archive.P999Us.Name: row.P999Us, archive.MaxUs.Name: row.MaxUs, archive.Ops.Name: float64(row.Ops), archive.Failed.Name: float64(row.Failed),
		archive.FsyncsPerOp.Name: row.FsyncsPerOp, archive.CPUUsPerOp.Name: row.CPUUsPerOp, archive.DurationSec.Name: row.DurationSec,
		experiment.RateRatio.Name: row.Ratio, archive.P99Ratio.Name: row.P99Ratio, otherPause.Name: row.OtherPauseUs,
	}
	if row.Way != string(snapshots.Without) {
		f[tookSec.Name], f[stateBytes.Name], f[stateRate.Name] = row.TookSec, float64(row.StateBytes), row.MiBPerSec*(1<<20)
	}
	if row.Way == string(snapshots.Take) || row.Way == string(snapshots.TakeAll) {
		f[applyPause.Name] = row.PauseUs
	}
	repeat := archive.Repeat{Seed: s.Seed, Began: began.UTC(), Errors: map[string]uint64{}, Figures: f}
	for _, text := range row.Notes() {
		if slices.Contains(row.Warnings, report.WarnSaturated) {
			repeat.Warnings = append(repeat.Warnings, archive.Warning{Code: archive.WarnSaturated, Text: text + "."})
			break
		}
	}
	return s.Add(b5Point(row.Way, plan.StateBytes, plan.LoadPercent), labels, repeat)
}

func judgeB5(s *experiment.Session, states []int64, loads []int) {
	for _, state := range states {
		for _, percent := range loads {
			take := b5Point(string(snapshots.Take), state, percent)
			judgeFigure(s, take, "the pause of the apply loop while a snapshot is taken", applyPause, "< 10 ms", func(x float64) bool { return x < 10_000 })
			for _, way := range []snapshots.Way{snapshots.Take, snapshots.TakeAll, snapshots.Install} {
				judgeFigure(s, b5Point(string(way), state, percent), fmt.Sprintf("%s: p99 by that without a snapshot", way), archive.P99Ratio, "< 2", func(x float64) bool { return x < 2 })
			}
		}
	}
	s.Judge(experiment.Criterion{Name: "p99 of the log's fsyncs during a limited transfer by that before", Limit: "< 2", Unit: archive.UnitRatio}, 0, false,
		"the log does not tell the latency of single fsyncs; the clients' p99 takes its place")
}
