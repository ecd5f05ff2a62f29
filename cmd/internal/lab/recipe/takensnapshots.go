package recipe

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// takenSnapshots is what snapshots cost beside a load, at a restart, and for a member that is behind the log
// (snapshotssections.go). Recipe b5 has the source's loads; this one has the other two sections.
var takenSnapshots = design[[]snapshotsPlan]{
	name:     "snapshots",
	question: "How long does a restart take with how much log, and what is sent of a state that has changed a little?",
	source:   "ours: snapshots taken, sent and installed",
	hosts:    3,
	plan:     takenSnapshotsPlans,
	about:    aboutTakenSnapshots,
	needMiB: func(size Size) (most int) {
		for _, plan := range takenSnapshotsPlans(size) {
			most = max(most, int(plan.NeedBytes()>>20))
		}
		return most
	},
	omits: omissions{
		full:   "a state of 1 GiB, two of three rounds under load",
		always: []string{"states that are larger than the memory of this process: a machine in memory takes up to three times its state on each host"},
	},
	metrics: slices.Concat(snapshotMetrics, []archive.Metric{openSec, levelSec, takeSec, behind, sentBytes, sentShare, limitShare}),
	measure: measureTakenSnapshots,
	judge: func(s *experiment.Session, plans []snapshotsPlan) {
		judgeTaken(s, plans[0].StateBytes, plans[0].LoadPercent)
		for _, of := range []string{"files, unchanged", "files, 1 % in one place"} {
			judge(s, demand{"a state in " + of + ": share of the snapshot that is sent", sentShare, of, "", atMost(0.05, "").says("≤ 5 % (bytes, whatever the machine does)")})
		}
	},
}

// Metrics of a restart and of a transfer.
var (
	levelSec   = archive.Metric{Name: "applied_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "from before that until the state was level with what was applied before, or with the leader"}
	takeSec    = archive.Metric{Name: "take_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "to take the snapshot that is sent"}
	behind     = archive.Metric{Name: "behind_bytes", Unit: archive.UnitBytes, Better: archive.BetterNeither, Meaning: "of log behind the snapshot"}
	sentShare  = archive.Metric{Name: "sent_share", Unit: archive.UnitShare, Better: archive.BetterLower, Meaning: "of the snapshot that was sent"}
	limitShare = archive.Metric{Name: "limit_share", Unit: archive.UnitShare, Better: archive.BetterHigher, Meaning: "of what the disk writes to one file, or reads (restart), or the host may send (transfer)"}
)

// takenSnapshotsPlans are one for each section, in the order of the report.
func takenSnapshotsPlans(size Size) (all []snapshotsPlan) {
	for _, section := range []snapshotsSection{sectionLoad, sectionRestart, sectionTransfer} {
		plan := scaleB5(size).plan(pick(size, orLong(size, int64(256<<20), 1<<30), 64<<20, 2<<20), 50)
		plan.Sections, plan.Logs = []snapshotsSection{section}, pick(size, []int{0, 64, 256}, []int{0, 16, 64}, []int{0, 1})
		plan.SendBytesPerSecond = 64 << 20
		all = append(all, plan)
	}
	return all
}

// aboutTakenSnapshots takes a disk that writes and reads 200 MB a second.
func aboutTakenSnapshots(plans []snapshotsPlan) time.Duration {
	load, restart, transfer := plans[0], plans[1], plans[2]
	written := func(bytes int64) time.Duration { return time.Duration(float64(bytes) / 200e6 * float64(time.Second)) }
	sent := time.Duration(float64(load.StateBytes) / float64(load.SendBytesPerSecond) * float64(time.Second))
	total := times(4, aboutCluster) + times(7, load.Warmup+load.Duration) + sent + 6*written(load.StateBytes)
	for _, mib := range restart.Logs {
		total += 3*written(int64(mib)<<20) + 2*written(restart.StateBytes)
	}
	return total + times(len(transfer.Points()), sent/2+2*written(transfer.StateBytes))
}

func measureTakenSnapshots(ctx context.Context, s *run, plans []snapshotsPlan) error {
	for _, plan := range plans {
		section := plan.Sections[0]
		err := measureTogether(ctx, s, plan, func(i int, row snapshotsResult, began time.Time, partial bool) {
			if section == sectionLoad {
				putSnapshots(s.Session, plan, row, began, partial)
				return
			}
			repeat := takenRepeat(s.Session, row, began)
			repeat.Partial = partial
			s.Put(plan.Points()[i], takenLabels(plan, row), repeat)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", section, err)
		}
	}
	return nil
}

func takenLabels(plan snapshotsPlan, row snapshotsResult) map[string]string {
	labels := labelled(three(), "async", "way", row.Way, "machine", row.Machine, "state_bytes", strconv.FormatInt(plan.StateBytes, 10))
	if row.Section == sectionRestart {
		labels["log_mib"] = strconv.FormatInt(row.LogBytes>>20, 10)
	}
	return labels
}

// takenRepeat makes a row of a restart or of a transfer a repeat.
func takenRepeat(s *experiment.Session, row snapshotsResult, began time.Time) archive.Repeat {
	r := rowRepeat(s, row.Result, began)
	f := r.Figures
	f[openSec.Name], f[levelSec.Name], f[tookSec.Name] = row.OpenSec, row.LevelSec, row.TookSec
	f[stateBytes.Name], f[stateRate.Name], f[limitShare.Name] = float64(row.StateBytes), row.MiBPerSec*(1<<20), row.LimitShare
	if row.Section == sectionRestart {
		f[behind.Name] = float64(row.LogBytes)
		return r
	}
	f[takeSec.Name], f[sentBytes.Name], f[sentShare.Name] = row.TakeSec, float64(row.SentBytes), report.Ratio(float64(row.SentBytes), float64(row.StateBytes))
	return r
}
