package experiment

import (
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

const (
	// maxDrift is how far the last third of a measurement may be from the first.
	maxDrift = 0.10
	// minDriftOps is how many operations a third needs, so that chance is no drift.
	minDriftOps = 300

	saturatedDropShare  = 0.001
	saturatedThroughput = 0.95 // of what was offered
	boundLagShare       = 0.05 // of the latency, both at p99
	busyShare           = 0.9  // of the cores, used by this process
)

// measured is an outcome with what surrounds it.
type measured struct {
	load.Outcome
	Began      time.Time
	Seed       uint64
	Operation  string // tag of the histograms
	Offers     bool   // open loop
	ValueBytes int
	Samples    *sampler
	Counters   bool // the target's counters hold: no host has gone meanwhile
	Ended      time.Time
}

// repeat turns an outcome into the form of the archive, without histograms.
func (m measured) repeat() archive.Repeat {
	begin, end := m.Warmup, m.Warmup+m.Length
	r := archive.Repeat{
		Seed: m.Seed, Began: m.Began.UTC(), Errors: m.Errors, Figures: m.figures(),
		Phases: []archive.Phase{
			{Name: archive.PhaseWarmup, ToSec: begin.Seconds()},
			{Name: archive.PhaseMeasure, FromSec: begin.Seconds(), ToSec: end.Seconds()},
			{Name: archive.PhaseDrain, FromSec: end.Seconds(), ToSec: max(end.Seconds(), m.Ended.Sub(m.Began).Seconds())},
		},
	}
	if r.Errors == nil {
		r.Errors = map[string]uint64{}
	}
	if m.Timeline != nil {
		r.Series = append(r.Series, m.series())
		drift := m.Timeline.Drift(begin, end)
		if first, _ := m.Timeline.Counts(begin, begin+m.Length/3); first >= minDriftOps && math.Abs(drift) > maxDrift {
			r.HasDrift = true
			r.Warnings = append(r.Warnings, archive.Warning{Code: archive.WarnDrift, Text: fmt.Sprintf("the last third of the measurement has %+.0f %% of the throughput of the first.", 100*drift)})
		}
	}
	if m.Samples != nil {
		r.Series = append(r.Series, m.Samples.series()...)
	}
	r.Warnings = append(r.Warnings, m.warnings(r.Figures)...)
	return r
}

func (m measured) figures() map[string]float64 {
	ops := float64(m.Completed)
	perOp := func(x float64) float64 { return report.Ratio(x, ops) }
	seconds := m.Length.Seconds()
	f := map[string]float64{
		archive.OpsPerSec.Name: report.Ratio(ops, seconds), archive.BytesPerSec.Name: report.Ratio(ops*float64(m.ValueBytes), seconds),
		archive.Ops.Name: ops, archive.Failed.Name: float64(m.Failed), archive.DurationSec.Name: seconds,
		archive.CPUUsPerOp.Name: perOp(report.Micros(m.CPU)), archive.CPUCores.Name: report.Ratio(m.CPU.Seconds(), seconds),
		archive.AllocsPerOp.Name: perOp(float64(m.Allocs)), archive.SwitchesPerOp.Name: perOp(float64(m.Switches)),
	}
	if m.Latency.Count() > 0 {
		latencies(f, m.Latency)
	}
	if m.Counters {
		f[archive.FsyncsPerOp.Name] = perOp(float64(m.Used.Fsyncs))
		f[archive.FsyncsPerSec.Name] = report.Ratio(float64(m.Used.Fsyncs), seconds)
		f[archive.BytesPerFsync.Name] = report.Ratio(float64(m.Used.FsyncBytes), float64(m.Used.Fsyncs))
		f[archive.DiskBytesPerOp.Name] = perOp(float64(m.Used.FsyncBytes))
		f[archive.NetBytesPerOp.Name] = perOp(float64(m.Used.SentBytes))
		f[archive.EntriesPerAppend.Name] = report.Ratio(float64(m.Used.AppendedEntries), float64(m.Used.Appends))
		f[archive.EntriesPerApply.Name] = report.Ratio(float64(m.Used.AppliedEntries), float64(m.Used.Applies))
	}
	if m.Offers {
		f[archive.Offered.Name], f[archive.Dropped.Name] = float64(m.Offered), float64(m.Dropped)
		f[archive.ServiceMeanUs.Name] = report.Micros(m.Service.Mean())
		f[archive.ServiceP99Us.Name] = report.Micros(m.Service.Quantile(0.99))
		f[archive.LagP99Us.Name] = report.Micros(m.Lag.Quantile(0.99))
	}
	if m.Hosts != nil {
		m.abroad(f, perOp)
	}
	if m.Samples != nil {
		m.Samples.figures(f)
	}
	return f
}

// latencies adds the figures of a distribution.
func latencies(f map[string]float64, l *load.Latencies) {
	f[archive.MeanUs.Name], f[archive.MaxUs.Name] = report.Micros(l.Mean()), report.Micros(l.Max())
	f[archive.P50Us.Name], f[archive.P90Us.Name] = report.Micros(l.Quantile(0.5)), report.Micros(l.Quantile(0.9))
	f[archive.P99Us.Name], f[archive.P999Us.Name] = report.Micros(l.Quantile(0.99)), report.Micros(l.Quantile(0.999))
}

// warnings are the reasons not to trust the figures of this repeat.
func (m measured) warnings(f map[string]float64) (all []archive.Warning) {
	warn := func(code, format string, args ...any) {
		all = append(all, archive.Warning{Code: code, Text: fmt.Sprintf(format, args...)})
	}
	if m.Failed > 0 {
		warn(archive.WarnFailures, "%d operations failed; they are in no latency.", m.Failed)
	}
	if m.Completed == 0 {
		warn(archive.WarnFailures, "no operation ended in the measurement.")
	}
	cores, used, whose := float64(runtime.NumCPU()), f[archive.CPUCores.Name], "hosts and clients of this process"
	if m.Hosts != nil {
		used, whose = f[LoadCores.Name], "the clients' process"
	}
	if used > busyShare*cores {
		warn(archive.WarnClientCPU, "%s used %.2f of %.0f cores: the clients had to wait for a processor, too.", whose, used, cores)
	}
	if !m.Offers {
		return all
	}
	if m.saturated() {
		warn(archive.WarnSaturated, "of %d arrivals %d were dropped and %d answered in time: more was offered than the target can do.", m.Offered, m.Dropped, m.Completed)
	}
	if f[archive.LagP99Us.Name] > boundLagShare*f[archive.P99Us.Name] {
		warn(archive.WarnGeneratorBound, "the generator was late by %s at p99, which is part of the latency.", report.Latency(f[archive.LagP99Us.Name]))
	}
	return all
}

// saturated reports whether an open loop has offered more than the target can do.
func (m measured) saturated() bool {
	return float64(m.Dropped) > saturatedDropShare*float64(m.Offered) || float64(m.Completed) < saturatedThroughput*float64(m.Offered)
}

// series is what the timeline says of each second that lies wholly in the repeat.
func (m measured) series() archive.Series {
	n := int((m.Warmup + m.Length) / time.Second)
	columns := map[string]archive.Values{}
	add := func(metric archive.Metric, x float64) {
		columns[metric.Name] = append(columns[metric.Name], x)
	}
	for _, metric := range []archive.Metric{archive.OpsPerSec, archive.FailedPerSec, archive.MeanUs, archive.P50Us, archive.P99Us, archive.MaxUs} {
		columns[metric.Name] = archive.Values{}
	}
	for i := range n {
		from := time.Duration(i) * time.Second
		completed, failed := m.Timeline.Counts(from, from+time.Second)
		add(archive.OpsPerSec, float64(completed))
		add(archive.FailedPerSec, float64(failed))
		l := m.Timeline.Second(i)
		if l.Count() == 0 {
			for _, metric := range []archive.Metric{archive.MeanUs, archive.P50Us, archive.P99Us, archive.MaxUs} {
				add(metric, math.NaN())
			}
			continue
		}
		add(archive.MeanUs, report.Micros(l.Mean()))
		add(archive.P50Us, report.Micros(l.Quantile(0.5)))
		add(archive.P99Us, report.Micros(l.Quantile(0.99)))
		add(archive.MaxUs, report.Micros(l.Max()))
	}
	return archive.Series{Source: archive.SourceAll, IntervalSec: 1, Columns: columns}
}

// histograms writes the latencies second by second, and the whole of what the open loop measures besides.
func (m measured) histograms(w *archive.Writer, name string) (_ string, err error) {
	if w == nil || m.Timeline == nil {
		return "", nil
	}
	log, err := w.Histograms(name, m.Began)
	if err != nil {
		return "", err
	}
	defer log.Discard()
	if m.Offers {
		end := m.Began.Add(m.Warmup + m.Length) // intervals are in the order of their start, so these begin with the repeat
		for tag, l := range map[string]*load.Latencies{archive.TagService: m.Service, archive.TagLag: m.Lag} {
			if err := log.Add(archive.Interval{Tag: m.Operation + tag, Start: m.Began, End: end, Histogram: l.Histogram()}); err != nil {
				return "", err
			}
		}
	}
	for i := range int((m.Timeline.End() + time.Second - 1) / time.Second) {
		l := m.Timeline.Second(i)
		if l.Count() == 0 {
			continue
		}
		at := m.Began.Add(time.Duration(i) * time.Second)
		if err := log.Add(archive.Interval{Tag: m.Operation, Start: at, End: at.Add(time.Second), Histogram: l.Histogram()}); err != nil {
			return "", err
		}
	}
	return log.Close()
}
