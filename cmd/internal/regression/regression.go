// Package regression says whether a change has made Millrace slower. It builds the same small workload in
// this tree and in the tree of a commit before, runs both at once, and measures them in turn.
//
// Absolute figures of a shared machine differ by a factor from one minute to the next, so nothing here is
// compared with a stored number. Three things make a difference of ten per cent visible there. Both
// versions are alive together. Their slices of a twentieth of a second alternate (A B B A, then B A A B),
// so a busy minute hits both. The disks are in memory, with an fsync that takes a fixed time (package
// workload). It first judges what a busy neighbour hardly changes: processor time, allocations and fsyncs
// of an operation. Latency comes last, with a wider limit.
//
// The verdict is that of lab/compare, with a stricter p. What breaks a condition is measured again in new
// processes, and only what breaks it twice is reported: a gate that cries wolf is taken out.
//
// The guard does not see what the workload does not do (large values, many groups, reads, snapshots, a real
// disk): millrace bench and millrace lab do.
package regression

import (
	"cmp"
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

// Usual takes about eight seconds on an idle machine.
func Usual() Plan {
	return Plan{
		Loads:  []Load{{Clients: 1, Ops: 100, ValueBytes: 256}, {Clients: 64, Ops: 4096, ValueBytes: 256}},
		Slices: 32, WarmUps: 4, Budget: 10 * time.Second,
	}
}

// Brief takes a third of the time, and finds differences that are large.
func Brief() Plan {
	p := Usual()
	p.Slices, p.WarmUps, p.Budget = 12, 2, 4*time.Second
	return p
}

// Limits are what is not accepted. Processor time and latency have wider ones than what is counted.
func Limits() []compare.Condition {
	var all []compare.Condition
	for _, text := range []string{"allocs_per_op > +5%", "fsyncs_per_op > +10%", "cpu_us_per_op > +10%", "context_switches_per_op > +15%", "mean_us > +20%"} {
		c, err := compare.ParseCondition(text)
		if err != nil {
			panic(err) // the texts above are constant
		}
		all = append(all, c)
	}
	return all
}

// maxP is the probability of chance that a broken condition may have. There are ten conditions in a run.
const maxP = 0.001

// Outcome is what a comparison of two programs says.
type Outcome struct {
	Comparison *compare.Comparison
	Findings   []compare.Finding // of all limits
	Slower     []compare.Finding // those that were broken, and broken again
}

// String is the table of the comparison.
func (o *Outcome) String() string {
	var b strings.Builder
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
	second, err := measureAndJudge(ctx, a, b, filepath.Join(dir, "second"), p)
	if err != nil {
		return nil, err
	}
	second.Slower = slices.DeleteFunc(second.Slower, func(f compare.Finding) bool {
		return !slices.ContainsFunc(first.Slower, func(g compare.Finding) bool {
			return g.Point == f.Point && g.Condition.String() == f.Condition.String()
		})
	})
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
	for _, f := range o.Findings {
		if f.Broken && f.Row.P < maxP {
			o.Slower = append(o.Slower, f)
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

// Explain says in a sentence what has become slower; "" if nothing has.
func (o *Outcome) Explain() string {
	var all []string
	for _, f := range o.Slower {
		all = append(all, fmt.Sprintf("%s at %s (%+.1f %%, p=%.4f)", f.Condition, f.Point, f.Row.Delta*100, f.Row.P))
	}
	slices.SortFunc(all, cmp.Compare[string])
	return strings.Join(all, "; ")
}
