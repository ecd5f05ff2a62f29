// The recipe snapshots measures what snapshots cost those who write meanwhile, how long a restart takes, and
// what is sent of a state that has changed a little.
//
// The hosts are real, in one process, with their logs and snapshots on the disk and TCP on 127.0.0.1, behind
// the typed API. Each section has clusters of its own:
//
//	limits    the state's bytes written to a file, synced, and read back
//	load      the peak of a closed loop, then an open loop at a share of it: windows without a
//	          snapshot, and others that last as long as one is taken, or sent and installed
//	restart   one host, with more and more log behind its snapshot
//	transfer  a member that is behind the log gets a state that has changed a little, or wholly
//
// A machine in memory begins with a state of the wanted size, so that no time is spent on writing that
// through the log. At the end of each section all hosts must have the same state.

package recipe

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// snapshotsPlan is what to measure.
type snapshotsPlan struct {
	StateBytes         int64              // of the state machine
	Sections           []snapshotsSection // what to measure
	Clients            int                // of the closed loop that finds the peak
	LoadPercent        int                // of the peak is what the open loop offers
	ValueBytes         int
	Hosts              int
	Logs               []int         // MiB of log behind the snapshot, for restart
	SendBytesPerSecond int64         // millrace.Config.SnapshotBytesPerSecond
	Duration           time.Duration // of a window, at least
	Warmup             time.Duration // before each window
	Runs               int           // windows of each way
	Dir                string
	Seed               uint64
}

// snapshotsSection is a part of what is measured.
type snapshotsSection string

// The sections.
const (
	sectionLoad     snapshotsSection = "load"
	sectionRestart  snapshotsSection = "restart"
	sectionTransfer snapshotsSection = "transfer"
)

// pages returns how many pages the state has.
func (p snapshotsPlan) pages() int { return int(p.StateBytes / pageBytes) }

const (
	// snapshotsOnDisk is how many snapshots are on the disk of a host at most: two, and a third that is
	// taken or received; statesOnDisk counts a machine's own files too, which are never removed.
	snapshotsOnDisk = 3
	statesOnDisk    = 6
	// snapshotsBytesPerSecond is about how fast the log of one host grows under load on a good disk.
	snapshotsBytesPerSecond = 128 << 20
)

// NeedBytes returns the free space that a run may take. Logs are shortened before each window.
func (p snapshotsPlan) NeedBytes() uint64 {
	states := int64(statesOnDisk)
	if slices.Equal(p.Sections, []snapshotsSection{sectionLoad}) {
		states = snapshotsOnDisk // its machines are in memory
	}
	window := p.Warmup.Seconds() + max(p.Duration.Seconds(), 3*float64(p.StateBytes)/float64(p.SendBytesPerSecond))
	peak := peakWindows * (p.Warmup + p.peakDuration()).Seconds()
	logs := snapshotsBytesPerSecond * (window*float64(p.LoadPercent)/100 + peak)
	for _, n := range p.Logs {
		logs += float64(n << 20)
	}
	return bench.NeedBytes(p.Hosts, uint64(states*p.StateBytes)+uint64(logs))
}

// Points lists what is measured, in the order of the rows.
func (p snapshotsPlan) Points() (names []string) {
	for _, s := range p.Sections {
		switch s {
		case sectionLoad:
			for _, w := range snapshotsWays {
				names = append(names, string(w))
			}
		case sectionRestart:
			for _, n := range p.Logs {
				names = append(names, fmt.Sprintf("restart, %d MiB of log", n))
			}
		case sectionTransfer:
			for _, t := range allTransfers {
				names = append(names, t.String())
			}
		}
	}
	return names
}

// snapshotsRun is a plan that is being carried out.
type snapshotsRun struct {
	snapshotsPlan
	work     lab.WorkDir
	progress report.Progress
	base     *pages // the state of a new machine in memory
	point    int    // the first one of this section
	of       *snapshotsReport
}

// snapshotsReport is what was measured.
type snapshotsReport struct {
	Limits        diskLimits
	PeakOpsPerSec float64           // of the closed loop
	Rows          []snapshotsResult // by section; those of a section that was cut short are not there
}

// measureSnapshots carries the plan out. The report has what was finished before an error.
func measureSnapshots(ctx context.Context, p snapshotsPlan, progress report.Progress) (*snapshotsReport, error) {
	r := &snapshotsRun{snapshotsPlan: p, progress: progress, of: &snapshotsReport{}}
	_, err := lab.InWorkDir(ctx, p.Dir, p.NeedBytes(), func(ctx context.Context, work lab.WorkDir) error {
		r.work = work
		return r.sections(ctx)
	})
	return r.of, err
}

func (r *snapshotsRun) sections(ctx context.Context) error {
	r.progress.Phase("write and read")
	if err := r.measureLimits(ctx); err != nil {
		return err
	}
	r.base = newPages(r.pages())
	for _, s := range r.Sections {
		measure := map[snapshotsSection]func(context.Context) ([]snapshotsResult, error){sectionLoad: r.load, sectionRestart: r.restart, sectionTransfer: r.transfer}[s]
		rows, err := measure(ctx)
		for i := range rows {
			rows[i].LimitShare = r.limitShare(rows[i])
		}
		r.of.Rows = append(r.of.Rows, rows...)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		r.point += len(rows)
	}
	return nil
}

// limitShare is how much of what the disk does, or the sender may do, a row has reached.
func (r *snapshotsRun) limitShare(row snapshotsResult) float64 {
	limit := r.of.Limits.WriteMiBPerSec
	switch {
	case row.Section == sectionRestart:
		limit = r.of.Limits.ReadMiBPerSec
	case row.SentBytes > 0:
		limit = min(limit, float64(r.SendBytesPerSecond)/(1<<20))
	}
	return report.Ratio(row.MiBPerSec, limit)
}

// inCluster calls f with a new cluster of machines in memory, or in files, and compares the states of all
// hosts at the end.
func (r *snapshotsRun) inCluster(ctx context.Context, inFiles bool, f func(*snapshotsCluster) error) error {
	_, err := lab.InFreshDir(r.work, func(dir string) (_ struct{}, err error) {
		machines := func(string) (snapshotsMachine, error) { return newMemory(r.base), nil }
		if inFiles {
			first, err := newFiles(filepath.Join(dir, "first"), stateFiles, int(r.StateBytes/stateFiles))
			if err != nil {
				return struct{}{}, err
			}
			machines = func(dir string) (snapshotsMachine, error) { return first.linked(dir) }
		}
		c, err := openSnapshotsCluster(ctx, r.snapshotsPlan, dir, machines)
		if err != nil {
			return struct{}{}, err
		}
		defer func() { err = errors.Join(err, c.close()) }()
		if err = f(c); err == nil {
			r.progress.Phase("compare")
			err = c.compare(ctx)
		}
		return struct{}{}, err
	})
	return err
}

// stateFiles is how many files a machine in files has.
const stateFiles = 128

// begin says what is measured next.
func (r *snapshotsRun) begin(i int, window time.Duration) {
	r.progress.Point(r.point+i, r.Points()[r.point+i], window)
}
