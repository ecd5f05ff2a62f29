package lab

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// LogSchema names the layout of the results.json of the bench of logs.
const LogSchema = "millrace-bench-wal/1"

// LogReport is the outcome of a LogPlan.
type LogReport struct {
	Plan    LogPlan
	Env     Environment
	Rows    []LogResult // by groups, appenders, log; then recoveries
	Partial bool
	Missing []string
}

func (r *LogReport) outputs() []output {
	return []output{{"results.json", r.WriteJSON}, {"throughput.svg", r.writeThroughputPlot}}
}

// WriteJSON writes all rows as one JSON array.
func (r *LogReport) WriteJSON(w io.Writer) error { return writeJSON(w, r.Rows) }

// find returns the row of a log under a load; no appenders mean its recovery.
func (r *LogReport) find(name string, appenders, groups int) (LogResult, bool) {
	i := slices.IndexFunc(r.Rows, func(row LogResult) bool {
		return row.Pipeline == name && row.Clients == appenders && row.Groups == groups && row.Ops > 0
	})
	if i < 0 {
		return LogResult{}, false
	}
	return r.Rows[i], true
}

// bestOther returns the fastest of the others' logs under a load.
func (r *LogReport) bestOther(appenders, groups int) (best LogResult, ok bool) {
	for _, row := range r.Rows {
		if row.Pipeline == RawLogName || row.Pipeline == OwnLogName || row.Clients != appenders || row.Groups != groups {
			continue
		}
		if row.OpsPerSec > best.OpsPerSec {
			best, ok = row, true
		}
	}
	return best, ok
}

// WriteTable writes what a person reads.
func (r *LogReport) WriteTable(w io.Writer) error {
	return writeTable(w, r.writeConditions, r.writeRows, r.writeAims, r.writeNotes)
}

func (r *LogReport) writeConditions(b *strings.Builder) {
	p, e := r.Plan, r.Env
	title := "millrace bench wal"
	if r.Partial {
		title += " (PARTIAL: not every point was measured)"
	}
	fmt.Fprintf(b, "%s: one log, one process, %d-byte values, closed loop; %v after %v of warm-up, %s\n",
		title, p.ValueBytes, p.Duration, p.Warmup, plural(p.Runs, "run"))
	writeMachine(b, e)
}

// writeMachine writes the line that says where a run was made.
func writeMachine(b *strings.Builder, e Environment) {
	fmt.Fprintf(b, "%s, %s, kernel %s, %s in %s, %s, load average %.2f\n\n",
		plural(e.Cores, "core"), orUnknown(e.CPU), orUnknown(e.Kernel), orUnknown(e.Filesystem), e.Dir, e.GoVersion, e.Load1)
}

var logColumns = []string{"ops/s", "MB/s", "p50", "p99", "fsync/op", "ent/fsync", "CPU µs/op", "÷ raw", "÷ best other"}

func (r *LogReport) writeRows(tw *tabwriter.Writer) {
	const wide = 26
	heading := ""
	for _, row := range r.Rows {
		if row.isRecovery() {
			continue
		}
		if h := fmt.Sprintf("%s, %s", plural(row.Clients, "appender"), plural(row.Groups, "group")); h != heading {
			columns := strings.Repeat("\t", len(logColumns)-1)
			if heading == "" {
				columns = strings.Join(logColumns, "\t")
			}
			fmt.Fprintf(tw, "%-*s\t%s\t\n", wide, h, columns)
			heading = h
		}
		fmt.Fprintf(tw, "%-*s\t%s\t  %s\n", wide, "  "+row.Pipeline, strings.Join(r.logCells(row), "\t"), strings.Join(row.notes(), ", "))
	}
	r.writeRecoveries(tw, wide)
}

func (r *LogReport) logCells(row LogResult) []string {
	toRaw, toBest := "-", "-"
	if raw, ok := r.find(RawLogName, row.Clients, row.Groups); ok {
		toRaw = fmt.Sprintf("%.2f", ratio(row.OpsPerSec, raw.OpsPerSec))
	}
	if best, ok := r.bestOther(row.Clients, row.Groups); ok && row.Pipeline != RawLogName {
		toBest = fmt.Sprintf("%.2f", ratio(row.OpsPerSec, best.OpsPerSec))
	}
	return []string{
		count(row.OpsPerSec), fmt.Sprintf("%.1f", row.MBPerSec), latency(row.P50Us), latency(row.P99Us),
		optional(row.FsyncsPerOp, 3), optional(row.EntriesPerFsync, 1), optional(row.CPUUsPerOp, 1), toRaw, toBest,
	}
}

