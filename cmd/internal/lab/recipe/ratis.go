package recipe

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/wal"
)

// ratis is the comparison of Apache Ratis's flushes (RATIS-1545): objects beside the log and small records in
// it, from ten threads, under each rule for when a record counts. It also writes small values alone, on fast
// and on slow disks, where the rules are what differs.
var ratis = design[ratisScale]{
	name:     "ratis",
	question: "What does an asynchronous flush of the log gain, safe and unsafe, with large objects beside the log?",
	source:   "Apache Ratis, RATIS-1545 and pull request 616",
	hosts:    3,
	plan:     scaleRatis,
	about:    aboutRatis,
	needMiB:  ratisNeedMiB,
	omits: omissions{
		full:   "one of three rounds of records alone, 290 of 300 objects of 128 MB: on this disk they alone take half an hour",
		short:  "objects of 128 MB, 270 of 300 objects of 32 MB, two of three rounds",
		always: []string{fmt.Sprintf("Ozone itself: the records are %d bytes, and no containers are kept; a cluster keeps %d MiB of objects on each host, then another one goes on", ratisRecord, ratisKeep>>20)},
	},
	metrics: []archive.Metric{objectMean, recordMean, objectBytes},
	steps:   func(c ratisScale) int { return len(ratisModes) * (c.rounds*2 + len(c.bulks)) },
	measure: measureRatis,
	judge:   func(s *experiment.Session, c ratisScale) { judgeRatis(s, c.bulks[0].bytes) },
}

const (
	ratisThreads = 10
	ratisRecord  = 256 // bytes of the record about an object
	ratisFsync   = 10 * time.Millisecond

	// ratisKeep is how much one cluster keeps of its objects on each host. What is more goes to a new
	// cluster, and the old one is removed first: 300 objects of 128 MB on three hosts would be 115 GB.
	ratisKeep = 4 << 30
)

