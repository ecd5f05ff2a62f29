package recipe

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/wal"
)

// flush is when an append may count: each durability mode, with and without the leader's clamp, on fast and
// on slow disks, with small and with large values. Recipe ratis repeats the source's loads; this one takes
// the question apart.
//
// A write is answered when a majority has it on disk. The clamp (as in Apache Ratis) makes the commit index
// the lesser of what a majority has flushed and what the leader has flushed. A write then takes the longer of
// two times: the leader's flush, and a round trip with a follower's flush. Whether the leader's append worker
// waits for its flush makes no difference to that. So group gains nothing beside sync, which already flushes
// everything queued at once, and only unsafe modes, which leave the disk out, seem to help.
//
// What a correct flush gains lies elsewhere. Off the consensus loop, the loop continues while a disk works,
// so batches grow. Without the clamp the leader's disk is one of three: where it is the slow one, writes
// take the pace of the followers. group-delay trades latency for fewer flushes. With large values the modes
// come together, since it takes longer to move the bytes than to flush them.
var flush = design[flushScale]{
	name:     "flush",
	question: "When may an append count, and what does it cost to wait for the leader's disk?",
	source:   "Apache Ratis, RATIS-1545: why a safe asynchronous flush seemed useless there",
	hosts:    3,
	plan:     scaleFlush,
	about:    func(c flushScale) time.Duration { return times(c.rounds*len(c.points()), c.l.about()+aboutCluster) },
	needMiB:  needMiB(6000, 4000),
	omits: omissions{
		full:   "two of three rounds, windows of 5 s",
		always: []string{"objects beside the log: recipe ratis has them"},
	},
	measure: func(ctx context.Context, s *run, c flushScale) error { return s.MeasureAll(ctx, c.points(), c.rounds) },
	judge:   judgeFlush,
}

const (
	flushClients = 10 // as in RATIS-1545
	flushDelay   = 10 * time.Millisecond
)

// logRule says when an append counts.
type logRule struct {
	name string
	mode wal.Mode
	of   pipeline.Pipeline
}

// flushModes are the rules of one disk and one size of values.
var flushModes = []logRule{
	{"sync, in the consensus loop", wal.ModeSync, pipeline.Basic{}},
	{"sync, clamped", wal.ModeSync, pipeline.Clamped{}},
	{"sync", wal.ModeSync, pipeline.Async{}},
	{"group, clamped", wal.ModeGroup, pipeline.Clamped{}},
	{"group", wal.ModeGroup, pipeline.Async{}},
	{"group-delay 3ms, clamped", wal.ModeGroupDelay(3*time.Millisecond, 0, 0), pipeline.Clamped{}},
	{"group-delay 3ms", wal.ModeGroupDelay(3*time.Millisecond, 0, 0), pipeline.Async{}},
	{"unsafe-interval 3s, clamped", wal.ModeUnsafeInterval(3*time.Second, 0), pipeline.Clamped{}},
	{"unsafe-interval 3s", wal.ModeUnsafeInterval(3*time.Second, 0), pipeline.Async{}},
}

// flushDisks say which of the disks are slow.
var flushDisks = []struct {
	name        string
	all, leader time.Duration
}{{"fast disks", 0, 0}, {"slow disks", flushDelay, 0}, {"the leader's disk slow", 0, flushDelay}}

// flushScale is how much of flush is made.
type flushScale struct {
	l      lengths
	sizes  []int
	rounds int
}

func scaleFlush(size Size) flushScale {
	return flushScale{
		l: pick(size, orLong(size, lengths{500 * time.Millisecond, 1500 * time.Millisecond, time.Second}, lengths{time.Second, 10 * time.Second, 5 * time.Second}),
			lengths{200 * time.Millisecond, 400 * time.Millisecond, 500 * time.Millisecond}, lengths{0, 10 * time.Millisecond, 50 * time.Millisecond}),
		sizes:  pick(size, []int{1 << 10, 1 << 20}, []int{1 << 10, 1 << 20}, []int{256}),
		rounds: pick(size, orLong(size, 1, 3), 1, 1),
	}
}

// points are in the order of the report.
func (c flushScale) points() (all []experiment.Point) {
	for _, bytes := range c.sizes {
		for disk := range flushDisks {
			for mode := range flushModes {
				all = append(all, c.point(mode, disk, bytes))
			}
		}
	}
	return all
}

func (c flushScale) point(mode, disk, bytes int) experiment.Point {
	m, d := flushModes[mode], flushDisks[disk]
	setup := three()
	setup.Durability, setup.Pipeline, setup.FsyncDelay, setup.LeaderFsyncDelay = m.mode, m.of, d.all, d.leader
	p := c.l.of(experiment.Point{Setup: setup, ValueBytes: bytes, Clients: flushClients}).Named(experiment.PipelineName(m.of))
	p.Name = flushPoint(mode, disk, bytes)
	p.Labels["disk"] = d.name
	return p
}

func flushPoint(mode, disk, bytes int) string {
	return fmt.Sprintf("%s, %s, %s", report.Size(bytes), flushDisks[disk].name, flushModes[mode].name)
}

// flushRatios divide the throughput of one mode by that of another: indexes into flushModes.
var flushRatios = []struct {
	what     string
	of, over int
}{
	{"group by sync, both clamped (RATIS-1545's question)", 3, 1},
	{"group by sync in the consensus loop", 4, 0},
	{"group without the clamp by with it", 4, 3},
	{"group-delay by group, no clamp", 6, 4},
	{"unsafe-interval by group, no clamp", 8, 4},
}

func judgeFlush(s *experiment.Session, c flushScale) {
	for _, bytes := range c.sizes {
		for disk, d := range flushDisks {
			for _, r := range flushRatios {
				refer(s, "RATIS-1545", fmt.Sprintf("%s, %s: %s", report.Size(bytes), d.name, r.what), nil, archive.OpsPerSec,
					flushPoint(r.of, disk, bytes), flushPoint(r.over, disk, bytes), "the source has no such figure")
			}
		}
	}
	of := func(mode, disk int) string { return flushPoint(mode, disk, c.sizes[0]) }
	judge(s,
		demand{"where the leader's disk is slow, a correct flush is faster without the clamp", archive.OpsPerSec, of(4, 2), of(3, 2), chosen(atLeast(1.5, " ×"))},
		demand{"on slow disks a correct flush is not slower than sync in the consensus loop", archive.OpsPerSec, of(4, 1), of(0, 1), chosen(atLeast(0.95, " ×"))})
}
