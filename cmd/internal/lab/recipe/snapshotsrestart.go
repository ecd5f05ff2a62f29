package recipe

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// restart makes the rows of the section restart: the last host is closed and opened again while the others
// run, with more and more log behind its snapshot.
func (r *snapshotsRun) restart(ctx context.Context) (rows []snapshotsResult, err error) {
	err = r.inCluster(ctx, false, func(c *snapshotsCluster) error {
		last := len(c.members) - 1
		for i, mib := range slices.Sorted(slices.Values(r.Logs)) {
			r.begin(i, 0)
			r.progress.Phase("write")
			if err := r.behindSnapshot(ctx, c, last, int64(mib)<<20); err != nil {
				return err
			}
			row := snapshotsResult{Section: sectionRestart, Way: "restart", Machine: "memory", Result: report.Result{Hosts: r.Hosts, ValueBytes: r.ValueBytes, Runs: 1, Warnings: []string{}}}
			m := c.members[last].node.Metrics().Snapshots
			row.LogBytes, row.StateBytes = m.LogBytes, m.Bytes
			has := c.members[last].node.Status().Applied
			if err := c.closeMember(last); err != nil {
				return err
			}
			r.progress.Phase("open")
			began := time.Now()
			if err := c.reopen(ctx, last); err != nil {
				return err
			}
			row.OpenSec = time.Since(began).Seconds()
			if err := c.applied(ctx, last, has); err != nil {
				return err
			}
			row.LevelSec = time.Since(began).Seconds()
			row.TookSec = row.LevelSec
			row.MiBPerSec = mibPerSec(row.StateBytes+row.LogBytes, time.Since(began))
			rows = append(rows, row)
			r.progress.PointDone(report.Result{})
		}
		return nil
	})
	return rows, err
}

// behindSnapshot makes a member have a snapshot, and about this length of log behind it.
func (r *snapshotsRun) behindSnapshot(ctx context.Context, c *snapshotsCluster, i int, bytes int64) error {
	if err := c.level(ctx, i); err != nil {
		return err
	}
	if err := c.pad(ctx, 1); err != nil { // something new for each snapshot
		return err
	}
	if err := c.level(ctx, i); err != nil {
		return err
	}
	if _, err := c.members[i].node.TakeSnapshot(ctx); err != nil {
		return err
	}
	c.window++
	source := load.NewSource(r.ValueBytes, r.Seed)
	for seq := uint64(0); int64(seq)*int64(r.ValueBytes) < bytes; {
		all := make([]stateCommand, min(1024, 1+bytes/int64(r.ValueBytes)))
		for k := range all {
			all[k] = stateCommand{kind: writeCommand, window: c.window, value: source.Value(load.ValueID{Seq: seq})}
			seq++
		}
		if err := c.propose(ctx, all); err != nil {
			return err
		}
		if err := c.level(ctx, i); err != nil {
			return err
		}
	}
	return nil
}
