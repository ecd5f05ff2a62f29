package recipe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/wal"
)

// snapshotsWay is what happens beside a load.
type snapshotsWay string

// The ways.
const (
	withoutSnapshot snapshotsWay = "without"  // no snapshot
	takeOne         snapshotsWay = "take"     // the leader's host takes one
	takeEach        snapshotsWay = "take-all" // every host takes one, on the same disk
	installOne      snapshotsWay = "install"  // a member that was away gets one from the leader, and installs it
)

// snapshotsWays are all ways, in the order of the table. The first is what the others are compared with.
var snapshotsWays = []snapshotsWay{withoutSnapshot, takeOne, takeEach, installOne}

const (
	peakWindows          = 3
	maxPeak              = 3 * time.Second // each of these lasts at most
	snapshotsMaxInFlight = 10_000
)

func (p snapshotsPlan) peakDuration() time.Duration { return min(p.Duration, maxPeak) }

// load makes the rows of the section load.
func (r *snapshotsRun) load(ctx context.Context) (rows []snapshotsResult, err error) {
	err = r.inCluster(ctx, false, func(c *snapshotsCluster) error {
		peak, err := r.peak(ctx, c)
		if err != nil {
			return fmt.Errorf("peak: %w", err)
		}
		r.of.PeakOpsPerSec = peak
		runs := make([][]snapshotsResult, len(snapshotsWays))
		random := rand.New(rand.NewPCG(r.Seed, 1))
		for n := range r.Runs {
			for _, k := range random.Perm(len(snapshotsWays)) { // no way always comes after the same other
				way := snapshotsWays[k]
				r.begin(k, r.Warmup+r.Duration)
				row, err := r.underLoad(ctx, c, way, peak*float64(r.LoadPercent)/100)
				if err != nil {
					return fmt.Errorf("%s, run %d of %d: %w", way, n+1, r.Runs, err)
				}
				runs[k] = append(runs[k], row)
				if n == r.Runs-1 {
					r.progress.PointDone(report.MedianOf(runs[k], func(of *snapshotsResult) *report.Result { return &of.Result }).Result)
				}
			}
		}
		rows = compareWays(runs)
		return nil
	})
	return rows, err
}

// peak measures a closed loop.
func (r *snapshotsRun) peak(ctx context.Context, c *snapshotsCluster) (float64, error) {
	r.begin(0, peakWindows*(r.Warmup+r.peakDuration()))
	var windows []report.Result
	for range peakWindows {
		outcome, err := r.window(ctx, c, load.Closed{Clients: r.Clients}, r.peakDuration(), nil)
		if err != nil {
			return 0, err
		}
		var w report.Result
		w.SetOutcome(outcome)
		windows = append(windows, w)
	}
	return report.Median(windows).OpsPerSec, nil
}

// window puts the cluster under load, and checks what it acknowledged.
func (r *snapshotsRun) window(ctx context.Context, c *snapshotsCluster, g load.Generator, length time.Duration, beside func(context.Context) error) (load.Outcome, error) {
	c.window++
	runtime.GC() // every window begins with the same heap
	return load.Window{
		Source: load.NewSource(r.ValueBytes, r.Seed), Warmup: r.Warmup, Length: length, Generator: g, Observer: r.progress, Beside: beside,
	}.Run(ctx, snapshotsWriter{c})
}

// underLoad measures one window of a way.
func (r *snapshotsRun) underLoad(ctx context.Context, c *snapshotsCluster, way snapshotsWay, rate float64) (snapshotsResult, error) {
	row := snapshotsResult{Section: sectionLoad, Way: string(way), Machine: "memory", Result: report.Result{
		Pipeline: string(way), Hosts: r.Hosts, Rate: rate, ValueBytes: r.ValueBytes, Runs: 1, Warnings: []string{},
	}}
	r.progress.Phase("prepare")
	if err := c.lead(ctx); err != nil {
		return row, err
	}
	if err := c.shortenLogs(ctx); err != nil {
		return row, err
	}
	length, beside := r.Duration, func(context.Context) error { return nil } // all the time is without
	switch way {
	case takeOne, takeEach:
		length, beside = 0, func(ctx context.Context) error { return r.takeBeside(ctx, c, way, &row) }
	case installOne:
		if err := r.cutOff(ctx, c); err != nil {
			return row, err
		}
		length, beside = 0, func(ctx context.Context) error {
			c.connect(len(c.members) - 1)
			return c.installed(ctx, &row, time.Now(), c.sent())
		}
	}
	leader := c.members[0].machine.(*memoryMachine)
	var before, after wal.Stats
	measured := func(ctx context.Context) error {
		leader.drainGaps()
		before = c.leader().Host().LogStats()
		err := beside(ctx)
		if length > 0 && err == nil {
			err = lab.Sleep(ctx, length)
		}
		after = c.leader().Host().LogStats()
		return err
	}
	outcome, err := r.window(ctx, c, load.Open{Rate: rate, MaxInFlight: snapshotsMaxInFlight, Seed: r.Seed}, length, measured)
	if err != nil {
		return row, err
	}
	g := leader.drainGaps()
	row.PauseUs, row.OtherPauseUs, row.CaptureUs = report.Micros(g.around), report.Micros(g.other), report.Micros(g.capture)
	row.FsyncP99Us = report.Micros(fsyncQuantile(before, after, 0.99))
	row.SetOutcome(outcome)
	if term := c.leader().Status(); term.Leader != 1 {
		row.Warnings = append(row.Warnings, report.WarnMoved)
	}
	return row, nil
}

