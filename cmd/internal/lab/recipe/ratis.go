package recipe

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/objects"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/wal"
)

// ratis is the comparison of Apache Ratis's flushes (RATIS-1545): objects beside the log and small records in
// it, from ten threads, under each rule for when a record counts. It also writes small values alone, on fast
// and on slow disks, where the rules are what differs.
var ratis = Recipe{
	Name:     "ratis",
	Question: "What does an asynchronous flush of the log gain, safe and unsafe, with large objects beside the log?",
	Source:   "Apache Ratis, RATIS-1545 and pull request 616",
	Hosts:    3,
	NeedMiB:  func(s Size) int { return pick(s, 20_000, 5000, 128) },
	Run:      runRatis,
}

const (
	ratisThreads = 10
	ratisRecord  = 256 // bytes of the record about an object
	ratisFsync   = 10 * time.Millisecond
)

var ratisModes = []struct {
	name string
	mode wal.Mode
	of   pipeline.Pipeline
}{
	{"sync", wal.ModeSync, pipeline.Clamped{}},
	{"group", wal.ModeGroup, pipeline.Async{}},
	{"group, clamped", wal.ModeGroup, pipeline.Clamped{}},
	{"unsafe-os", wal.ModeUnsafeOS, pipeline.Clamped{}},
	{"unsafe-interval 3s", wal.ModeUnsafeInterval(3*time.Second, 0), pipeline.Clamped{}},
}

// Metrics of objects.
var (
	objectMean  = archive.Metric{Name: "object_mean_us", Unit: archive.UnitMicroseconds, Better: archive.BetterLower, Meaning: "mean time of an upload and its record"}
	recordMean  = archive.Metric{Name: "record_mean_us", Unit: archive.UnitMicroseconds, Better: archive.BetterLower, Meaning: "mean time of the record about an object"}
	objectBytes = archive.Metric{Name: "object_bytes_per_sec", Unit: archive.UnitBytesPerSecond, Better: archive.BetterHigher, Meaning: "uploaded a second, each byte counted once"}
)

