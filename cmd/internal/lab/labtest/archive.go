// WriteArchive makes archives for tests: runs that look like those of a machine, with figures that
// follow from a seed. The model is a server with a fixed capacity: latency grows as the load comes close to
// it, some repeats are slower than others, and the collector pauses once in a while.

package labtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// Shape is what the made run is like.
type Shape struct {
	Seed      uint64
	Recipe    string
	Pipelines []string
	Rates     []float64
	Repeats   int
	Seconds   int     // of the measurement
	Slower    float64 // factor on all latencies and processor times; 0 means 1
	// NoHistograms leaves the files of latencies out: each costs two fsyncs, and many tests need none.
	NoHistograms bool
	Change       func(*archive.Run, *archive.Environments)
}

// Sweep is a small run with all that reports show.
func Sweep() Shape {
	return Shape{
		Seed: 1, Recipe: "rafttoy", Pipelines: []string{"basic", "parallel", "async"},
		Rates: []float64{1000, 2000, 4000, 8000, 16000}, Repeats: 6, Seconds: 10,
	}
}

// ArchiveBegan is when all made runs began.
func ArchiveBegan() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// ArchiveEnv is the environment of all made runs.
func ArchiveEnv() archive.Environments {
	return archive.Environments{Load: archive.Environment{
		Environment: lab.Environment{
			Time: ArchiveBegan(), OS: "linux/amd64", Kernel: "6.1.0", CPU: "Example CPU @ 3.0 GHz", Cores: 4, MemoryMiB: 16000,
			GoVersion: "go1.26.0", GoMaxProcs: 4, Revision: "0123456789ab", Dir: "/data", Filesystem: "ext4", Load1: 0.2,
		},
		Governor: "performance", ThreadsCore: 2, Device: "vda", MountOptions: "rw,relatime", DiskScheduler: "mq-deadline",
		ClockSource: "tsc", ClockSynced: true, GOGC: "100", LoadDuring: 3.1,
		Disk:    &archive.Disk{Fsyncs: 2000, FsyncP50Us: 130, FsyncP99Us: 420, FsyncMaxUs: 3100, WriteBytesSec: 1.1e9},
		Network: &archive.Network{Path: "loopback", RoundTrips: 10000, RTTP50Us: 21, RTTP99Us: 64},
		Memory:  &archive.Memory{CRCBytesSec: 1.9e10, CopyBytesSec: 1.2e10},
	}}
}

// WriteArchive writes the archive of a made run into dir.
func WriteArchive(t testing.TB, dir string, s Shape) {
	t.Helper()
	w, err := archive.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := maker{Shape: s, t: t, w: w, rng: rand.New(rand.NewPCG(s.Seed, 0))}
	if m.Slower == 0 {
		m.Slower = 1
	}
	r, env := m.run(), ArchiveEnv()
	if s.Change != nil {
		s.Change(r, &env)
	}
	if err := w.Save(r, env); err != nil {
		t.Fatal(err)
	}
}

type maker struct {
	Shape
	t     testing.TB
	w     *archive.Writer
	rng   *rand.Rand
	order int
}

var capacity = map[string]float64{"basic": 6_000, "parallel": 11_000, "async": 19_000, "bare": 24_000}

func (m *maker) run() *archive.Run {
	r := &archive.Run{
		Recipe: m.Recipe, Summary: "Which pipeline gives the lowest latency at each throughput?",
		Command: []string{"millrace", "lab", "run", m.Recipe, "quick"}, Config: map[string]string{"nodes": "3", "value-bytes": "1024"},
		Seed: m.Seed, Began: ArchiveBegan(), Ended: ArchiveBegan().Add(10 * time.Minute), Omitted: []string{"five nodes"},
	}
	for _, pipeline := range m.Pipelines {
		for _, rate := range m.Rates {
			p := archive.Point{
				Name: fmt.Sprintf("%s, %.0f/s", pipeline, rate),
				Labels: map[string]string{
					archive.LabelPipeline: pipeline, archive.LabelRate: strconv.FormatFloat(rate, 'f', -1, 64),
					archive.LabelNodes: "3", archive.LabelValueBytes: "1024", archive.LabelTransport: "tcp",
				},
			}
			for i := range m.Repeats {
				p.Repeats = append(p.Repeats, m.repeat(fmt.Sprintf("%s-%.0f-%d", pipeline, rate, i), pipeline, rate))
			}
			if rate > capacity[pipeline] {
				p.Warnings = append(p.Warnings, archive.Warning{Code: archive.WarnSaturated, Text: fmt.Sprintf("%.0f/s were offered, and %s can do %.0f/s", rate, pipeline, capacity[pipeline])})
			}
			r.Points = append(r.Points, p)
		}
	}
	first := r.Points[0].Name
	r.Criteria = []archive.Criterion{
		{Name: "p99 at the lowest rate", Point: first, Limit: "≤ 5 ms", Value: new(1200.0), Unit: archive.UnitMicroseconds, Verdict: archive.Pass},
		{Name: "throughput of async by basic", Limit: "≥ 4", Value: new(3.1), Unit: archive.UnitRatio, Verdict: archive.Fail, Note: "the disk is shared"},
		{Name: "five nodes by three", Limit: "≥ 0.7", Unit: archive.UnitRatio, Verdict: archive.NotMeasured, Note: "the short run leaves five nodes out"},
	}
	r.References = []archive.Reference{
		{Source: "the source's figure 1", What: "throughput of basic at 5 ms", Unit: archive.UnitBytesPerSecond, Theirs: new(16e6), Ours: new(5.9e6), Point: first},
		{Source: "the source's text", What: "p99 with a slow disk", Unit: archive.UnitMicroseconds, Ours: new(1300.0), Note: "the source gives no number: \"noticeably worse\""},
	}
	return r
}

