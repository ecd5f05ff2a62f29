// Package batches answers the question that the thesis leaves open (§10.2.2): when should a leader begin its
// second batch? It compares the rules of package sim/batches over networks, disks and loads.
//
// The hosts are real, with their log, transport framing and core, and run in the virtual time of package
// sim. What each piece of work takes follows from a model of processors, disks and lines (sim.Hardware). So
// a run gives the same figures on every machine, whatever else that does.
//
// Rejected: to measure on real hosts with injected delays. The rules differ by parts of a round trip, in a
// 99th percentile. A shared machine adds more noise than that. And a network of 50 ms takes minutes for
// each point.
package batches

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/report"
	held "github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/sim"
)

// Plan is what to measure. Zero values are not filled in.
type Plan struct {
	Delays     []time.Duration // of the network, one way
	Syncs      []time.Duration // of a disk
	Clients    []int           // of the closed loops
	Shares     []int           // of the open loops, in percent of the best rate of the closed loop with most clients
	ValueBytes int
	RunUp      int // writes of each client, or of a hundred, before the measured ones, under every rule
	Learn      int // writes before the measured ones, at most, of the rule that tries others: it gets learnTrials trials
	Ops        int // writes that are measured at least, at each point; with many clients more
	Runs       int // with a seed of its own each; a row is the run with the median p99
	Processors int // of a host
	CostFactor int // by which each piece of work takes longer than on the machine of sim.DefaultCosts, in percent
	Seed       uint64
}

// Full is the grid of sim/batches/README.md.
func Full() Plan {
	const us, ms = time.Microsecond, time.Millisecond
	return Plan{
		Delays: []time.Duration{50 * us, 500 * us, 20 * ms, 50 * ms}, Syncs: []time.Duration{100 * us, 250 * us, ms, 5 * ms, 10 * ms, 30 * ms},
		Clients: []int{1, 16, 100, 1000}, Shares: []int{50, 90}, ValueBytes: 1024, RunUp: runUp, Learn: 400_000, Ops: 600, Runs: 1, Processors: 2, CostFactor: 100, Seed: 1,
	}
}

// Coarse is a quarter of its networks and disks, under all loads.
func Coarse() Plan {
	p := Full()
	p.Learn = 200_000
	p.Delays, p.Syncs = []time.Duration{50 * time.Microsecond, 20 * time.Millisecond}, []time.Duration{250 * time.Microsecond, 5 * time.Millisecond, 30 * time.Millisecond}
	return p
}

// Quick is a part of that, for about two minutes on two cores.
func Quick() Plan {
	p := Coarse()
	p.Clients, p.Shares, p.Ops = []int{16, 1000}, []int{50}, 500
	return p
}

// place is a network and a disk: what is measured in one piece of work.
type place struct{ delay, sync time.Duration }

func (p place) String() string { return fmt.Sprintf("%v one way, sync %v", p.delay, p.sync) }

func (p Plan) places() (all []place) {
	for _, delay := range p.Delays {
		for _, sync := range p.Syncs {
			all = append(all, place{delay, sync})
		}
	}
	return all
}

// Run carries the plan out, on all processors of this machine. If ctx ends, the report has the places that
// are finished, and is marked partial; its error is then the cause of ctx.
func Run(ctx context.Context, p Plan, progress report.Progress) (*Report, error) {
	places := p.places()
	progress.Begin(len(places))
	defer progress.End()
	of := &Report{Plan: p}
	byPlace := make([][]Row, len(places))
	finished, err := p.measureAll(ctx, places, func(done, i int, rows []Row) {
		progress.Point(done, places[i].String(), 0)
		byPlace[i] = rows
		progress.PointDone(report.Result{})
	})
	for _, rows := range byPlace {
		of.Rows = append(of.Rows, rows...)
	}
	of.Partial = finished < len(places)
	of.rank()
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil && context.Cause(ctx) == nil {
		return nil, err
	}
	if !of.Partial {
		err = nil
	}
	return of, err
}

