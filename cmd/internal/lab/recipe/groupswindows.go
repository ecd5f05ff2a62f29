package recipe

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// windowPair is two windows, one after the other: on one group and on all groups.
type windowPair struct{ one, all report.Result }

func (p windowPair) ratio() float64 { return report.Ratio(p.all.OpsPerSec, p.one.OpsPerSec) }

// load puts the cluster under load, window by window, and fills in the row from the pair with the median
// ratio. A cluster of one group has the run with the median throughput.
func (p groupsPlan) load(ctx context.Context, c *groupsCluster, row *groupsResult, progress report.Progress) error {
	var pairs []windowPair
	for run := range p.Runs {
		var of windowPair
		var err error
		if of.one, err = p.window(ctx, groupsTarget{c, 1}, progress); err != nil {
			return fmt.Errorf("run %d of %d, on one group: %w", run+1, p.Runs, err)
		}
		of.all = of.one
		if c.n > 1 {
			if of.all, err = p.window(ctx, groupsTarget{c, c.n}, progress); err != nil {
				return fmt.Errorf("run %d of %d, on all groups: %w", run+1, p.Runs, err)
			}
		}
		pairs = append(pairs, of)
	}
	row.setPairs(pairs)
	return nil
}

// setPairs fills in throughput and ratios.
func (r *groupsResult) setPairs(pairs []windowPair) {
	if r.Groups == 1 {
		r.Result = report.Median(windowsOnAll(pairs))
		return
	}
	slices.SortStableFunc(pairs, func(a, b windowPair) int { return cmp.Compare(a.ratio(), b.ratio()) })
	median := pairs[(len(pairs)-1)/2]
	spread := report.Median(windowsOnAll(pairs))
	r.Result = median.all
	r.Runs, r.MinOpsPerSec, r.MaxOpsPerSec = spread.Runs, spread.MinOpsPerSec, spread.MaxOpsPerSec
	r.OneOpsPerSec, r.OneCPUUsPerOp, r.Ratio = median.one.OpsPerSec, median.one.CPUUsPerOp, median.ratio()
	r.MinRatio, r.MaxRatio = pairs[0].ratio(), pairs[len(pairs)-1].ratio()
}

// windowsOnAll returns the windows on all groups.
func windowsOnAll(pairs []windowPair) (results []report.Result) {
	for _, p := range pairs {
		results = append(results, p.all)
	}
	return results
}

// window measures one window, and checks what it acknowledged.
func (p groupsPlan) window(ctx context.Context, t groupsTarget, progress report.Progress) (report.Result, error) {
	for _, of := range t.machines {
		for g := range t.n {
			of[g].begin(t.share(g))
		}
	}
	runtime.GC() // every window begins with the same heap
	outcome, err := load.Window{
		Source: load.NewSource(p.ValueBytes, p.Seed), Warmup: p.Warmup, Length: p.Duration, Generator: load.Closed{Clients: p.Clients}, Observer: progress,
	}.Run(ctx, t)
	if err != nil {
		return report.Result{}, err
	}
	r := report.Result{Pipeline: report.Plural(t.n, "group"), Hosts: p.Hosts, Clients: p.Clients, ValueBytes: p.ValueBytes, Runs: 1, Seed: p.Seed}
	r.SetOutcome(outcome)
	return r, nil
}