var ratisModes = []logRule{
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

// ratisScale is how much of ratis is made.
type ratisScale struct {
	l      lengths
	rounds int // of records alone
	bulks  []ratisBulk
}

// ratisBulk is a number of objects of a size.
type ratisBulk struct {
	count int
	bytes int64
}

func scaleRatis(size Size) ratisScale {
	return ratisScale{
		l: pick(size, orLong(size, lengths{500 * time.Millisecond, 1500 * time.Millisecond, 1500 * time.Millisecond}, lengths{2 * time.Second, 15 * time.Second, 10 * time.Second}),
			lengths{300 * time.Millisecond, time.Second, 1500 * time.Millisecond}, lengths{0, 10 * time.Millisecond, 100 * time.Millisecond}),
		rounds: pick(size, orLong(size, 2, 3), 1, 1),
		bulks: pick(size, orLong(size, []ratisBulk{{300, 32 << 20}, {10, 128 << 20}}, []ratisBulk{{300, 32 << 20}, {300, 128 << 20}}),
			[]ratisBulk{{30, 32 << 20}}, []ratisBulk{{4, 64 << 10}}),
	}
}

func aboutRatis(c ratisScale) time.Duration {
	total := times(c.rounds*len(ratisModes)*2, c.l.about()+aboutCluster)
	for _, b := range c.bulks {
		const hosts, diskRate = 3, 400e6
		total += times(len(ratisModes), aboutCluster+time.Duration(float64(b.bytes)*float64(b.count)*hosts/diskRate*float64(time.Second)))
	}
	return total
}

// ratisNeedMiB returns the objects that one cluster keeps on three hosts, and a GiB.
func ratisNeedMiB(size Size) int {
	most := int64(0)
	for _, b := range scaleRatis(size).bulks {
		most = max(most, min(int64(b.count)*b.bytes, ratisKeep+b.bytes))
	}
	return int(3*most>>20) + pick(size, 1024, 1024, 64)
}

func measureRatis(ctx context.Context, s *run, c ratisScale) error {
	indexes := make([]int, len(ratisModes))
	for i := range indexes {
		indexes[i] = i
		for _, delay := range []time.Duration{0, ratisFsync} { // the order of the report
			pt := ratisPoint(i, delay, c.l)
			s.Point(pt.Name, pt.Labels)
		}
	}
	err := experiment.Shuffled(s.Session, c.rounds, indexes, func(_ int, i int) error {
		for _, delay := range []time.Duration{0, ratisFsync} {
			pt := ratisPoint(i, delay, c.l)
			s.step(pt.Name, c.l.most+c.l.length)
			r, err := s.Measure(ctx, pt)
			if err != nil {
				return err
			}
			s.Progress.PointDone(experiment.Row(pt, r))
		}
		return nil
	})
	for _, b := range c.bulks {
		if err != nil {
			return err
		}
		err = experiment.Shuffled(s.Session, 1, indexes, func(_ int, i int) error {
			return s.trial(ratisObjects(i, b.bytes), time.Minute, func() error { return ratisUpload(ctx, s.Session, i, b) })
		})
	}
	return err
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

// ratisUpload measures objects beside the log in one mode, in as many clusters as keep them.
func ratisUpload(ctx context.Context, s *experiment.Session, i int, of ratisBulk) error {
	m := ratisModes[i]
	var sum bulkResult
	for left, most := of.count, max(int(ratisKeep/of.bytes), ratisThreads); left > 0; left -= most {
		err := s.InFreshDir(func(dir string) error {
			s.Progress.Phase(archive.PhaseMeasure)
			r, err := objectsBulk{
				Objects: min(left, most), Threads: ratisThreads, ObjectBytes: of.bytes, ValueBytes: ratisRecord, Hosts: 3, Durability: m.mode, Pipeline: m.of, Seed: s.Seed,
			}.Run(ctx, dir)
			sum.Add(r)
			return err
		})
		if err != nil {
			return err
		}
	}
	labels := labelled(ratisPoint(i, 0, lengths{}).Setup, experiment.PipelineName(m.of), "object_bytes", strconv.FormatInt(of.bytes, 10), archive.LabelOperation, "upload")
	n, seconds := float64(of.count), sum.Took.Seconds()
	return s.Add(ratisObjects(i, of.bytes), labels, archive.Repeat{
		Seed: s.Seed, Began: sum.Began.UTC(), Errors: map[string]uint64{},
		Phases: []archive.Phase{{Name: archive.PhaseMeasure, ToSec: seconds}},
		Figures: map[string]float64{
			archive.OpsPerSec.Name: report.Ratio(n, seconds), objectBytes.Name: report.Ratio(n*float64(of.bytes), seconds), archive.DurationSec.Name: seconds,
			objectMean.Name: report.Micros(sum.Object.Mean()), recordMean.Name: report.Micros(sum.Command.Mean()), archive.Ops.Name: n,
			archive.FsyncsPerOp.Name: report.Ratio(float64(sum.Counters.Fsyncs), n), archive.CPUUsPerOp.Name: report.Ratio(report.Micros(sum.CPU), n),
		},
	})
}

func judgeRatis(s *experiment.Session, bytes int64) {
	alone := func(i int) string { return ratisPoint(i, ratisFsync, lengths{}).Name }
	objects := func(i int) string { return ratisObjects(i, bytes) }
	for _, r := range []struct {
		what   string
		theirs *float64
		of, by string
		note   string
	}{
		{"unsafe flush by sync, asynchronous writes: throughput", new(1.35), alone(3), alone(0), "the source says more than 35 %; ours: records alone on slow disks"},
		{"unsafe flush every 3 s by sync, streaming of objects: throughput", new(1.25), objects(4), objects(0), "the source says 25 %"},
		{"safe asynchronous flush by sync", new(1.0), alone(2), alone(0), "the source says almost equal, without a number"},
		{"correct flush without the clamp by sync", nil, alone(1), alone(0), "not in the source"},
	} {
		refer(s, "RATIS-1545, Ozone", r.what, r.theirs, archive.OpsPerSec, r.of, r.by, r.note)
	}
	judge(s,
		demand{"a correct asynchronous flush is not slower than sync, slow disks", archive.OpsPerSec, alone(1), alone(0), atLeast(0.95, " ×")},
		demand{"objects beside the log: the correct flush by unsafe-interval 3s", archive.OpsPerSec, objects(1), objects(4), atLeast(0.8, " ×")})
}
