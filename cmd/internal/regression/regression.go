// Package regression is a ratchet: Millrace becomes no slower than a baseline, a revision that the file
// baseline names. The guard builds the same small workload in this tree and in the baseline's, runs both at
// once, and measures them in turn. Small losses of many commits add up against one baseline; they would not
// against the commit before. The baseline moves by a commit that says why and has figures (baseline.go).
//
// Absolute figures of a shared machine differ by a factor from one minute to the next, so nothing here is
// compared with a stored number. Three things make a difference of ten per cent visible there. Both
// versions are alive together. Their slices of a twentieth of a second alternate (A B B A, then B A A B),
// so a busy minute hits both. The disks are in memory, with an fsync that takes a fixed time (package
// workload). It first judges what a busy neighbour hardly changes: processor time, allocations and fsyncs
// of an operation. Latency comes last, with a wider limit.
//
// The figure of the ratchet is processor time an operation. The guard accepts no 3 % more at 1, 16, 100 or
// 1,000 clients. It judges by an interval over pairs of windows (interval.go). Where the machine is too
// busy to say, that is said: NOT MEASURED. The other conditions are those of lab/compare, with a stricter
// p. What breaks is measured again in new processes, and only what breaks twice is reported: a gate that
// cries wolf is taken out.
//
// The guard does not see what the workload does not do (large values, many groups, reads, snapshots, a real
// disk): millrace bench and millrace lab do.
package regression

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/compare"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Plan is how much is measured.
type Plan struct {
	Loads   []Load
	Slices  int // of each program at each load; a multiple of four
	WarmUps int // slices of each program at each load that are not counted
	// Budget bounds the time for one load. On a machine that is busy fewer slices fit into it, down to
	// minSlices.
	Budget time.Duration
}

// minSlices are enough to find a difference with p below maxP.
const minSlices = 8

// Load is what one slice does.
type Load struct {
	Clients    int `json:"clients"`
	Ops        int `json:"ops"`
	ValueBytes int `json:"value_bytes"`
}

// Usual takes about half a minute on an idle machine. All that is written stays in memory, 600 MB of each
// program.
func Usual() Plan {
	return Plan{
		Loads: []Load{
			{Clients: 1, Ops: 100, ValueBytes: 256}, {Clients: 16, Ops: 1600, ValueBytes: 256},
			{Clients: 100, Ops: 4000, ValueBytes: 256}, {Clients: 1000, Ops: 6000, ValueBytes: 256},
		},
		Slices: 48, WarmUps: 4, Budget: 15 * time.Second,
	}
}

// Brief takes a third of the time, and finds differences that are large.
func Brief() Plan {
	p := Usual()
	p.Loads, p.Slices, p.WarmUps, p.Budget = p.Loads[1:3], 12, 2, 4*time.Second
	return p
}

// Limits are what is not accepted beside a rise of processor time. Latency has a wider one than what is
// counted.
func Limits() []compare.Condition {
	var all []compare.Condition
	for _, text := range []string{"allocs_per_op > +5%", "fsyncs_per_op > +10%", "context_switches_per_op > +15%", "mean_us > +20%"} {
		c, err := compare.ParseCondition(text)
		if err != nil {
			panic(err) // the texts above are constant
		}
		all = append(all, c)
	}
	return all
}

// maxP is the probability of chance that a broken condition may have. There are sixteen conditions in a
// run.
const maxP = 0.001

// Outcome is what a comparison of two programs says.
type Outcome struct {
	Comparison *compare.Comparison
	Intervals  []Interval        // of processor time an operation, by load
	Findings   []compare.Finding // of all limits
	Slower     []string          // what was broken, and broken again: by point and figure
}

// NotMeasured names the loads of which the intervals say nothing.
func (o *Outcome) NotMeasured() []string {
	var all []string
	for _, i := range o.Intervals {
		if i.Verdict() == NotMeasured {
			all = append(all, i.Point)
		}
	}
	return all
}

// String is the table of the comparison.
func (o *Outcome) String() string {
	var b strings.Builder
	b.WriteString("CPU µs/op         before   ratio  99 % interval\n")
	for _, i := range o.Intervals {
		fmt.Fprintln(&b, i)
	}
	if err := o.Comparison.WriteTable(&b, true, o.Findings); err != nil {
		return err.Error()
	}
	return b.String()
}

// Compare measures the programs a (before) and b (after), and judges them. Archives of both are written below
// dir. If a limit is broken, everything is measured once more.
func Compare(ctx context.Context, a, b, dir string, p Plan) (*Outcome, error) {
	first, err := measureAndJudge(ctx, a, b, filepath.Join(dir, "first"), p)
	if err != nil || len(first.Slower) == 0 {
		return first, err
	}
	broken := first.Slower
	second, err := measureAndJudge(ctx, a, b, filepath.Join(dir, "second"), p)
	if err != nil {
		return nil, err
	}
	second.Slower = slices.DeleteFunc(second.Slower, func(what string) bool { return !slices.Contains(broken, what) })
	return second, nil
}

