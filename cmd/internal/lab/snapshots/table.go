package snapshots

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Schema names the layout of the results.json of this bench.
const Schema = "millrace-bench-snapshot/1"

// Result is one row. The embedded row is that of a window, with the median throughput; rows of restart and
// transfer have none. Ratios are medians over the runs, each of windows of the same run.
type Result struct {
	report.Result
	Section Section `json:"section"`
	Way     string  `json:"way"`     // of load; what has changed, of transfer
	Machine string  `json:"machine"` // memory or files

	Ratio    float64 `json:"ratio,omitempty"`     // throughput ÷ that without a snapshot
	P99Ratio float64 `json:"p99_ratio,omitempty"` // the same of p99

	// On the leader, over all runs: the longest time without Apply around a call of Snapshot, the longest at
	// any other time, and the longest call of Snapshot itself.
	PauseUs      float64 `json:"pause_us,omitempty"`
	OtherPauseUs float64 `json:"other_pause_us,omitempty"`
	CaptureUs    float64 `json:"capture_us,omitempty"`

	FsyncP99Us    float64 `json:"fsync_p99_us,omitempty"`    // of the leader's log, to a part of a factor of two
	FsyncP99Ratio float64 `json:"fsync_p99_ratio,omitempty"` // the same by that without a snapshot

	StateBytes int64   `json:"state_bytes,omitempty"` // of the snapshot
	LogBytes   int64   `json:"log_bytes,omitempty"`   // behind it
	SentBytes  int64   `json:"sent_bytes,omitempty"`
	Snapshots  int     `json:"snapshots,omitempty"` // in the window
	TakeSec    float64 `json:"take_s,omitempty"`    // transfer: of the snapshot that was sent
	OpenSec    float64 `json:"open_s,omitempty"`    // until Open has returned
	TookSec    float64 `json:"took_s,omitempty"`    // until taken; from before Open until installed; until applied
	LevelSec   float64 `json:"level_s,omitempty"`   // from before Open until applied what the leader, or this host, had
	MiBPerSec  float64 `json:"mib_per_s,omitempty"` // of what was written, sent, or read
	LimitShare float64 `json:"of_limit,omitempty"`  // of what the disk writes or reads, or the sender may send
}

// compareWays makes a row of each way from its runs.
func compareWays(runs [][]Result) (rows []Result) {
	for _, of := range runs {
		var ops, p99, fsyncs []float64
		row := report.MedianOf(of, func(r *Result) *report.Result { return &r.Result })
		for i := range of {
			first := runs[0][i]
			ops = append(ops, report.Ratio(of[i].OpsPerSec, first.OpsPerSec))
			p99 = append(p99, report.Ratio(of[i].P99Us, first.P99Us))
			fsyncs = append(fsyncs, report.Ratio(of[i].FsyncP99Us, first.FsyncP99Us))
			row.PauseUs, row.OtherPauseUs, row.CaptureUs = max(row.PauseUs, of[i].PauseUs), max(row.OtherPauseUs, of[i].OtherPauseUs), max(row.CaptureUs, of[i].CaptureUs)
		}
		row.Ratio, row.P99Ratio, row.FsyncP99Ratio = median(ops), median(p99), median(fsyncs)
		rows = append(rows, row)
	}
	return rows
}

// median returns the median; of an even number, the mean of the two in the middle.
func median(of []float64) float64 {
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}

// Report is the outcome of a Plan.
type Report struct {
	Plan          Plan
	Env           lab.Environment
	Limits        Limits
	PeakOpsPerSec float64  // of the closed loop
	Rows          []Result // by section
	Partial       bool
}

// Outputs implements report.Files.
func (r *Report) Outputs() []report.Output {
	return []report.Output{{Name: "results.json", Write: r.WriteJSON}}
}

// WriteJSON writes all rows as one JSON array.
func (r *Report) WriteJSON(w io.Writer) error { return report.WriteJSON(w, r.rows()) }

// rows returns the rows with their share of the limits.
func (r *Report) rows() []Result {
	rows := slices.Clone(r.Rows)
	for i := range rows {
		row := &rows[i]
		limit := r.Limits.WriteMiBPerSec
		switch {
		case row.Section == Restart:
			limit = r.Limits.ReadMiBPerSec
		case row.SentBytes > 0:
			limit = min(limit, float64(r.Plan.SendBytesPerSecond)/(1<<20))
		}
		row.LimitShare = report.Ratio(row.MiBPerSec, limit)
	}
	return rows
}

// WriteTable writes the report for people: a table for each section, and how to read them.
func (r *Report) WriteTable(w io.Writer) error {
	return report.WriteTable(w, r.writeConditions, r.writeLoad, r.writeRestart, r.writeTransfer, r.writeExplanation)
}

func (r *Report) writeConditions(b *strings.Builder) {
	p := r.Plan
	fmt.Fprintf(b, "%s: a state of %s; %s in one process, TCP on 127.0.0.1, %s sent a second\n",
		report.Title("millrace bench snapshot", r.Partial), size(p.StateBytes), report.Plural(p.Hosts, "host"), size(p.SendBytesPerSecond))
	report.WriteMachine(b, r.Env, "")
	fmt.Fprintf(b, "limits: %s written and synced at %.0f MiB/s, read at %.0f MiB/s\n", size(p.StateBytes), r.Limits.WriteMiBPerSec, r.Limits.ReadMiBPerSec)
}