func (r *LogReport) writeRecoveries(tw *tabwriter.Writer, wide int) {
	heading := false
	read, _ := r.find(RawLogName, 0, 1)
	for _, row := range r.Rows {
		if !row.isRecovery() {
			continue
		}
		if !heading {
			fmt.Fprintf(tw, "%-*s\t%s\t\n", wide, fmt.Sprintf("open a log of %d MiB", r.Plan.RecoverBytes>>20), strings.Repeat("\t", len(logColumns)-1))
			heading = true
		}
		cells := make([]string, len(logColumns))
		cells[1], cells[2], cells[6] = fmt.Sprintf("%.0f", row.MBPerSec), latency(row.MeanUs), optional(row.CPUUsPerOp, 2)
		var notes []string
		switch {
		case row.Pipeline == RawLogName:
			notes = append(notes, "read + CRC32C")
		case read.MBPerSec > 0 && row.MBPerSec > read.MBPerSec:
			notes = append(notes, "does not read it all")
		}
		if row.PeakBytes > 0 {
			notes = append(notes, fmt.Sprintf("%d MiB at most, %d open files", row.PeakBytes>>20, row.Descriptors))
		}
		fmt.Fprintf(tw, "%-*s\t%s\t  %s\n", wide, "  "+row.Pipeline, strings.Join(cells, "\t"), strings.Join(notes, ", "))
	}
}

// aim is one thing that our log is meant to reach.
type aim struct {
	what string
	have string
	met  bool
}

// The aims of the log: see docs/decisions/0004.
const (
	aimSingle      = 0.9
	aimBandwidth   = 0.7
	aimOther       = 2.0
	aimRecoveryMB  = 1000
	aimGroups      = 0.95 // "no slower", within what two runs differ by
	aimedAppenders = 1000
)

// aims compares the rows that are there with the aims.
func (r *LogReport) aims() []aim {
	var aims []aim
	add := func(what, have string, value, want float64) {
		aims = append(aims, aim{what: what, have: have, met: value >= want})
	}
	against := func(what string, own, other LogResult, value, want float64) {
		add(what, fmt.Sprintf("%.2f (%s of %s ops/s)", value, count(own.OpsPerSec), count(other.OpsPerSec)), value, want)
	}
	for _, a := range []struct {
		appenders int
		what      string
		want      float64
	}{
		{1, "one appender ≥ 0.9 × raw", aimSingle},
		{aimedAppenders, "1,000 appenders ≥ 0.7 × raw", aimBandwidth},
	} {
		own, ok := r.find(OwnLogName, a.appenders, 1)
		raw, okRaw := r.find(RawLogName, a.appenders, 1)
		if ok && okRaw {
			against(a.what, own, raw, ratio(own.OpsPerSec, raw.OpsPerSec), a.want)
		}
	}
	own, ok := r.find(OwnLogName, aimedAppenders, 1)
	if best, okBest := r.bestOther(aimedAppenders, 1); ok && okBest {
		against("1,000 appenders ≥ 2 × best other ("+best.Pipeline+")", own, best, ratio(own.OpsPerSec, best.OpsPerSec), aimOther)
	}
	if own, ok := r.find(OwnLogName, 0, 1); ok {
		perCPU := ratio(float64(own.ValueBytes)/1e3, own.CPUUsPerOp)
		add("recovery ≥ 1 GB/s", fmt.Sprintf("%.2f GB/s (%.2f a CPU second)", own.MBPerSec/1e3, perCPU), own.MBPerSec, aimRecoveryMB)
	}
	for _, row := range r.Rows {
		one, ok := r.find(OwnLogName, row.Clients, 1)
		if row.Pipeline == OwnLogName && row.Groups > 1 && ok && !row.isRecovery() {
			what := fmt.Sprintf("%d groups no slower than one, %s", row.Groups, plural(row.Clients, "appender"))
			against(what, row, one, ratio(row.OpsPerSec, one.OpsPerSec), aimGroups)
		}
	}
	return aims
}

func (r *LogReport) writeAims(b *strings.Builder) {
	aims := r.aims()
	if len(aims) == 0 {
		return
	}
	b.WriteString("\naims of our log, in this run\n")
	for _, a := range aims {
		verdict := "met"
		if !a.met {
			verdict = "NOT met"
		}
		fmt.Fprintf(b, "  %-50s %-34s %s\n", a.what, a.have, verdict)
	}
}

func (r *LogReport) writeNotes(b *strings.Builder) {
	b.WriteString(`
Every append is acknowledged after an fsync that covers it, in every row; what was acknowledged and not compacted was read
back from the log, opened again. Batches are made by one loop for all; with many groups, raft-wal, etcd-wal and bbolt have a log
and a loop for each. raw file: preallocated, zeroed, overwritten for ever, one direct write and one fdatasync a batch.
Appenders, loop and log share the CPU: each row is a process of its own, and CPU is all of it.
`)
	fmt.Fprintf(b, "Each log was filled before, and is compacted to about %d MiB while it runs. fsync/op counts files and directories.\n", r.Plan.KeepBytes>>20)
	writeWarnings(b, r.Env)
	for _, m := range r.Missing {
		fmt.Fprintf(b, "NOT MEASURED: %s\n", m)
	}
}

// writeWarnings writes what makes a run less than it seems.
func writeWarnings(b *strings.Builder, e Environment) {
	if e.Filesystem == tmpfs {
		fmt.Fprintf(b, "WARNING: %s is in memory (tmpfs): its fsync costs nothing and keeps nothing. Give --dir on a real disk.\n", e.Dir)
	}
	if e.Load1 > float64(e.Cores)/2 {
		fmt.Fprintf(b, "WARNING: the machine was busy before the run (load average %.2f on %s).\n", e.Load1, plural(e.Cores, "core"))
	}
}
