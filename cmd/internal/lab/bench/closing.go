package bench

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// usualClients is the closed loop that the last sentence prefers.
const usualClients = 100

// writeClosing ends the table with one sentence: how many writes, how soon, and what that is of the baseline.
func (r *Report) writeClosing(b *strings.Builder) {
	bare, best := report.Result{}, report.Result{}
	far := func(row report.Result) int { return max(row.Clients-usualClients, usualClients-row.Clients) }
	for _, row := range r.Rows {
		if IsBaseline(row.Pipeline) || isLimit(row) || row.Ops == 0 {
			continue
		}
		if best.Ops == 0 || far(row) < far(best) || far(row) == far(best) && row.Pipeline == "async" {
			best = row
		}
	}
	for _, row := range r.Rows {
		if row.Pipeline == BareName && row.Clients == best.Clients && row.Rate == best.Rate {
			bare = row
		}
	}
	switch {
	case best.Ops == 0:
		b.WriteString("\nNo pipeline was measured, only what this machine can do.\n")
		return
	case best.Rate > 0:
		fmt.Fprintf(b, "\n%s: %s of %s writes/s offered, p99 %s", best.Pipeline, report.Count(best.OpsPerSec), report.Count(best.Rate), report.Latency(best.P99Us))
		if bare.Ops > 0 {
			fmt.Fprintf(b, ", %.2g times the latency of the same writes without Raft", report.Ratio(best.MeanUs, bare.MeanUs))
		}
	default:
		fmt.Fprintf(b, "\n%s: %s writes/s at %s, p99 %s", best.Pipeline, report.Count(best.OpsPerSec), report.Plural(best.Clients, "client"), report.Latency(best.P99Us))
		if bare.Ops > 0 {
			fmt.Fprintf(b, ", %.2g of what this disk and network can do without Raft", report.Ratio(best.OpsPerSec, bare.OpsPerSec))
		}
	}
	b.WriteString(".\n")
}