const warmupSeconds = 2

// repeat measures, so to say, one point once.
func (m *maker) repeat(name, pipeline string, rate float64) archive.Repeat {
	began := ArchiveBegan().Add(time.Duration(m.order) * 20 * time.Second)
	log := m.histograms(name, began)
	luck := 1 + 0.04*m.rng.NormFloat64()
	done := min(rate, capacity[pipeline]) * (1 - 0.01*m.rng.Float64())
	total := hdrhistogram.New(100, int64(time.Minute), 3)
	columns := map[string]archive.Values{}
	add := func(metric archive.Metric, v float64) { columns[metric.Name] = append(columns[metric.Name], v) }
	for second := range warmupSeconds + m.Seconds {
		slow := m.Slower * luck
		if second == warmupSeconds+m.Seconds/2 {
			slow *= 3 // a pause
		}
		h := m.second(pipeline, rate, slow)
		start := began.Add(time.Duration(second) * time.Second)
		log.add(archive.Interval{Tag: "write", Start: start, End: start.Add(time.Second), Histogram: h})
		if second >= warmupSeconds {
			total.Merge(h)
		}
		add(archive.OpsPerSec, done*(1+0.02*m.rng.NormFloat64())/max(1, slow/2))
		add(archive.P50Us, quantile(h, 50))
		add(archive.P99Us, quantile(h, 99))
		add(archive.CPUCores, min(4, done*m.Slower*90e-6))
		add(archive.RSSBytes, 80e6+2e6*float64(second))
		add(archive.HeapBytes, 30e6+10e6*float64(second%3))
		add(archive.FsyncsPerSec, 3*min(done, 4000))
	}
	columns[archive.P99Us.Name][0] = math.NaN()
	m.order++
	end := float64(warmupSeconds + m.Seconds)
	return archive.Repeat{
		Order: m.order - 1, Seed: m.rng.Uint64(), Began: began, Histograms: log.close(),
		Phases: []archive.Phase{{Name: archive.PhaseWarmup, ToSec: warmupSeconds}, {Name: archive.PhaseMeasure, FromSec: warmupSeconds, ToSec: end}},
		Figures: map[string]float64{
			archive.OpsPerSec.Name: done, archive.Ops.Name: math.Round(done * float64(m.Seconds)),
			archive.MeanUs.Name: total.Mean() / 1e3, archive.P50Us.Name: quantile(total, 50), archive.P90Us.Name: quantile(total, 90),
			archive.P99Us.Name: quantile(total, 99), archive.P999Us.Name: quantile(total, 99.9), archive.MaxUs.Name: float64(total.Max()) / 1e3,
			archive.CPUUsPerOp.Name: 90 * m.Slower * luck, archive.AllocsPerOp.Name: 3.1, archive.FsyncsPerOp.Name: 3 * min(done, 4000) / done,
			archive.RSSBytes.Name: 100e6, archive.GCPauseUs.Name: 240 * luck,
		},
		Errors: map[string]uint64{"timeout": uint64(m.order % 3)},
		Series: []archive.Series{{Source: archive.SourceAll, IntervalSec: 1, Columns: columns}},
	}
}

// histograms is a file of latencies, or none.
type histograms struct {
	t   testing.TB
	log *archive.HistogramLog
}

func (m *maker) histograms(name string, began time.Time) histograms {
	if m.NoHistograms {
		return histograms{}
	}
	log, err := m.w.Histograms(name, began)
	if err != nil {
		m.t.Fatal(err)
	}
	return histograms{m.t, log}
}

func (h histograms) add(i archive.Interval) {
	if h.log == nil {
		return
	}
	if err := h.log.Add(i); err != nil {
		h.t.Fatal(err)
	}
}

func (h histograms) close() (name string) {
	if h.log == nil {
		return ""
	}
	name, err := h.log.Close()
	if err != nil {
		h.t.Fatal(err)
	}
	return name
}

// second is the latencies of one second: log-normal, around the time that a queue before the capacity takes.
func (m *maker) second(pipeline string, rate, slow float64) *hdrhistogram.Histogram {
	h := hdrhistogram.New(100, int64(time.Minute), 3)
	busy := min(0.97, rate/capacity[pipeline])
	typical := 600e3 / (1 - busy) * slow
	for range 400 {
		_ = h.RecordValue(int64(min(typical*math.Exp(0.35*m.rng.NormFloat64()), float64(50*time.Second))))
	}
	return h
}

func quantile(h *hdrhistogram.Histogram, percent float64) float64 {
	return float64(h.ValueAtQuantile(percent)) / 1e3
}