func runRatis(ctx context.Context, s *experiment.Session, size Size) error {
	l := pick(size, lengths{2 * time.Second, 15 * time.Second, 10 * time.Second}, lengths{300 * time.Millisecond, time.Second, 1500 * time.Millisecond},
		lengths{0, 10 * time.Millisecond, 100 * time.Millisecond})
	rounds := pick(size, 3, 1, 1)
	count := pick(size, 300, 30, 4)
	sizes := pick(size, []int64{32 << 20, 128 << 20}, []int64{4 << 20}, []int64{64 << 10})
	if size != Full {
		s.Omit("objects of 32 MB and 128 MB, 270 of 300 objects, two of three rounds")
	}
	s.Omit("Ozone itself: the records are %d bytes, and no containers are kept", ratisRecord)
	s.Declare(objectMean, recordMean, objectBytes)
	p := begin(s, rounds*len(ratisModes)*(len(sizes)+2))
	defer p.end()
	indexes := make([]int, len(ratisModes))
	for i := range indexes {
		indexes[i] = i
	}
	err := experiment.Shuffled(s, rounds, indexes, func(_ int, i int) error {
		for _, delay := range []time.Duration{0, ratisFsync} {
			pt := ratisPoint(i, delay, l)
			p.step(pt.Name, l.most+l.length)
			r, err := s.Measure(ctx, pt)
			if err != nil {
				return err
			}
			s.Progress.PointDone(experiment.Row(pt, r))
		}
		for _, bytes := range sizes {
			p.step(ratisObjects(i, bytes), time.Minute)
			if err := ratisBulk(ctx, s, i, bytes, count); err != nil {
				return fmt.Errorf("%s: %w", ratisObjects(i, bytes), err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	judgeRatis(s, sizes[0])
	return nil
}

func ratisPoint(i int, delay time.Duration, l lengths) experiment.Point {
	m := ratisModes[i]
	setup := three()
	setup.Durability, setup.Pipeline, setup.FsyncDelay = m.mode, m.of, delay
	p := l.of(experiment.Point{Setup: setup, ValueBytes: ratisRecord, Clients: ratisThreads}).Named(experiment.PipelineName(m.of))
	disk := "fast disks"
	if delay > 0 {
		disk = "slow disks"
	}
	p.Name = fmt.Sprintf("%s, records alone, %s", m.name, disk)
	return p
}

func ratisObjects(i int, bytes int64) string {
	return fmt.Sprintf("%s, objects of %s", ratisModes[i].name, report.Size(int(bytes)))
}

// ratisBulk measures objects beside the log in one mode.
func ratisBulk(ctx context.Context, s *experiment.Session, i int, bytes int64, count int) error {
	m := ratisModes[i]
	return s.InFreshDir(func(dir string) error {
		s.Progress.Phase(archive.PhaseMeasure)
		r, err := objects.Bulk{
			Objects: count, Threads: ratisThreads, ObjectBytes: bytes, ValueBytes: ratisRecord, Hosts: 3, Durability: m.mode, Pipeline: m.of, Seed: s.Seed,
		}.Run(ctx, dir)
		if err != nil {
			return err
		}
		labels := experiment.Labels(ratisPoint(i, 0, lengths{}).Setup, experiment.PipelineName(m.of))
		labels["object_bytes"], labels[archive.LabelOperation] = strconv.FormatInt(bytes, 10), "upload"
		n, seconds := float64(count), r.Took.Seconds()
		return s.Add(ratisObjects(i, bytes), labels, archive.Repeat{
			Seed: s.Seed, Began: r.Began.UTC(), Errors: map[string]uint64{},
			Phases: []archive.Phase{{Name: archive.PhaseMeasure, ToSec: seconds}},
			Figures: map[string]float64{
				archive.OpsPerSec.Name: report.Ratio(n, seconds), objectBytes.Name: report.Ratio(n*float64(bytes), seconds), archive.DurationSec.Name: seconds,
				objectMean.Name: report.Micros(r.Object.Mean()), recordMean.Name: report.Micros(r.Command.Mean()),
				archive.FsyncsPerOp.Name: report.Ratio(float64(r.Counters.Fsyncs), n), archive.CPUUsPerOp.Name: report.Ratio(report.Micros(r.CPU), n),
			},
		})
	})
}

func judgeRatis(s *experiment.Session, bytes int64) {
	ops := archive.OpsPerSec.Name
	alone := func(i int) string { return ratisPoint(i, ratisFsync, lengths{}).Name }
	ratio := func(of, by string) *float64 {
		if x, ok := s.Ratio(ops, of, by); ok {
			return &x
		}
		return nil
	}
	for _, r := range []struct {
		what   string
		theirs *float64
		ours   *float64
		note   string
	}{
		{"unsafe flush by sync, asynchronous writes: throughput", new(1.35), ratio(alone(3), alone(0)), "the source says more than 35 %; ours: records alone on slow disks"},
		{"unsafe flush every 3 s by sync, streaming of objects: throughput", new(1.25), ratio(ratisObjects(4, bytes), ratisObjects(0, bytes)), "the source says 25 %"},
		{"safe asynchronous flush by sync", new(1.0), ratio(alone(2), alone(0)), "the source says almost equal, without a number"},
		{"correct flush without the clamp by sync", nil, ratio(alone(1), alone(0)), "not in the source"},
	} {
		s.Archive.References = append(s.Archive.References, archive.Reference{Source: "RATIS-1545, Ozone", What: r.what, Unit: archive.UnitRatio, Theirs: r.theirs, Ours: r.ours, Note: r.note})
	}
	const missing = "one of the two points was not measured"
	value, ok := s.Ratio(ops, alone(1), alone(0))
	s.Judge(experiment.Criterion{Name: "a correct asynchronous flush is not slower than sync, slow disks", Point: alone(1), Limit: "≥ 0.95 ×", Unit: archive.UnitRatio, Holds: experiment.AtLeast(0.95)}, value, ok, missing)
	value, ok = s.Ratio(ops, ratisObjects(1, bytes), ratisObjects(4, bytes))
	s.Judge(experiment.Criterion{Name: "objects beside the log: the correct flush by unsafe-interval 3s", Point: ratisObjects(1, bytes), Limit: "≥ 0.8 ×", Unit: archive.UnitRatio, Holds: experiment.AtLeast(0.8)}, value, ok, missing)
}
