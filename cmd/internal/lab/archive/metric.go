package archive

import (
	"encoding/json"
	"math"
	"strings"
)

// Unit is the unit of a figure. Reports choose digits and prefixes by it.
type Unit string

// The units. A share is between 0 and 1; a ratio has no bound; a count is of whole things, though the mean
// of several need not be whole.
const (
	UnitPerSecond      Unit = "/s"
	UnitMicroseconds   Unit = "us"
	UnitSeconds        Unit = "s"
	UnitBytes          Unit = "B"
	UnitBytesPerSecond Unit = "B/s"
	UnitCores          Unit = "cores"
	UnitCount          Unit = "count"
	UnitRatio          Unit = "ratio"
	UnitShare          Unit = "share"
)

var units = []Unit{
	UnitPerSecond, UnitMicroseconds, UnitSeconds, UnitBytes, UnitBytesPerSecond, UnitCores, UnitCount, UnitRatio, UnitShare,
}

// Better says in which direction a figure improves.
type Better string

// The directions. A figure without one, such as the size of a batch, is compared but never called worse.
const (
	BetterHigher  Better = "higher"
	BetterLower   Better = "lower"
	BetterNeither Better = "neither"
)

// Metric declares the name of a figure.
type Metric struct {
	Name    string `json:"name"` // lower case, words joined by _, unit last: "p99_us"
	Unit    Unit   `json:"unit"`
	Better  Better `json:"better"`
	Meaning string `json:"meaning"` // a phrase for the reader of a table
}

// The standard metrics. A recipe uses these where they fit, and declares only what is its own. Figures "per
// op" are over all hosts; whether the load generator's share is in them, the label processes says: with all
// in one process it is.
var (
	OpsPerSec        = Metric{"ops_per_sec", UnitPerSecond, BetterHigher, "acknowledged operations a second"}
	BytesPerSec      = Metric{"bytes_per_sec", UnitBytesPerSecond, BetterHigher, "acknowledged payload a second"}
	MeanUs           = Metric{"mean_us", UnitMicroseconds, BetterLower, "mean latency"}
	P50Us            = Metric{"p50_us", UnitMicroseconds, BetterLower, "latency that 50 % did not exceed"}
	P90Us            = Metric{"p90_us", UnitMicroseconds, BetterLower, "latency that 90 % did not exceed"}
	P99Us            = Metric{"p99_us", UnitMicroseconds, BetterLower, "latency that 99 % did not exceed"}
	P999Us           = Metric{"p999_us", UnitMicroseconds, BetterLower, "latency that 99.9 % did not exceed"}
	MaxUs            = Metric{"max_us", UnitMicroseconds, BetterLower, "longest latency"}
	ServiceMeanUs    = Metric{"service_mean_us", UnitMicroseconds, BetterLower, "mean time from the actual send, open loop"}
	ServiceP99Us     = Metric{"service_p99_us", UnitMicroseconds, BetterLower, "time from the actual send that 99 % did not exceed, open loop"}
	LagP99Us         = Metric{"lag_p99_us", UnitMicroseconds, BetterLower, "lateness of the generator that 99 % did not exceed, open loop"}
	Ops              = Metric{"ops", UnitCount, BetterNeither, "operations acknowledged"}
	Offered          = Metric{"offered", UnitCount, BetterNeither, "arrivals, open loop"}
	Dropped          = Metric{"dropped", UnitCount, BetterLower, "arrivals not sent because of the bound in flight, open loop"}
	Failed           = Metric{"failed", UnitCount, BetterLower, "operations that failed"}
	DurationSec      = Metric{"duration_s", UnitSeconds, BetterNeither, "length of the measurement"}
	InFlight         = Metric{"in_flight", UnitCount, BetterNeither, "operations without an answer"}
	FsyncsPerOp      = Metric{"fsyncs_per_op", UnitCount, BetterLower, "fsyncs of all hosts for one operation"}
	BytesPerFsync    = Metric{"bytes_per_fsync", UnitBytes, BetterNeither, "what one fsync made durable"}
	DiskBytesPerOp   = Metric{"disk_bytes_per_op", UnitBytes, BetterLower, "written to disks for one operation"}
	NetBytesPerOp    = Metric{"net_bytes_per_op", UnitBytes, BetterLower, "sent between hosts for one operation"}
	EntriesPerAppend = Metric{"entries_per_append", UnitCount, BetterNeither, "entries in one batch to the log"}
	EntriesPerApply  = Metric{"entries_per_apply", UnitCount, BetterNeither, "entries in one batch to the state machine"}
	CPUUsPerOp       = Metric{"cpu_us_per_op", UnitMicroseconds, BetterLower, "processor time for one operation"}
	CPUCores         = Metric{"cpu_cores", UnitCores, BetterNeither, "processor time in use"}
	AllocsPerOp      = Metric{"allocs_per_op", UnitCount, BetterLower, "heap objects for one operation"}
	SwitchesPerOp    = Metric{"context_switches_per_op", UnitCount, BetterLower, "context switches for one operation"}
	SwitchesPerSec   = Metric{"context_switches_per_sec", UnitPerSecond, BetterNeither, "context switches"}
	RSSBytes         = Metric{"rss_bytes", UnitBytes, BetterLower, "resident memory, the maximum"}
	HeapBytes        = Metric{"heap_bytes", UnitBytes, BetterLower, "live Go heap"}
	GCPauses         = Metric{"gc_pauses", UnitCount, BetterNeither, "pauses of the garbage collector"}
	GCPauseUs        = Metric{"gc_pause_us", UnitMicroseconds, BetterLower, "longest pause of the garbage collector"}
	FsyncsPerSec     = Metric{"fsyncs_per_sec", UnitPerSecond, BetterNeither, "fsyncs of all hosts"}
	DiskBytesPerSec  = Metric{"disk_bytes_per_sec", UnitBytesPerSecond, BetterNeither, "written to disks"}
	FailedPerSec     = Metric{"failed_per_sec", UnitPerSecond, BetterLower, "operations that failed"}
	FsyncP99Us       = Metric{"fsync_p99_us", UnitMicroseconds, BetterLower, "duration that 99 % of the fsyncs did not exceed"}
	LongestGapSec    = Metric{"longest_gap_s", UnitSeconds, BetterLower, "longest time without an acknowledgement"}
	LostOps          = Metric{"lost_ops", UnitCount, BetterLower, "operations fewer than at the rate before the disturbance"}
	P99Ratio         = Metric{"p99_ratio", UnitRatio, BetterLower, "p99 during the disturbance by p99 before"}
)

