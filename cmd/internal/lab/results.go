package lab

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Schema names the layout of results.json. A field may be added under the same name; a change of meaning makes a new one.
const Schema = "millrace-bench/1"

// Result is one row: what one target did under one load. Latencies are in microseconds; in the open loop they count
// from the intended send time. Figures "per op" are over all nodes; CPU and allocations include the load generator.
type Result struct {
	Schema       string  `json:"schema"`
	Pipeline     string  `json:"pipeline"` // basic, parallel, async, bare, or "limit: …"
	Nodes        int     `json:"nodes"`
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
	CPUUsPerOp       float64 `json:"cpu_us_per_op"`
	AllocsPerOp      float64 `json:"allocs_per_op"`

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
	Dropped       uint64  `json:"dropped,omitempty"` // of these, not sent: too many in flight
	ServiceMeanUs float64 `json:"service_mean_us,omitempty"`
	LagP99Us      float64 `json:"lag_p99_us,omitempty"` // actual − intended send time

	Marks   []string    `json:"marks"`   // see Mark…
	Partial bool        `json:"partial"` // the run it belongs to was cut short
	Env     Environment `json:"env"`
}

// Marks warn a reader of a row.
const (
	MarkSaturated      = "saturated"       // open loop: more was offered than the target can do
	MarkGeneratorBound = "generator-bound" // open loop: the generator's own lateness is a visible part of the latency
	MarkFailures       = "failed writes"   // some writes returned errors; they are in no other figure
	MarkNoOps          = "no write finished"
)

const (
	saturatedDropShare  = 0.001
	saturatedThroughput = 0.95 // of the offered rate
	boundLagShare       = 0.05 // of the latency, both at p99
)

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func (r *Result) setLatencies(l *latencies) {
	r.MeanUs, r.MaxUs = micros(l.mean()), micros(l.max)
	r.P50Us, r.P90Us = micros(l.quantile(0.5)), micros(l.quantile(0.9))
	r.P99Us, r.P999Us = micros(l.quantile(0.99)), micros(l.quantile(0.999))
}

func (r *Result) setRates(ops uint64, elapsed, cpu time.Duration, allocs uint64) {
	r.Ops = ops
	r.DurationSec = elapsed.Seconds()
	r.OpsPerSec = ratio(float64(ops), elapsed.Seconds())
	r.CPUUsPerOp = ratio(micros(cpu), float64(ops))
	r.AllocsPerOp = ratio(float64(allocs), float64(ops))
}

func (r *Result) setCounters(c Counters) {
	r.FsyncsPerOp = ratio(float64(c.Fsyncs), float64(r.Ops))
	r.BytesPerFsync = ratio(float64(c.FsyncBytes), float64(c.Fsyncs))
	r.EntriesPerAppend = ratio(float64(c.AppendedEntries), float64(c.Appends))
	r.EntriesPerApply = ratio(float64(c.AppliedEntries), float64(c.Applies))
}

// mark looks at the finished row and says what a reader must know.
func (r *Result) mark() {
	r.Marks = []string{}
	if r.Ops == 0 {
		r.Marks = append(r.Marks, MarkNoOps)
	}
	if r.Failed > 0 {
		r.Marks = append(r.Marks, MarkFailures)
	}
	if r.Rate == 0 {
		return
	}
	offeredPerSec := ratio(float64(r.Offered), r.DurationSec)
	if float64(r.Dropped) > saturatedDropShare*float64(r.Offered) || r.OpsPerSec < saturatedThroughput*offeredPerSec {
		r.Marks = append(r.Marks, MarkSaturated)
	}
	if r.LagP99Us > boundLagShare*r.P99Us {
		r.Marks = append(r.Marks, MarkGeneratorBound)
	}
}

// ratio is a/b, and 0 where that would say nothing (JSON has no NaN).
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func (r *Result) isLimit() bool { return strings.HasPrefix(r.Pipeline, limitPrefix) }

// median returns the run with the median throughput (of an even number, the lower), with the extremes of all.
func median(runs []Result) Result { return medianOf(runs, func(r *Result) *Result { return r }) }

// medianOf is median for rows that have a Result within.
func medianOf[T any](runs []T, of func(*T) *Result) T {
	sorted := slices.Clone(runs)
	slices.SortStableFunc(sorted, func(a, b T) int { return cmp.Compare(of(&a).OpsPerSec, of(&b).OpsPerSec) })
	m := sorted[(len(sorted)-1)/2]
	r := of(&m)
	r.Runs = len(sorted)
	r.MinOpsPerSec, r.MaxOpsPerSec = of(&sorted[0]).OpsPerSec, of(&sorted[len(sorted)-1]).OpsPerSec
	return m
}

// WriteJSON writes all rows as one JSON array.
func (r *Report) WriteJSON(w io.Writer) error { return writeJSON(w, r.Rows) }

func writeJSON(w io.Writer, rows any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(rows)
}

// Files is a report that can be written as files.
type Files interface{ outputs() []output }

func (r *Report) outputs() []output {
	return []output{
		{"results.json", r.WriteJSON},
		{"throughput.svg", r.writeThroughputPlot},
		{"latency.svg", r.writeLatencyPlot},
	}
}

type output struct {
	name  string
	write func(io.Writer) error
}

// CheckOut refuses an --out directory that cannot take the files of a report, before an hour of measuring. It leaves no
// trace. The report may be a nil pointer.
func CheckOut(dir string, of Files) error {
	for _, o := range of.outputs() {
		if _, err := os.Lstat(filepath.Join(dir, o.name)); err == nil {
			return refusef("--out: %s is already there; choose another directory or remove it", filepath.Join(dir, o.name))
		}
	}
	existing, err := nearestDir(dir)
	if err != nil {
		return err
	}
	probe, err := os.MkdirTemp(existing, ".millrace-probe-")
	if err != nil {
		return refusef("--out: cannot write to %s: %v", existing, reason(err))
	}
	return os.Remove(probe)
}

// nearestDir returns dir or the closest ancestor that exists.
func nearestDir(dir string) (string, error) {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return dir, nil
	case err == nil:
		return "", refusef("--out: %s is not a directory", dir)
	case !errors.Is(err, os.ErrNotExist):
		return "", refusef("--out: cannot use %s: %v", dir, reason(err))
	}
	return nearestDir(filepath.Dir(filepath.Clean(dir)))
}

// WriteFiles writes the files of a report into dir: all of them, or none.
func WriteFiles(dir string, of Files) (err error) {
	existing, err := nearestDir(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return refusef("--out: cannot create %s: %v", dir, reason(err))
	}
	var written []string
	defer func() {
		if err == nil {
			return
		}
		for _, name := range written {
			_ = os.Remove(name) // the first error is the one to tell
		}
		for d := filepath.Clean(dir); d != filepath.Clean(existing); d = filepath.Dir(d) {
			_ = os.Remove(d)
		}
	}()
	for _, o := range of.outputs() {
		name := filepath.Join(dir, o.name)
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return refusef("--out: cannot create %s: %v", name, reason(err))
		}
		written = append(written, name)
		if err := errors.Join(o.write(f), f.Close()); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}
