// Package report turns what was measured into rows, tables, progress and files. It knows no plan: each bench
// has its own table, made of the parts here. Package report/page draws.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// Result is a row: what one target did under one load. Latencies are in microseconds; in the open loop they
// count from the intended send time. Figures "per op" are over all hosts. CPU and allocations include the
// load generator.
type Result struct {
	Schema       string  `json:"schema"`
	Pipeline     string  `json:"pipeline"` // basic, parallel, async, bare, or "limit: …"; the log or the mode in other benches
	Hosts        int     `json:"nodes"`
	Clients      int     `json:"clients"` // 0 in the open loop
	Rate         float64 `json:"rate"`    // offered ops/s; 0 in the closed loop
	ValueBytes   int     `json:"value_bytes"`
	FsyncDelayUs float64 `json:"fsync_delay_us"`
	Durability   string  `json:"durability,omitempty"` // as wal.ParseMode reads it; limits have none

	OpsPerSec        float64 `json:"ops_per_sec"`
	MeanUs           float64 `json:"mean_us"`
	P50Us            float64 `json:"p50_us"`
	P90Us            float64 `json:"p90_us"`
	P99Us            float64 `json:"p99_us"`
	P999Us           float64 `json:"p999_us"`
	MaxUs            float64 `json:"max_us"`
	FsyncsPerOp      float64 `json:"fsyncs_per_op"`
	BytesPerFsync    float64 `json:"bytes_per_fsync"`
	EntriesPerAppend float64 `json:"entries_per_append"`
	EntriesPerApply  float64 `json:"entries_per_apply"`
	EntriesPerOp     float64 `json:"entries_per_op,omitempty"` // in the logs of all hosts
	CPUUsPerOp       float64 `json:"cpu_us_per_op"`
	AllocsPerOp      float64 `json:"allocs_per_op"`
	AllocBytesPerOp  float64 `json:"alloc_bytes_per_op,omitempty"`
	FaultsPerOp      float64 `json:"faults_per_op,omitempty"` // page faults
	SwitchesPerOp    float64 `json:"switches_per_op,omitempty"`
	ReadWritesPerOp  float64 `json:"read_writes_per_op,omitempty"` // calls of read and write, on files and sockets
	LocksPerOp       float64 `json:"locks_per_op,omitempty"`       // of the hosts, with the build tag countlocks
	AppendsPerOp     float64 `json:"appends_per_op,omitempty"`     // writes to the logs of all hosts
	LogBytesPerOp    float64 `json:"log_bytes_per_op,omitempty"`   // of these, with all headers
	FramesPerOp      float64 `json:"frames_per_op,omitempty"`      // that the hosts sent to each other
	SentBytesPerOp   float64 `json:"sent_bytes_per_op,omitempty"`  // of these, with all headers
	TurnsPerOp       float64 `json:"turns_per_op,omitempty"`       // of all groups on all hosts
	HeapLiveBytes    uint64  `json:"heap_live_bytes,omitempty"`    // of the process at the end of the window, after its latest collection
	HeapGoalBytes    uint64  `json:"heap_goal_bytes,omitempty"`    // to which the heap may grow before the next one
	YoungSegments    uint64  `json:"young_segments,omitempty"`     // of the logs of all hosts, that got records before all their blocks were written

	Runs         int     `json:"runs"`            // the row is the run with the median throughput
	MinOpsPerSec float64 `json:"min_ops_per_sec"` // over all runs
	MaxOpsPerSec float64 `json:"max_ops_per_sec"`
	DurationSec  float64 `json:"duration_s"`
	WarmupSec    float64 `json:"warmup_s"`
	Ops          uint64  `json:"ops"`
	Failed       uint64  `json:"failed"`
	Seed         uint64  `json:"seed"`

	// Open loop only.
	Offered       uint64  `json:"offered,omitempty"` // arrivals in the window
	Dropped       uint64  `json:"dropped,omitempty"` // of these, not sent because of the bound in flight
	ServiceMeanUs float64 `json:"service_mean_us,omitempty"`
	LagP99Us      float64 `json:"lag_p99_us,omitempty"` // actual − intended send time

	Warnings []string        `json:"marks"`   // see Warn…
	Partial  bool            `json:"partial"` // the run that the row belongs to was cut short
	Env      lab.Environment `json:"env"`
}

// Warnings of a row.
const (
	WarnSaturated      = "saturated"       // open loop: more was offered than the target can do
	WarnGeneratorBound = "generator-bound" // open loop: the generator's own lateness is a visible part of the latency
	WarnFailures       = "failed writes"   // some writes returned errors; they are in no other figure
	WarnNoOps          = "no write finished"
	WarnMoved          = "the leader has changed" // calls of the host that led at first were forwarded
)

const (
	saturatedDropShare  = 0.001
	saturatedThroughput = 0.95 // of the offered rate
	boundLagShare       = 0.05 // of the latency, both at p99
)

