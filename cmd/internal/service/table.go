package service

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// WriteTable writes the rows, each with its ratios to the row of the first system under the same load.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	base := ""
	if len(r.Plan.Systems) > 0 {
		base = r.Plan.Systems[0].Name
	}
	fmt.Fprintf(t, "load\tclients\tsystem\tops/s\tmean\tp50\tp99\tCPU µs/op\tRSS MiB\tops ÷ %s\tmean ÷\tp99 ÷\tCPU ÷\tRSS ÷\t\n", base)
	for _, row := range r.Rows {
		fmt.Fprintf(t, "%s\t%d\t%s\t%.0f\t%v\t%v\t%v\t%.1f\t%d\t", row.Load.Kind, row.Load.Clients, row.System, row.Ops,
			short(row.Mean), short(row.P50), short(row.P99), float64(row.CPU)/float64(time.Microsecond), row.Memory>>20)
		if b := r.row(row.Load, base); b != nil && row.System != base {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t", ratio(row.Ops, b.Ops), ratio(float64(row.Mean), float64(b.Mean)), ratio(float64(row.P99), float64(b.P99)),
				ratio(float64(row.CPU), float64(b.CPU)), ratio(float64(row.Memory), float64(b.Memory)))
		} else {
			fmt.Fprint(t, "\t\t\t\t\t")
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, row := range r.Rows {
		if row.Failures > 0 {
			fmt.Fprintf(w, "%s under %v: %d operations failed; the first: %s\n", row.System, row.Load, row.Failures, row.FirstFail)
		}
	}
	for _, m := range r.Plan.Missing {
		fmt.Fprintf(w, "not measured: %s\n", m)
	}
	to := "all members in turn"
	if r.Plan.ToLeader {
		to = "the leader"
	}
	_, err := fmt.Fprintf(w, "%d members, clients on the same machine and connected to %s; medians of %d rounds of %v.\n", r.Plan.Members, to, r.Plan.Rounds, r.Plan.Duration)
	if r.Partial {
		fmt.Fprintln(w, "The run was cut short: the rows are those that were finished.")
	}
	return err
}

func (r *Report) row(l Load, system string) *Row {
	for i := range r.Rows {
		if r.Rows[i].Load == l && r.Rows[i].System == system {
			return &r.Rows[i]
		}
	}
	return nil
}

func ratio(a, b float64) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", a/b)
}

func short(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}

// WriteJSON writes the rows as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
