package recipe

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// b5 is compaction: what those who write feel while one host, or all, take a snapshot, and while a member
// that was away gets one. The measurement is that of snapshotssections.go; this file gives it the form of a
// recipe.
var b5 = design[b5Scale]{
	name:     "b5",
	question: "How long does compaction take, and what do clients feel meanwhile?",
	source:   "dissertation, chapter 10, open question: compaction",
	hosts:    3,
	plan:     scaleB5,
	about:    aboutB5,
	needMiB:  needMiBB5,
	omits: omissions{
		full:   "states of 10 MB; the load of 90 %; two of three rounds; windows of 10 s",
		short:  "states of 10 MB, 100 MB and 1 GB; the load of 90 %; two of three rounds; windows of 10 s",
		always: []string{"values of other sizes than 1 KiB; peak memory; the time to recycle segments; a bound for the bytes a second that a host writes of its own snapshot, which it does not have"},
	},
	metrics: snapshotMetrics,
	measure: func(ctx context.Context, s *run, c b5Scale) error {
		return c.each(func(state int64, percent int) error {
			plan := c.plan(state, percent)
			return measureTogether(ctx, s, plan, func(_ int, row snapshotsResult, began time.Time, partial bool) {
				putSnapshots(s.Session, plan, row, began, partial)
			})
		})
	},
	judge: func(s *experiment.Session, c b5Scale) {
		_ = c.each(func(state int64, percent int) error { judgeTaken(s, state, percent); return nil })
	},
}

