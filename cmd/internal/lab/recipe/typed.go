package recipe

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// typed is what the typed API costs, and what each way to read does (typedround.go). A ratio is of windows of
// one round.
var typed = design[typedScale]{
	name:     "node",
	question: "What does the typed API cost beside that of bytes, and how fast is each way to write and to read?",
	source:   "ours: the APIs of packages millrace and host",
	hosts:    3,
	plan:     scaleTyped,
	about: func(c typedScale) time.Duration {
		return times(c.rounds*len(c.clients), times(len(typedWays), c.warmup+c.length+aboutDrain)+aboutCluster)
	},
	needMiB: func(s Size) int {
		c := scaleTyped(s)
		return 256 + int(3*typedBytesPerSecond*(time.Duration(len(typedWays))*(c.warmup+c.length)).Seconds())>>20
	},
	omits: omissions{
		full:   "three of five rounds, windows of 2 s",
		short:  "four of five rounds, windows of 2 s",
		always: []string{"latencies of reads, beside the mean; values of other sizes than 1 KiB"},
	},
	metrics: []archive.Metric{archive.AllocsPerOp, experiment.RateRatio, cpuRatio, allocsRatio},
	steps:   func(c typedScale) int { return c.rounds * len(c.clients) * len(typedWays) },
	measure: measureTyped,
	judge:   judgeTyped,
}

// Metrics of a way: by that of bytes, in the same round.
var (
	cpuRatio    = archive.Metric{Name: "cpu_ratio", Unit: archive.UnitRatio, Better: archive.BetterLower, Meaning: "processor time of an operation by that of a write of bytes"}
	allocsRatio = archive.Metric{Name: "allocs_ratio", Unit: archive.UnitRatio, Better: archive.BetterLower, Meaning: "allocations of an operation by those of a write of bytes"}
)

// typedScale is how much of it is made.
type typedScale struct {
	clients        []int
	rounds         int
	warmup, length time.Duration
}

func scaleTyped(size Size) typedScale {
	return typedScale{
		clients: pick(size, []int{1, 16, 100, 1000}, []int{16, 100}, []int{2, 5}),
		rounds:  pick(size, orLong(size, 2, 5), 1, 1),
		warmup:  pick(size, orLong(size, 300*time.Millisecond, 500*time.Millisecond), 300*time.Millisecond, time.Millisecond),
		length:  pick(size, orLong(size, time.Second, 2*time.Second), time.Second, 10*time.Millisecond),
	}
}

func measureTyped(ctx context.Context, s *run, c typedScale) error {
	for _, clients := range c.clients { // the order of the report
		for _, way := range typedWays {
			s.Point(typedPoint(way, clients), typedLabels(way, clients))
		}
	}
	return experiment.Shuffled(s.Session, c.rounds, c.clients, func(round, clients int) error {
		err := together(s, len(typedWays), len(typedWays), func() ([]typedResult, error) {
			r := typedRound{Clients: clients, ValueBytes: b0Value, Hosts: 3, Duration: c.length, Warmup: c.warmup, Seed: s.Seed + uint64(round)}
			return inFreshDir(s.Session, func(dir string) ([]typedResult, error) {
				return r.Run(ctx, dir, s.Progress, func(w typedWay) { s.step(typedPoint(w, clients), c.warmup+c.length) })
			})
		}, func(rows []typedResult, began time.Time, partial bool) {
			putTyped(s.Session, rows, clients, began, partial)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", report.Plural(clients, "client"), err)
		}
		return nil
	})
}

// putTyped makes the rows of a round repeats: all of them, as a ratio is by the first.
func putTyped(s *experiment.Session, rows []typedResult, clients int, began time.Time, partial bool) {
	if partial {
		return
	}
	first := rows[0]
	for _, row := range rows {
		repeat := rowRepeat(s, row.Result, began)
		setRatio(repeat.Figures, experiment.RateRatio, row.OpsPerSec, first.OpsPerSec)
		setRatio(repeat.Figures, cpuRatio, row.CPUUsPerOp, first.CPUUsPerOp)
		setRatio(repeat.Figures, allocsRatio, row.AllocsPerOp, first.AllocsPerOp)
		s.Put(typedPoint(row.Way, clients), typedLabels(row.Way, clients), repeat)
	}
}

func typedPoint(way typedWay, clients int) string {
	return fmt.Sprintf("%s, %s", way, report.Plural(clients, "client"))
}

func typedLabels(way typedWay, clients int) map[string]string {
	return labelled(three(), "async", archive.LabelOperation, string(way), archive.LabelClients, strconv.Itoa(clients), archive.LabelValueBytes, strconv.Itoa(b0Value))
}

func judgeTyped(s *experiment.Session, c typedScale) {
	for _, clients := range c.clients {
		of := report.Plural(clients, "client")
		judge(s,
			demand{of + ": a write through the typed API by one of bytes", experiment.RateRatio, typedPoint(writeCommitted, clients), "", chosen(atLeast(0.8, " ×"))},
			demand{of + ": reads by lease by reads that ask a quorum", archive.OpsPerSec, typedPoint(readByLease, clients), typedPoint(readLinearizable, clients), chosen(atLeast(2, " ×"))})
	}
}
