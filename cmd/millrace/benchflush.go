package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab/flush"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// flushFlags is the command line of bench flush, before it is a flush.Plan.
type flushFlags struct {
	plan       flush.Plan
	valueBytes string
	fsyncDelay string
	quick      bool
	output
}

var benchFlushLong = `bench flush measures when a log lets an append count: a cluster of three hosts, under each durability mode, on
fast disks, on slow ones, and with a slow disk at the leader alone; with small values and large ones; with the
leader's clamp, as Apache Ratis has it (no answer before the leader's disk has the command too), and without.

It is the comparison of RATIS-1545, in which a safe asynchronous flush seemed useless. The table says why, and when
it wins.

  sync, in the consensus loop   pipeline basic: everything waits for each flush.
  sync                          pipeline async; the log's worker writes and flushes in one step.
  group                         the default: one flush for all that waited; it blocks nothing else.
  group-delay 3ms               a flush may wait up to 3 ms for more.
  unsafe-interval 3s            answers before the flush. NOT durable: in the table to show what that gains.

After each point it checks that all hosts hold the same, and every acknowledged write exactly once.

` + benchExitHelp(benchStatuses...)

const benchFlushExample = `  millrace bench flush --quick                  everything, briefly
  millrace bench flush --fsync-delay 30ms       a cloud volume
  millrace bench flush --runs 3 --out flush     medians of three rounds, results.json in flush`

func newBenchFlush(a app) *cobra.Command {
	var f flushFlags
	cmd := &cobra.Command{
		Use:     "flush",
		Short:   "Measure the durability modes, and what it costs to wait for the leader's disk",
		Long:    benchFlushLong,
		Example: benchFlushExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := f.read(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return measure(cmd, f.output, a, (*flush.Report)(nil), func(ctx context.Context, p report.Progress) (*flush.Report, error) {
				return flush.Run(ctx, plan, p)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&f.plan.Clients, "clients", 10, "clients, each with one write outstanding; RATIS-1545 had 10")
	flags.StringVar(&f.valueBytes, "value-bytes", "1024,1048576", "sizes of a value")
	flags.IntVar(&f.plan.Hosts, "nodes", 3, "hosts of the cluster, all of them voters")
	flags.StringVar(&f.fsyncDelay, "fsync-delay", "10ms", "what a slow disk adds to every fsync")
	flags.DurationVar(&f.plan.Duration, "duration", 2*time.Second, "how long each point is measured")
	flags.DurationVar(&f.plan.Warmup, "warmup", 500*time.Millisecond, "how long each point runs before that")
	flags.IntVar(&f.plan.Runs, "runs", 1, "rounds over everything; the table shows medians")
	flags.StringVar(&f.plan.Dir, "dir", "", dirHelp)
	flags.StringVar(&f.out, "out", "", "write results.json to this directory")
	flags.BoolVar(&f.quick, "quick", false, "everything within about a minute")
	flags.Uint64Var(&f.plan.Seed, "seed", 1, "of the values")
	f.addFlags(cmd)
	return cmd
}

// read translates the flags. Errors are the user's.
func (f flushFlags) read(changed func(string) bool) (flush.Plan, error) {
	p := f.plan
	if f.quick {
		quick(changed, "duration", &p.Duration, 500*time.Millisecond)
		quick(changed, "warmup", &p.Warmup, 200*time.Millisecond)
	}
	var err error
	if p.ValueBytes, err = list("value-bytes", f.valueBytes, strconv.Atoi); err != nil {
		return p, err
	}
	if p.FsyncDelay, err = delay(f.fsyncDelay); err != nil {
		return p, err
	}
	return p, p.Validate()
}