// measureAll measures places, several at a time, and calls done after each.
func (p Plan) measureAll(ctx context.Context, places []place, done func(n, i int, rows []Row)) (finished int, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	type outcome struct {
		i    int
		rows []Row
	}
	next, outcomes := make(chan int), make(chan outcome)
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(places)) {
		wg.Go(func() {
			for i := range next {
				rows, err := p.measure(ctx, places[i])
				if err != nil {
					stop(err)
					return
				}
				outcomes <- outcome{i, rows}
			}
		})
	}
	go func() {
		defer close(outcomes)
		defer wg.Wait()
		defer close(next)
		for i := range places {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	for o := range outcomes {
		done(finished, o.i, o.rows)
		finished++
	}
	return finished, context.Cause(ctx)
}

// measure makes the rows of one place: each load under each rule. The open loops come last, because their
// rates are parts of what the closed loops reach.
func (p Plan) measure(ctx context.Context, at place) (rows []Row, err error) {
	best := 0.0
	for _, n := range p.Clients {
		cell, err := p.cell(ctx, at, Load{Clients: n})
		if err != nil {
			return nil, err
		}
		for _, r := range cell {
			best = max(best, r.OpsPerSec)
		}
		rows = append(rows, cell...)
	}
	for _, share := range p.Shares {
		cell, err := p.cell(ctx, at, Load{Share: share, Rate: best * float64(share) / 100})
		if err != nil {
			return nil, err
		}
		rows = append(rows, cell...)
	}
	return rows, nil
}

// Load is what the clients of a point do: a closed loop, or an open one.
type Load struct {
	Clients int // 0 in the open loop
	Share   int // 0 in the closed loop
	Rate    float64
}

func (l Load) String() string {
	if l.Clients > 0 {
		return report.Plural(l.Clients, "client")
	}
	return fmt.Sprintf("%d %% of the best rate", l.Share)
}

// cell measures all rules under one load.
func (p Plan) cell(ctx context.Context, at place, load Load) (rows []Row, err error) {
	for _, c := range contenders {
		if c.name == today {
			p.RunUp = max(p.RunUp, p.learn(rows[0])/max(load.Clients, 100))
		}
		row, err := p.row(ctx, at, load, c)
		if err != nil {
			return nil, fmt.Errorf("%v, %v, %s: %w", at, load, c.name, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// row measures one rule under one load, and returns the run with the median p99.
func (p Plan) row(ctx context.Context, at place, load Load, c contender) (Row, error) {
	var runs []sim.BatchResult
	for n := range p.Runs {
		if err := context.Cause(ctx); err != nil {
			return Row{}, err
		}
		r, err := sim.MeasureBatches(p.run(at, load, c, p.Seed+uint64(n)))
		if err != nil {
			return Row{}, err
		}
		runs = append(runs, r)
	}
	return newRow(at, load, c.name, median(runs)), nil
}

// The model of the machines, beside the delays, syncs and costs.
const (
	lineRate = 1.25e9                 // bytes per second: 10 Gbit/s
	diskRate = 2e9                    // bytes per second
	jitter   = 0.1                    // of each delay and each sync
	think    = 100 * time.Microsecond // between two writes of a client, on average
)

func (p Plan) hardware(at place) sim.Hardware {
	costs := sim.DefaultCosts
	for _, c := range []*time.Duration{&costs.Wake, &costs.Turn, &costs.Send, &costs.Receive, &costs.Write, &costs.Sync, &costs.Client, &costs.KiB} {
		*c = *c * time.Duration(p.CostFactor) / 100
	}
	return sim.Hardware{Delay: at.delay, LineRate: lineRate, Sync: at.sync, DiskRate: diskRate, Jitter: jitter, Processors: p.Processors, Costs: costs}
}

// opsPerClient is how many writes of each client are measured at least.
const opsPerClient = 6

// runUp is RunUp of the grid: a host that tries rules has found the better one then, or is in its first
// trials.
const runUp = 50

// learnTrials is how many trials a host has that tries rules, before the measured writes, if Plan.Learn does
// not bound them. The other rule had two of them, and the next one comes after 32.
const learnTrials = 32

// learn returns how many writes come in learnTrials trials. The row of the first rule says how fast they
// come, and how long a round is.
func (p Plan) learn(first Row) int {
	trial := held.TrialLasts(time.Duration(first.MeanUs * float64(time.Microsecond)))
	return min(int(first.OpsPerSec*trial.Seconds()*learnTrials), p.Learn)
}

// openRounds is how many rounds of network and disk a measurement of the open loop lasts at least.
const openRounds = 30

func (p Plan) run(at place, load Load, c contender, seed uint64) sim.BatchRun {
	round := 2*at.delay + at.sync
	return sim.BatchRun{
		Hardware: p.hardware(at), Rule: c.gate(at), Host: c.host, Echoes: c.echoes,
		Clients: load.Clients, Rate: load.Rate, Warm: p.RunUp * max(load.Clients, 100), Think: think, ValueBytes: p.ValueBytes,
		Ops: max(p.Ops, opsPerClient*load.Clients, min(int(load.Rate*round.Seconds()*openRounds), maxOpenOps)), Seed: seed,
	}
}

// maxOpenOps bounds the writes of an open loop that has many in a round.
const maxOpenOps = 6_000
