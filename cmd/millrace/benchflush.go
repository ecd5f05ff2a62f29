package main

import (
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// flushFlags is the command line of bench flush, before it is a lab.FlushPlan.
type flushFlags struct {
	plan       lab.FlushPlan
	valueBytes string
	fsyncDelay string
	out        string
	quick      bool
	quiet      bool
	json       bool
}

const benchFlushLong = `bench flush measures when a log lets an append count: a cluster of three nodes, under each durability mode, on fast disks,
on slow ones, and with a slow disk at the leader alone; with small values and large ones; and with the leader's clamp, as
Apache Ratis has it (no answer before the leader's own disk has the command too), and without.

It is the comparison of RATIS-1545, in which a safe asynchronous flush seemed useless. The table says why, and when it wins.

  sync, in the consensus loop   pipeline basic: everything waits for each flush.
  sync                          pipeline async; the log's worker writes and flushes in one step.
  group                         the default: one flush for all that waited; nobody blocks on it.
  group-delay 3ms               a flush may wait up to 3 ms for more.
  unsafe-interval 3s            answers before the flush. NOT durable: beside the others to show what that buys.

After each point it checks that all nodes hold the same, and every acknowledged write exactly once.
Exit status: as of bench.`

const benchFlushExample = `  millrace bench flush --quick                  everything, briefly
  millrace bench flush --fsync-delay 30ms       a cloud volume
  millrace bench flush --runs 3 --out flush     medians of three rounds, results.json in flush`

func newBenchFlush(w world) *cobra.Command {
	var f flushFlags
	cmd := &cobra.Command{
		Use:     "flush",
		Short:   "Measure the durability modes, and what waiting for the leader's own disk costs",
		Long:    benchFlushLong,
		Example: benchFlushExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := f.read(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return f.bench(cmd, plan, w)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&f.plan.Clients, "clients", 10, "clients, each with one write outstanding; RATIS-1545 had 10")
	flags.StringVar(&f.valueBytes, "value-bytes", "1024,1048576", "sizes of a value")
	flags.IntVar(&f.plan.Nodes, "nodes", 3, "voters of the cluster")
	flags.StringVar(&f.fsyncDelay, "fsync-delay", "10ms", "what a slow disk adds to every fsync")
	flags.DurationVar(&f.plan.Duration, "duration", 2*time.Second, "how long each point is measured")
	flags.DurationVar(&f.plan.Warmup, "warmup", 500*time.Millisecond, "how long each point runs before that")
	flags.IntVar(&f.plan.Runs, "runs", 1, "rounds over everything; the table shows medians")
	flags.StringVar(&f.plan.Dir, "dir", "", "where to put the logs: a new folder in DIR, removed at the end (default: the temporary\ndirectory, or the current one if that is in memory)")
	flags.StringVar(&f.out, "out", "", "write results.json to this directory")
	flags.BoolVar(&f.quick, "quick", false, "everything within about a minute")
	flags.Uint64Var(&f.plan.Seed, "seed", 1, "of the values")
	flags.BoolVar(&f.quiet, "quiet", false, "no progress")
	flags.BoolVar(&f.json, "json", false, "print the rows as JSON instead of a table")
	return cmd
}

// read translates the flags. Errors are the user's.
func (f flushFlags) read(changed func(string) bool) (lab.FlushPlan, error) {
	p := f.plan
	if f.quick {
		quick(changed, "duration", &p.Duration, 500*time.Millisecond)
		quick(changed, "warmup", &p.Warmup, 200*time.Millisecond)
	}
	var err error
	if p.ValueBytes, err = list("--value-bytes", f.valueBytes, strconv.Atoi); err != nil {
		return p, err
	}
	if p.Delay, err = delay(f.fsyncDelay); err != nil {
		return p, err
	}
	return p, p.Check()
}

func (f flushFlags) bench(cmd *cobra.Command, plan lab.FlushPlan, w world) error {
	if f.out != "" {
		if err := lab.CheckOut(f.out, (*lab.FlushReport)(nil)); err != nil {
			return err
		}
	}
	report, err := lab.RunFlush(cmd.Context(), plan, lab.NewProgress(w.stderr, f.quiet))
	if report == nil {
		return err
	}
	return errors.Join(writeReport(report, f.json, f.out, w), err)
}