// Metrics of a snapshot.
var (
	viewPause  = archive.Metric{Name: "view_pause_us", Unit: archive.UnitMicroseconds, Better: archive.BetterLower, Meaning: "longest call that takes the view, on the leader: the apply loop stands still for it"}
	applyPause = archive.Metric{Name: "apply_pause_us", Unit: archive.UnitMicroseconds, Better: archive.BetterLower, Meaning: "longest time without Apply around that call: with the wait for what is committed next, which is the disk's"}
	otherPause = archive.Metric{Name: "other_pause_us", Unit: archive.UnitMicroseconds, Better: archive.BetterNeither, Meaning: "longest time without Apply at any other time"}
	tookSec    = archive.Metric{Name: "took_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "of one snapshot, until it is published or installed"}
	stateBytes = archive.Metric{Name: "state_bytes", Unit: archive.UnitBytes, Better: archive.BetterNeither, Meaning: "of the snapshot"}
	fsyncP99   = archive.Metric{Name: "log_fsync_p99_us", Unit: archive.UnitMicroseconds, Better: archive.BetterLower, Meaning: "of the leader's log"}
	fsyncRatio = archive.Metric{Name: "log_fsync_p99_ratio", Unit: archive.UnitRatio, Better: archive.BetterLower, Meaning: "p99 of the log's fsyncs by that without a snapshot"}
	stateRate  = archive.Metric{Name: "state_bytes_per_sec", Unit: archive.UnitBytesPerSecond, Better: archive.BetterHigher, Meaning: "of snapshots that were written or sent"}
)

var snapshotMetrics = []archive.Metric{viewPause, applyPause, otherPause, fsyncP99, fsyncRatio, tookSec, stateBytes, stateRate, experiment.RateRatio}

// b5Scale is how much of b5 is made.
type b5Scale struct {
	states []int64
	loads  []int
	send   int64 // bytes a second of a transfer
	warmup time.Duration
	length time.Duration
	runs   int
}

func scaleB5(size Size) b5Scale {
	return b5Scale{
		states: pick(size, orLong(size, []int64{100 << 20, 1 << 30}, []int64{10 << 20, 100 << 20, 1 << 30}), []int64{64 << 20}, []int64{1 << 20}),
		loads:  pick(size, orLong(size, []int{50}, []int{50, 90}), []int{50}, []int{50}),
		send:   pick(size, int64(64<<20), 32<<20, 8<<20),
		warmup: pick(size, orLong(size, time.Second, 2*time.Second), 500*time.Millisecond, 10*time.Millisecond),
		length: pick(size, orLong(size, 3*time.Second, 10*time.Second), 2*time.Second, 50*time.Millisecond),
		runs:   pick(size, orLong(size, 1, 3), 1, 1),
	}
}

// aboutB5 takes a disk that writes and reads 200 MB a second for what is as long as the state.
func aboutB5(c b5Scale) time.Duration {
	total := time.Duration(0)
	for _, state := range c.states {
		written := time.Duration(float64(state) / 200e6 * float64(time.Second))
		sent := time.Duration(float64(state) / float64(c.send) * float64(time.Second))
		windows := times(4, c.warmup+aboutDrain) + c.length + max(c.length, written) + max(c.length, 3*written) + sent + 2*written
		total += times(len(c.loads), times(c.runs, windows)+times(3, c.warmup+c.length)+2*aboutCluster+4*written)
	}
	return total
}

// each calls f for every state under every load.
func (c b5Scale) each(f func(state int64, percent int) error) error {
	for _, state := range c.states {
		for _, percent := range c.loads {
			if err := f(state, percent); err != nil {
				return err
			}
		}
	}
	return nil
}

// plan is the measurement of a state under a load.
func (c b5Scale) plan(state int64, percent int) snapshotsPlan {
	return snapshotsPlan{
		Sections: []snapshotsSection{sectionLoad}, Clients: 100, ValueBytes: b0Value, Hosts: 3, StateBytes: state, LoadPercent: percent,
		SendBytesPerSecond: c.send, Duration: c.length, Warmup: c.warmup, Runs: c.runs,
	}
}

// needMiBB5 is what the largest measurement asks for, so that it is not refused in the middle.
func needMiBB5(size Size) int {
	c, most := scaleB5(size), uint64(0)
	_ = c.each(func(state int64, percent int) error { most = max(most, c.plan(state, percent).NeedBytes()); return nil })
	return int(most >> 20)
}

func b5Point(way string, state int64, percent int) string {
	return fmt.Sprintf("%s, state of %s, at %d %%", way, report.Size(int(state)), percent)
}

// measureTogether measures a plan. It puts the rows that were finished, by their index in the plan's points.
func measureTogether(ctx context.Context, s *run, plan snapshotsPlan, put func(i int, row snapshotsResult, began time.Time, partial bool)) error {
	n := len(plan.Points())
	return together(s, n, n, func() ([]snapshotsResult, error) {
		plan.Dir, plan.Seed = s.Work.Path, s.Seed
		s.Progress.Begin(n)
		defer s.Progress.End()
		r, err := measureSnapshots(ctx, plan, s.Progress)
		return r.Rows, err
	}, func(rows []snapshotsResult, began time.Time, partial bool) {
		for i, row := range rows {
			put(i, row, began, partial)
		}
	})
}

// putSnapshots makes a row of the section load, the median over its runs, a repeat. It is partial if the
// measurement was cut short.
func putSnapshots(s *experiment.Session, plan snapshotsPlan, row snapshotsResult, began time.Time, partial bool) {
	labels := labelled(three(), "async", "way", row.Way, "state_bytes", strconv.FormatInt(plan.StateBytes, 10), "share", fmt.Sprintf("%d%%", plan.LoadPercent))
	repeat := rowRepeat(s, row.Result, began)
	repeat.Partial = partial
	f := repeat.Figures
	f[fsyncP99.Name], f[fsyncRatio.Name], f[experiment.RateRatio.Name], f[archive.P99Ratio.Name], f[otherPause.Name] = row.FsyncP99Us, row.FsyncP99Ratio, row.Ratio, row.P99Ratio, row.OtherPauseUs
	if row.Way != string(withoutSnapshot) {
		f[tookSec.Name], f[stateBytes.Name], f[stateRate.Name] = row.TookSec, float64(row.StateBytes), row.MiBPerSec*(1<<20)
	}
	if row.Way == string(takeOne) || row.Way == string(takeEach) {
		f[applyPause.Name], f[viewPause.Name] = row.PauseUs, row.CaptureUs
	}
	s.Put(b5Point(row.Way, plan.StateBytes, plan.LoadPercent), labels, repeat)
}

// judgeTaken judges what the source demands: the pause that the view makes, and the disk under a transfer
// whose rate is limited. What a snapshot that a host writes as fast as it can does to the clients is a
// figure: all hosts have the same disk here, which that snapshot fills.
func judgeTaken(s *experiment.Session, state int64, percent int) {
	judge(s,
		demand{"the apply loop stands still while the view of a snapshot is taken", viewPause, b5Point(string(takeOne), state, percent), "", below(10_000, "").says("< 10 ms")},
		demand{"p99 of the log's fsyncs during a limited transfer by that before", fsyncRatio, b5Point(string(installOne), state, percent), "", below(2, " (sender and receiver have the same disk here)")})
}