func measureAndJudge(ctx context.Context, a, b, dir string, p Plan) (*Outcome, error) {
	runs, err := measure(ctx, [2]string{a, b}, p)
	if err != nil {
		return nil, err
	}
	env := experiment.ReadMachine(filepath.Dir(dir))
	var archives [2]*archive.Archive
	for i, name := range []string{"before", "after"} {
		if archives[i], err = write(runs[i], env, filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	c, err := compare.Of(archives[0], archives[1], compare.Options{})
	if err != nil {
		return nil, err
	}
	o := &Outcome{Comparison: c}
	if o.Findings, err = c.Judge(Limits()); err != nil {
		return nil, err
	}
	o.Intervals = intervals(runs[0], runs[1])
	for _, i := range o.Intervals {
		if i.Verdict() == Slower {
			o.Slower = append(o.Slower, nameOf(cpuCondition, i.Point))
		}
	}
	for _, f := range o.Findings {
		if f.Broken && f.Row.P < maxP {
			o.Slower = append(o.Slower, nameOf(f.Condition.String(), f.Point))
		}
	}
	return o, nil
}

// write makes the archive of one program and reads it back, as a comparison of two runs would.
func write(r *archive.Run, env archive.Environment, dir string) (*archive.Archive, error) {
	w, err := archive.Create(dir)
	if err != nil {
		return nil, err
	}
	if err := w.Save(r, archive.Environments{Load: env}); err != nil {
		return nil, err
	}
	return archive.Read(dir)
}

// runOf returns an empty run of one program.
func runOf(p Plan) *archive.Run {
	now := time.Now().UTC()
	r := &archive.Run{
		Recipe: "regression", Summary: "Has a change made Millrace slower?", Began: now, Ended: now,
		Warnings: []archive.Warning{{Code: archive.WarnInMemory, Text: "The disks are memory, with an fsync of a fixed time."}},
	}
	for _, l := range p.Loads {
		r.Points = append(r.Points, archive.Point{
			Name:   report.Plural(l.Clients, "client"),
			Labels: map[string]string{archive.LabelClients: strconv.Itoa(l.Clients), archive.LabelValueBytes: strconv.Itoa(l.ValueBytes), archive.LabelNodes: "3"},
		})
	}
	return r
}

// figures turns what a slice has used into figures of an operation.
func (u used) figures() map[string]float64 {
	ops := float64(max(1, u.Ops))
	return map[string]float64{
		archive.Ops.Name: ops, archive.OpsPerSec.Name: ops / max(u.Seconds, 1e-9), archive.MeanUs.Name: u.MeanUs,
		archive.CPUUsPerOp.Name: u.CPUUs / ops, archive.AllocsPerOp.Name: float64(u.Allocs) / ops,
		archive.FsyncsPerOp.Name: float64(u.Fsyncs) / ops, archive.SwitchesPerOp.Name: float64(u.Switches) / ops,
	}
}

// measure runs both programs and measures them in turn.
func measure(ctx context.Context, programs [2]string, p Plan) (runs [2]*archive.Run, err error) {
	var alive [2]*process
	for i, program := range programs {
		if alive[i], err = start(ctx, program); err != nil {
			return runs, errors.Join(err, alive[0].stop())
		}
		runs[i] = runOf(p)
	}
	defer func() { err = errors.Join(err, alive[0].stop(), alive[1].stop()) }()
	for load, l := range p.Loads {
		for range p.WarmUps {
			for i := range alive {
				if _, err := alive[i].slice(l); err != nil {
					return runs, err
				}
			}
		}
		start := time.Now()
		for at, i := range turns(p.Slices) {
			if at%len(order) == 0 && at >= 2*minSlices && time.Since(start) > p.Budget {
				break
			}
			began := time.Now().UTC()
			u, err := alive[i].slice(l)
			if err != nil {
				return runs, err
			}
			point := &runs[i].Points[load]
			point.Repeats = append(point.Repeats, archive.Repeat{Order: load*2*p.Slices + at, Began: began, Figures: u.figures()})
			runs[i].Ended = time.Now().UTC()
		}
	}
	return runs, nil
}

// costOfAnAppend measures the processor time for each fsync of a host, under the first load of a plan.
func costOfAnAppend(ctx context.Context, program string, p Plan) (_ time.Duration, err error) {
	alive, err := start(ctx, program)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, alive.stop()) }()
	var costs []float64
	for i := range p.WarmUps + minSlices {
		u, err := alive.slice(p.Loads[0])
		if err != nil {
			return 0, err
		}
		if i >= p.WarmUps {
			costs = append(costs, u.CPUUs/float64(max(1, u.Fsyncs)))
		}
	}
	return time.Duration(median(costs) * float64(time.Microsecond)), nil
}

// order is that of the slices, again and again: neither program is always first, and a drift hits both.
var order = [...]int{0, 1, 1, 0, 1, 0, 0, 1}

func turns(slices int) []int {
	var all []int
	for i := range 2 * slices {
		all = append(all, order[i%len(order)])
	}
	return all
}

// extraProcessors are what GOMAXPROCS gets beside the cores, one for each host of the workload: a goroutine
// in an fsync keeps its processor until the runtime notices.
const extraProcessors = 3

func processors() string { return strconv.Itoa(runtime.NumCPU() + extraProcessors) }

// cpuCondition is the condition of the intervals, as Explain tells it.
var cpuCondition = fmt.Sprintf("%s > +%g%%", archive.CPUUsPerOp.Name, 100*slowdown)

func nameOf(condition, point string) string { return condition + " at " + point }

// Explain says in a sentence what has become slower; "" if nothing has.
func (o *Outcome) Explain() string {
	measured := map[string]string{}
	for _, i := range o.Intervals {
		measured[nameOf(cpuCondition, i.Point)] = fmt.Sprintf("%+.1f %%, 99 %% interval %+.1f to %+.1f %%", (i.Ratio-1)*100, (i.Low-1)*100, (i.High-1)*100)
	}
	for _, f := range o.Findings {
		measured[nameOf(f.Condition.String(), f.Point)] = fmt.Sprintf("%+.1f %%, p=%.4f", f.Row.Delta*100, f.Row.P)
	}
	var all []string
	for _, what := range o.Slower {
		all = append(all, fmt.Sprintf("%s (%s)", what, measured[what]))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}
