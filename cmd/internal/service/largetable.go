package service

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// StallAim is how many times the p99 of the puts before a compaction the slowest beside its sweep may take.
const StallAim = 5

// WriteTable writes what was found, for a reader.
func (r *LargeReport) WriteTable(w io.Writer) error {
	p := r.Plan
	fmt.Fprintf(w, "%s: %s of values of %d bytes, %d keys and the other values overwrite them; %d members, %d clients on the same machine.\n\n",
		p.System.Name, size(p.Bytes), p.ValueBytes, r.Keys, p.Members, p.Clients)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\toperations\tops/s\tMiB/s\tp50\tp99\tmax\tfailed\t\n")
	rows := []struct {
		name string
		l    Latency
	}{
		{"writes", r.Writes}, {"gets, cold", r.Gets}, {"puts before", r.Before}, {"puts beside the sweep", r.During}, {"puts after", r.After}, {"gets after, cold", r.GetsAfter},
	}
	for _, row := range rows {
		if l := row.l; l.Count > 0 || l.Failures > 0 {
			fmt.Fprintf(t, "%s\t%d\t%.0f\t%.1f\t%v\t%v\t%v\t%d\t\n", row.name, l.Count, l.Rate, l.Rate*float64(p.ValueBytes)/(1<<20), short(l.P50), short(l.P99), short(l.Max), l.Failures)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if r.DiskWritten != nil {
		fmt.Fprintf(w, "written in %v; disk then: %s\n", r.WriteTime.Round(time.Millisecond), r.disk(r.DiskWritten))
	}
	if r.Restart > 0 {
		fmt.Fprintf(w, "from the start after SIGKILL, with cold files, to a linearizable read: %v\n", r.Restart.Round(time.Millisecond))
	}
	if r.Swept > 0 {
		fmt.Fprintf(w, "compacted and swept in %v, under %d puts/s; the slowest put took %.1f × the p99 of before (aim: %d)\n",
			r.Swept.Round(time.Millisecond), r.Rate, float64(r.During.Max)/max(1, float64(r.Before.P99)), StallAim)
	}
	if r.DiskSwept != nil {
		fmt.Fprintf(w, "disk at the end: %s\n", r.disk(r.DiskSwept))
	}
	_, err := fmt.Fprintf(w, "RSS after the writes %s, restarted %s, at the end %s, at most %s\n", size(r.MemoryWritten), size(r.MemoryStarted), size(r.MemoryEnd), size(r.MemoryMost))
	for _, row := range rows {
		if row.l.Failures > 0 {
			fmt.Fprintf(w, "%s: %d operations failed; the first: %s\n", row.name, row.l.Failures, row.l.FirstFail)
		}
	}
	if r.Partial {
		fmt.Fprintln(w, "The run was cut short.")
	}
	return err
}

// disk writes places, beside the bytes of the values.
func (r *LargeReport) disk(all []Place) string {
	var each []string
	for _, p := range all {
		each = append(each, p.Name+" "+size(p.Bytes))
	}
	return fmt.Sprintf("%s, %.2f × the values that were written (%s)", size(total(all)), float64(total(all))/float64(max(1, r.Plan.Bytes)*int64(max(1, r.Plan.Members))), strings.Join(each, ", "))
}

// WriteJSON writes the report as JSON.
func (r *LargeReport) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