// StandardMetrics returns the standard metrics in the order of tables.
func StandardMetrics() []Metric {
	return []Metric{
		OpsPerSec, BytesPerSec, MeanUs, P50Us, P90Us, P99Us, P999Us, MaxUs, ServiceMeanUs, ServiceP99Us, LagP99Us,
		Ops, Offered, Dropped, Failed, DurationSec, InFlight,
		FsyncsPerOp, BytesPerFsync, DiskBytesPerOp, NetBytesPerOp, EntriesPerAppend, EntriesPerApply,
		CPUUsPerOp, CPUCores, AllocsPerOp, SwitchesPerOp, SwitchesPerSec, RSSBytes, HeapBytes, GCPauses, GCPauseUs,
		FsyncsPerSec, DiskBytesPerSec, FailedPerSec, FsyncP99Us, LongestGapSec, LostOps, P99Ratio,
	}
}

// Metric returns the declaration of a name; ok is false if the run does not have it.
func (r *Run) Metric(name string) (m Metric, ok bool) {
	for _, m := range r.Metrics {
		if m.Name == name {
			return m, true
		}
	}
	return Metric{}, false
}

// declareStandard adds the standard metrics that figures or series use and that r does not declare, and puts
// those of the recipe behind them.
func (r *Run) declareStandard() {
	used := map[string]bool{}
	for _, p := range r.Points {
		for _, repeat := range p.Repeats {
			for name := range repeat.Figures {
				used[name] = true
			}
			for _, s := range repeat.Series {
				for name := range s.Columns {
					used[name] = true
				}
			}
		}
	}
	var all []Metric
	standard := map[string]bool{}
	for _, m := range StandardMetrics() {
		if standard[m.Name] = true; used[m.Name] {
			all = append(all, m)
		}
	}
	for _, m := range r.Metrics {
		if !standard[m.Name] {
			all = append(all, m)
		}
	}
	r.Metrics = all
}

// benchUnit is the unit of a metric in Go's benchmark format, where a unit names the metric too. Tools that
// read the format scale "ns" and "B"; so latencies are written in nanoseconds. "p99_us" becomes "p99-ns" and
// "fsyncs_per_op" becomes "fsyncs/op".
func (m Metric) benchUnit(value float64) (float64, string) {
	name := m.Name
	switch m.Unit {
	case UnitMicroseconds:
		if rest, ok := strings.CutSuffix(name, "_us"); ok {
			name = rest + "_ns"
		} else {
			name = strings.Replace(name, "_us_", "_ns_", 1)
		}
		value *= 1e3
	case UnitBytes, UnitBytesPerSecond:
		name = strings.Replace(name, "bytes", "B", 1)
	}
	name = strings.ReplaceAll(name, "_per_sec", "/s")
	name = strings.ReplaceAll(name, "_per_", "/")
	return value, strings.ReplaceAll(name, "_", "-")
}

// Values is a column of a series. NaN stands for a sample without a value, such as the p99 of a second in
// which nothing was acknowledged; it is null in JSON.
type Values []float64

// MarshalJSON implements json.Marshaler.
func (v Values) MarshalJSON() ([]byte, error) {
	out := make([]*float64, len(v))
	for i := range v {
		if !math.IsNaN(v[i]) {
			out[i] = &v[i]
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *Values) UnmarshalJSON(text []byte) error {
	var in []*float64
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	*v = make(Values, len(in))
	for i, x := range in {
		(*v)[i] = math.NaN()
		if x != nil {
			(*v)[i] = *x
		}
	}
	return nil
}
