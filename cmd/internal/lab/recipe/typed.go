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
var typed = Recipe{
	Name:     "node",
	Question: "What does the typed API cost beside that of bytes, and how fast is each way to write and to read?",
	Source:   "ours: the APIs of packages millrace and host",
	Hosts:    3,
	NeedMiB: func(s Size) int {
		c := scaleTyped(s)
		return 256 + int(3*typedBytesPerSecond*(time.Duration(len(typedWays))*(c.warmup+c.length)).Seconds())>>20
	},
	About: aboutTyped,
	Run:   runTyped,
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

func aboutTyped(size Size) time.Duration {
	c := scaleTyped(size)
	return times(c.rounds*len(c.clients), times(len(typedWays), c.warmup+c.length+aboutDrain)+aboutCluster)
}

func runTyped(ctx context.Context, s *experiment.Session, size Size) error {
	c := scaleTyped(size)
	if size != Long {
		s.Omit("%s of five rounds, windows of 2 s", pick(size, "three", "four", "four"))
	}
	s.Omit("latencies of reads, beside the mean; values of other sizes than 1 KiB")
	s.Declare(archive.AllocsPerOp, experiment.RateRatio, cpuRatio, allocsRatio)
	p := begin(s, c.rounds*len(c.clients)*len(typedWays))
	defer p.end()
	for _, clients := range c.clients { // the order of the report
		for _, way := range typedWays {
			s.Point(typedPoint(way, clients), typedLabels(way, clients))
		}
	}
	err := experiment.Shuffled(s, c.rounds, c.clients, func(round, clients int) error {
		if p.passed(len(typedWays), len(typedWays)) { // they are finished together
			return nil
		}
		began := time.Now()
		r := typedRound{Clients: clients, ValueBytes: b0Value, Hosts: 3, Duration: c.length, Warmup: c.warmup, Seed: s.Seed + uint64(round)}
		rows, err := inFreshDir(s, func(dir string) ([]typedResult, error) {
			return r.Run(ctx, dir, s.Progress, func(w typedWay) { p.step(typedPoint(w, clients), c.warmup+c.length) })
		})
		if err != nil {
			return fmt.Errorf("%s: %w", report.Plural(clients, "client"), err)
		}
		first := rows[0]
		for _, row := range rows {
			repeat := rowRepeat(s, row.Result, began)
			setRatio(repeat.Figures, experiment.RateRatio, row.OpsPerSec, first.OpsPerSec)
			setRatio(repeat.Figures, cpuRatio, row.CPUUsPerOp, first.CPUUsPerOp)
			setRatio(repeat.Figures, allocsRatio, row.AllocsPerOp, first.AllocsPerOp)
			s.Put(typedPoint(row.Way, clients), typedLabels(row.Way, clients), repeat)
		}
		return s.Save()
	})
	if err != nil {
		return err
	}
	judgeTyped(s, c.clients)
	return nil
}

func typedPoint(way typedWay, clients int) string {
	return fmt.Sprintf("%s, %s", way, report.Plural(clients, "client"))
}

func typedLabels(way typedWay, clients int) map[string]string {
	labels := experiment.Labels(three(), "async")
	labels[archive.LabelOperation], labels[archive.LabelClients], labels[archive.LabelValueBytes] = string(way), strconv.Itoa(clients), strconv.Itoa(b0Value)
	return labels
}

func judgeTyped(s *experiment.Session, all []int) {
	for _, clients := range all {
		of := report.Plural(clients, "client")
		judgeFigure(s, typedPoint(writeCommitted, clients), of+": a write through the typed API by one of bytes", experiment.RateRatio, "≥ 0.8 ×", experiment.AtLeast(0.8))
		lease, ok := s.Ratio(archive.OpsPerSec.Name, typedPoint(readByLease, clients), typedPoint(readLinearizable, clients))
		s.Judge(experiment.Criterion{Name: of + ": reads by lease by reads that ask a quorum", Point: typedPoint(readByLease, clients), Limit: "≥ 2 ×", Unit: archive.UnitRatio, Holds: experiment.AtLeast(2)}, lease, ok, "one of the two was not measured")
	}
}