func (r *Report) of(s Section) (rows []Result) {
	for _, row := range r.rows() {
		if row.Section == s {
			rows = append(rows, row)
		}
	}
	return rows
}

func (r *Report) writeLoad(tw *tabwriter.Writer) {
	rows := r.of(Load)
	if len(rows) == 0 {
		return
	}
	p := r.Plan
	fmt.Fprintf(tw, "\nload: writes of %s; peak of %s: %s ops/s; open loop at %d %% of it; windows of %v and more after %v, %s\n",
		report.Size(p.ValueBytes), report.Plural(p.Clients, "client"), report.Count(r.PeakOpsPerSec), p.LoadPercent, p.Duration, p.Warmup, report.Plural(p.Runs, "run"))
	fmt.Fprintln(tw, "way\tops/s\t÷ without\tp50\tp99\t÷ without\tmax\tpause\tcapture\tother\ttook\tMiB\tMiB/s\tof limit\t")
	for _, row := range rows {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", row.Way, report.Count(row.OpsPerSec), report.Optional(row.Ratio, 2),
			report.Latency(row.P50Us), report.Latency(row.P99Us), report.Optional(row.P99Ratio, 2), report.Latency(row.MaxUs),
			report.Latency(row.PauseUs), report.Latency(row.CaptureUs), report.Latency(row.OtherPauseUs), report.Latency(1e6*row.TookSec),
			mib(max(row.SentBytes, row.StateBytes)), report.Optional(row.MiBPerSec, 0), report.Optional(row.LimitShare, 2), strings.Join(row.Notes(), ", "))
	}
}

func (r *Report) writeRestart(b *strings.Builder) {
	rows := r.of(Restart)
	if len(rows) == 0 {
		return
	}
	fmt.Fprintln(b, "\nrestart of one host")
	tw := report.NewColumns(b)
	fmt.Fprintln(tw, "log\tsnapshot\topen\tapplied\tMiB/s\tof limit\t")
	for _, row := range rows {
		fmt.Fprintf(tw, "%s MiB\t%s MiB\t%s\t%s\t%s\t%s\t\n", mib(row.LogBytes), mib(row.StateBytes), report.Latency(1e6*row.OpenSec), report.Latency(1e6*row.LevelSec),
			report.Optional(row.MiBPerSec, 0), report.Optional(row.LimitShare, 2))
	}
	_ = tw.Flush() // into memory
}

func (r *Report) writeTransfer(b *strings.Builder) {
	rows := r.of(Transfer)
	if len(rows) == 0 {
		return
	}
	fmt.Fprintln(b, "\ntransfer to a member that is behind the log")
	tw := report.NewColumns(b)
	fmt.Fprintln(tw, "machine\tits state\tsnapshot\ttaken in\tsent\tof it\topen\tinstalled\tMiB/s\tof limit\t")
	for _, row := range rows {
		fmt.Fprintf(tw, "%s\t%s\t%s MiB\t%s\t%s MiB\t%.1f %%\t%s\t%s\t%s\t%s\t\n", row.Machine, row.Way, mib(row.StateBytes), report.Latency(1e6*row.TakeSec), mib(row.SentBytes),
			100*report.Ratio(float64(row.SentBytes), float64(row.StateBytes)), report.Latency(1e6*row.OpenSec), report.Latency(1e6*row.TookSec),
			report.Optional(row.MiBPerSec, 0), report.Optional(row.LimitShare, 2))
	}
	_ = tw.Flush() // into memory
}

func (r *Report) writeExplanation(b *strings.Builder) {
	b.WriteString(explanation)
	report.WriteWarnings(b, r.Env)
}

// size renders bytes of any number.
func size(bytes int64) string {
	if bytes >= 1<<30 && bytes%(1<<30) == 0 {
		return fmt.Sprintf("%d GiB", bytes>>30)
	}
	return report.Size(int(bytes))
}

// mib renders bytes as MiB.
func mib(bytes int64) string { return report.Optional(float64(bytes)/(1<<20), 1) }

const explanation = `
without     an open loop at a share of the peak, and nothing else. All other windows last as long as what happens beside it.
take        the leader's host takes a snapshot, and reads it back. take-all: every host does, on the same disk.
install     a member that was cut off for longer than the log reaches back is heard again, and gets a snapshot that
            differs from its state in every part; until it has installed it, and applied what came after it.
pause       the longest time on the leader from the end of an Apply to the begin of the next one, with a call of Snapshot
            between them; capture: the longest such call; other: the longest time without one. Waiting for writes counts.
took        from the call until the snapshot was read back; install: from when the member was heard again until it had
            installed the snapshot. MiB/s: of what was written, or sent.
restart     open: until the log was read and the snapshot restored; applied: until the state was what it was before.
transfer    1 % in all places: every hundredth page; a part that differs in one byte is sent as a whole.
of limit    of what the disk writes to one file (take), reads (restart), or the host may send (install, transfer). A
            snapshot is written once and read once, so a take has 0.5 and less where reading is as fast as writing.
`