// fsyncQuantile returns a quantile of the fsyncs of a log between two readings, 0 if there were none. The log
// counts them in buckets of a factor of two; within one they are taken as evenly spread.
func fsyncQuantile(before, after wal.Stats, q float64) time.Duration {
	total := uint64(0)
	for i := range after.SyncTimes {
		total += after.SyncTimes[i] - before.SyncTimes[i]
	}
	left := q * float64(total)
	for i := range after.SyncTimes {
		n := float64(after.SyncTimes[i] - before.SyncTimes[i])
		if n > 0 && left <= n {
			top := float64(uint64(1) << i)
			return time.Duration((top/2 + top/2*left/n) * float64(time.Microsecond))
		}
		left -= n
	}
	return 0
}

// maxLogBytes is how long the logs are at most when a window begins. So the space on the disk is bounded, and
// the logs of all windows write to segments that were used before.
const maxLogBytes = 256 << 20

// shortenLogs makes the hosts with long logs take snapshots.
func (c *snapshotsCluster) shortenLogs(ctx context.Context) error {
	errs := make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		if err := c.level(ctx, i); err != nil {
			return err
		}
		if m.node.Metrics().Snapshots.LogBytes > maxLogBytes {
			wg.Go(func() { _, errs[i] = m.node.TakeSnapshot(ctx) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// takeBeside takes snapshots, one after another, for as long as a window lasts at least.
func (r *snapshotsRun) takeBeside(ctx context.Context, c *snapshotsCluster, way snapshotsWay, row *snapshotsResult) error {
	members := c.members[:1]
	if way == takeEach {
		members = c.members
	}
	began := time.Now()
	n := 0
	for ; n == 0 || time.Since(began) < r.Duration; n++ {
		errs := make([]error, len(members))
		var wg sync.WaitGroup
		for i, m := range members {
			wg.Go(func() {
				info, err := m.node.TakeSnapshot(ctx)
				if errs[i] = err; i == 0 {
					row.StateBytes = info.Bytes
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	took := time.Since(began)
	row.Snapshots, row.TookSec = n*len(members), took.Seconds()/float64(n)
	row.MiBPerSec = mibPerSec(row.StateBytes*int64(row.Snapshots), took)
	return nil
}

// cutOff cuts the last host off, and makes it fall behind the log of the leader.
func (r *snapshotsRun) cutOff(ctx context.Context, c *snapshotsCluster) error {
	last := len(c.members) - 1
	if err := c.level(ctx, last); err != nil {
		return err
	}
	has := c.members[last].node.Status().LastIndex
	c.disconnect(last)
	// A write for every page makes every part of the snapshot another one.
	if err := c.fill(ctx, 0, uint64(r.pages()), 1, uint64(c.window)+1); err != nil {
		return err
	}
	_, _, err := c.fallBehind(ctx, has)
	return err
}

// sent returns how many bytes of snapshots the other hosts have sent.
func (c *snapshotsCluster) sent() (bytes uint64) {
	for _, m := range c.members[:len(c.members)-1] {
		bytes += m.node.Host().Metrics().Transfers.BytesSent
	}
	return bytes
}

// installed waits until the last host, which was away and came back at began, has installed the leader's
// snapshot, and has then applied what the leader had committed by then. sent is what was sent before.
func (c *snapshotsCluster) installed(ctx context.Context, row *snapshotsResult, began time.Time, sent uint64) error {
	last := len(c.members) - 1
	if err := c.installs(ctx, last, row); err != nil {
		return err
	}
	took := time.Since(began)
	err := c.level(ctx, last)
	row.TookSec, row.LevelSec, row.Snapshots = took.Seconds(), time.Since(began).Seconds(), 1
	row.SentBytes = int64(c.sent() - sent)
	row.MiBPerSec = mibPerSec(row.SentBytes, took)
	return err
}

// maxLooks is how many looks in a row must see a member that needs no snapshot any more.
const maxLooks = 200

// installs waits until a member has installed a snapshot. One that catches up without any is an error.
func (c *snapshotsCluster) installs(ctx context.Context, i int, row *snapshotsResult) error {
	m, want := c.members[i], c.leader().Status().Committed
	late := time.NewTimer(waitTimeout)
	defer late.Stop()
	look := time.NewTicker(snapshotsPollInterval)
	defer look.Stop()
	for looks := 0; ; {
		select {
		case e := <-m.installed:
			row.StateBytes = e.Bytes
			return nil
		case <-look.C:
			theirs, _ := c.leader().LatestSnapshot()
			own, _ := m.node.LatestSnapshot()
			if own.Index >= theirs.Index || m.node.Status().Applied < want {
				looks = 0
			} else if looks++; looks == maxLooks { // both are told one after the other
				return fmt.Errorf("host %d has caught up without the snapshot of entry %d, by entries that the leader still had", m.id, theirs.Index)
			}
		case <-late.C:
			return fmt.Errorf("host %d has installed no snapshot after %v", m.id, waitTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
