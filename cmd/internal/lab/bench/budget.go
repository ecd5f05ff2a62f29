package bench

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// The model of processor time: a command costs R ÷ (commands in a round) + k. A round is one sync of each
// host: R is what it costs however many commands share it, k is what each command costs beside that.

// commandsInARound is how many commands share a sync of each host.
func commandsInARound(r report.Result) float64 { return report.Ratio(float64(r.Hosts), r.FsyncsPerOp) }

// fit finds R and k, in microseconds, for rows of one pipeline under different loads. The relative errors
// have the least squares. It returns false if the rows do not tell the two apart.
func fit(rows []report.Result) (perRound, perCommand float64, ok bool) {
	var aa, ab, bb, a1, b1 float64
	for _, r := range rows {
		x := commandsInARound(r)
		if x == 0 || r.CPUUsPerOp == 0 {
			continue
		}
		a, b := 1/(x*r.CPUUsPerOp), 1/r.CPUUsPerOp
		aa, ab, bb, a1, b1 = aa+a*a, ab+a*b, bb+b*b, a1+a, b1+b
	}
	det := aa*bb - ab*ab
	if det <= 1e-9*aa*bb {
		return 0, 0, false
	}
	return (a1*bb - b1*ab) / det, (b1*aa - a1*ab) / det, true
}

// writeBudgets writes what a round and a command use of what can be counted, and R and k of each pipeline, as
// ratios to bare's.
func (r *Report) writeBudgets(b *strings.Builder) {
	if r.openLoop() {
		return
	}
	byName := map[string][]report.Result{}
	tw := report.NewColumns(b)
	fmt.Fprintf(tw, "\n%-36s\tcommands\tentries\tCPU µs\tread, write\tswitches\tfaults\tallocs\tKiB allocated\t\n", "a round; a command")
	some := false
	for _, row := range r.Rows {
		if isLimit(row) || row.Ops == 0 {
			continue
		}
		byName[row.Pipeline] = append(byName[row.Pipeline], row)
		x := commandsInARound(row)
		if x == 0 {
			continue
		}
		some = true
		fmt.Fprintf(tw, "  %-34s\t%.1f", strings.TrimSpace(rowName(row))+", "+groupName(row), x)
		for _, perOp := range []float64{row.EntriesPerOp, row.CPUUsPerOp, row.ReadWritesPerOp, row.SwitchesPerOp, row.FaultsPerOp, row.AllocsPerOp, row.AllocBytesPerOp / 1024} {
			fmt.Fprintf(tw, "\t%.1f; %.2f", perOp*x, perOp)
		}
		fmt.Fprintln(tw, "\t")
	}
	if !some {
		return
	}
	_ = tw.Flush() // into memory
	r.writeSharing(b)
	bareRound, bareCommand, ok := fit(byName[BareName])
	if !ok {
		return
	}
	fmt.Fprintf(b, "processor time = R ÷ (commands in a round) + k: bare R %.0f µs, k %.1f µs\n", bareRound, bareCommand)
	for _, name := range PipelineNames() {
		if perRound, perCommand, ok := fit(byName[name]); ok {
			fmt.Fprintf(b, "  %-34s R %.0f µs, k %.1f µs; ÷ bare's %.2f, %.2f\n", name, perRound, perCommand, report.Ratio(perRound, bareRound), report.Ratio(perCommand, bareCommand))
		}
	}
}

// writeSharing writes how well commands share what a round does: writes of the logs, frames, turns, and the
// bytes of headers beside the values. A host that gathers its groups has as many of the first two with many
// groups as with one.
func (r *Report) writeSharing(b *strings.Builder) {
	tw := report.NewColumns(b)
	fmt.Fprintf(tw, "\n%-36s\tlog writes\tframes\tturns\tlocks\tlog B\tsent B\theap live\tgoal\t\n", "a round; a command, or its headers")
	some := false
	for _, row := range r.Rows {
		if isLimit(row) || row.Ops == 0 || row.TurnsPerOp == 0 {
			continue
		}
		some = true
		x := commandsInARound(row)
		fmt.Fprintf(tw, "  %-34s", strings.TrimSpace(rowName(row))+", "+groupName(row))
		for _, perOp := range []float64{row.AppendsPerOp, row.FramesPerOp, row.TurnsPerOp, row.LocksPerOp} {
			fmt.Fprintf(tw, "\t%.1f; %.3f", perOp*x, perOp)
		}
		fmt.Fprintf(tw, "\t%.1f\t%.1f", row.LogBytesPerOp/float64(row.Hosts)-float64(row.ValueBytes), row.SentBytesPerOp/float64(max(row.Hosts-1, 1))-float64(row.ValueBytes))
		fmt.Fprintf(tw, "\t%.0f MB\t%.0f MB\t\n", float64(row.HeapLiveBytes)/1e6, float64(row.HeapGoalBytes)/1e6)
	}
	if !some {
		return
	}
	_ = tw.Flush() // into memory
	b.WriteString("log B and sent B: for each copy of a command, beyond its value. Locks are counted with the build tag countlocks.\n")
}
