package recipe

import (
	"slices"

	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// snapshotsResult is one row. The embedded row is that of a window, with the median throughput; rows of
// restart and transfer have none. Ratios are medians over the runs, each of windows of the same run.
type snapshotsResult struct {
	report.Result
	Section snapshotsSection
	Way     string // of load; what has changed, of transfer
	Machine string // memoryMachine or files

	Ratio    float64 // throughput ÷ that without a snapshot
	P99Ratio float64 // the same of p99

	// On the leader, over all runs: the longest time without Apply around a call of Snapshot, the longest at
	// any other time, and the longest call of Snapshot itself.
	PauseUs      float64
	OtherPauseUs float64
	CaptureUs    float64

	FsyncP99Us    float64 // of the leader's log, to a part of a factor of two
	FsyncP99Ratio float64 // the same by that without a snapshot

	StateBytes int64 // of the snapshot
	LogBytes   int64 // behind it
	SentBytes  int64
	Snapshots  int     // in the window
	TakeSec    float64 // transfer: of the snapshot that was sent
	OpenSec    float64 // until Open has returned
	TookSec    float64 // until taken; from before Open until installed; until applied
	LevelSec   float64 // from before Open until applied what the leader, or this host, had
	MiBPerSec  float64 // of what was written, sent, or read
	LimitShare float64 // of what the disk writes or reads, or the sender may send
}

// compareWays makes a row of each way from its runs.
func compareWays(runs [][]snapshotsResult) (rows []snapshotsResult) {
	for _, of := range runs {
		var ops, p99, fsyncs []float64
		row := report.MedianOf(of, func(r *snapshotsResult) *report.Result { return &r.Result })
		for i := range of {
			first := runs[0][i]
			ops = append(ops, report.Ratio(of[i].OpsPerSec, first.OpsPerSec))
			p99 = append(p99, report.Ratio(of[i].P99Us, first.P99Us))
			fsyncs = append(fsyncs, report.Ratio(of[i].FsyncP99Us, first.FsyncP99Us))
			row.PauseUs, row.OtherPauseUs, row.CaptureUs = max(row.PauseUs, of[i].PauseUs), max(row.OtherPauseUs, of[i].OtherPauseUs), max(row.CaptureUs, of[i].CaptureUs)
		}
		row.Ratio, row.P99Ratio, row.FsyncP99Ratio = medianOf(ops), medianOf(p99), medianOf(fsyncs)
		rows = append(rows, row)
	}
	return rows
}

// medianOf returns the median; of an even number, the mean of the two in the middle.
func medianOf(of []float64) float64 {
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}