// Micros returns d in microseconds.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// SetOutcome fills in what a load has measured, and the warnings. Rate must be set before.
func (r *Result) SetOutcome(o load.Outcome) {
	r.WarmupSec, r.Failed, r.Offered, r.Dropped = o.Warmup.Seconds(), o.Failed, o.Offered, o.Dropped
	r.SetLatencies(o.Latency)
	r.SetRates(o.Completed, o.Length, o.CPU, o.Allocs)
	r.FsyncsPerOp = Ratio(float64(o.Used.Fsyncs), float64(r.Ops))
	r.BytesPerFsync = Ratio(float64(o.Used.FsyncBytes), float64(o.Used.Fsyncs))
	r.EntriesPerAppend = Ratio(float64(o.Used.AppendedEntries), float64(o.Used.Appends))
	r.EntriesPerApply = Ratio(float64(o.Used.AppliedEntries), float64(o.Used.Applies))
	r.EntriesPerOp = Ratio(float64(o.Used.AppendedEntries), float64(r.Ops))
	r.YoungSegments = o.Used.YoungSegments
	r.HeapLiveBytes, r.HeapGoalBytes = o.Heap.Live, o.Heap.Goal
	for figure, used := range map[*float64]uint64{
		&r.AllocBytesPerOp: o.Process.AllocBytes, &r.FaultsPerOp: o.Process.Faults,
		&r.SwitchesPerOp: o.Process.Switches, &r.ReadWritesPerOp: o.Process.ReadWrites, &r.LocksPerOp: o.Process.Locks,
		&r.AppendsPerOp: o.Used.Appends, &r.LogBytesPerOp: o.Used.LogBytes,
		&r.FramesPerOp: o.Used.Frames, &r.SentBytesPerOp: o.Used.SentBytes, &r.TurnsPerOp: o.Used.Turns,
	} {
		*figure = Ratio(float64(used), float64(r.Ops))
	}
	if r.Rate > 0 {
		r.ServiceMeanUs = Micros(o.Service.Mean())
		r.LagP99Us = Micros(o.Lag.Quantile(0.99))
	}
	r.warn()
}

// SetLatencies fills in mean, quantiles and maximum.
func (r *Result) SetLatencies(l *load.Latencies) {
	r.MeanUs, r.MaxUs = Micros(l.Mean()), Micros(l.Max())
	r.P50Us, r.P90Us = Micros(l.Quantile(0.5)), Micros(l.Quantile(0.9))
	r.P99Us, r.P999Us = Micros(l.Quantile(0.99)), Micros(l.Quantile(0.999))
}

// SetRates fills in the throughput of ops operations in elapsed, and what each of them used.
func (r *Result) SetRates(ops uint64, elapsed, cpu time.Duration, allocs uint64) {
	r.Ops = ops
	r.DurationSec = elapsed.Seconds()
	r.OpsPerSec = Ratio(float64(ops), elapsed.Seconds())
	r.CPUUsPerOp = Ratio(Micros(cpu), float64(ops))
	r.AllocsPerOp = Ratio(float64(allocs), float64(ops))
}

// warn sets the warnings that the other fields of the row call for.
func (r *Result) warn() {
	r.Warnings = []string{}
	if r.Ops == 0 {
		r.Warnings = append(r.Warnings, WarnNoOps)
	}
	if r.Failed > 0 {
		r.Warnings = append(r.Warnings, WarnFailures)
	}
	if r.Rate == 0 {
		return
	}
	offeredPerSec := Ratio(float64(r.Offered), r.DurationSec)
	if float64(r.Dropped) > saturatedDropShare*float64(r.Offered) || r.OpsPerSec < saturatedThroughput*offeredPerSec {
		r.Warnings = append(r.Warnings, WarnSaturated)
	}
	if r.LagP99Us > boundLagShare*r.P99Us {
		r.Warnings = append(r.Warnings, WarnGeneratorBound)
	}
}

// Notes are the spread of several runs, and the warnings with their figures.
func (r Result) Notes() []string {
	var notes []string
	if r.Runs > 1 {
		notes = append(notes, fmt.Sprintf("%s to %s ops/s", Count(r.MinOpsPerSec), Count(r.MaxOpsPerSec)))
	}
	if r.YoungSegments > 0 {
		notes = append(notes, Plural(int(r.YoungSegments), "young segment"))
	}
	for _, w := range r.Warnings {
		switch w {
		case WarnSaturated:
			if r.Dropped > 0 {
				w = fmt.Sprintf("saturated (%s of %s dropped)", Count(float64(r.Dropped)), Count(float64(r.Offered)))
			}
		case WarnGeneratorBound:
			w = fmt.Sprintf("generator-bound (lag p99 %s)", Latency(r.LagP99Us))
		case WarnFailures:
			w = fmt.Sprintf("%s writes failed", Count(float64(r.Failed)))
		}
		notes = append(notes, w)
	}
	return notes
}

// Ratio is a/b, and 0 where b is 0 (JSON has no NaN).
func Ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Median returns the run with the median throughput (of an even number, the lower), with the extremes of all.
func Median(runs []Result) Result { return MedianOf(runs, func(r *Result) *Result { return r }) }

// MedianOf is Median for rows that contain a Result, which of returns.
func MedianOf[T any](runs []T, of func(*T) *Result) T {
	sorted := slices.Clone(runs)
	slices.SortStableFunc(sorted, func(a, b T) int { return cmp.Compare(of(&a).OpsPerSec, of(&b).OpsPerSec) })
	m := sorted[(len(sorted)-1)/2]
	r := of(&m)
	r.Runs = len(sorted)
	r.MinOpsPerSec, r.MaxOpsPerSec = of(&sorted[0]).OpsPerSec, of(&sorted[len(sorted)-1]).OpsPerSec
	return m
}
