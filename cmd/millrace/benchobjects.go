package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	objectlab "github.com/millrace/millrace/cmd/internal/lab/objects"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// objectFlags is the command line of bench objects, before it is a plan.
type objectFlags struct {
	plan  objectlab.Plan
	bytes string
	quick bool
	output
}

var benchObjectsLong = `bench objects measures large objects: bytes that are stored beside the log. In each round it starts a cluster of hosts in
this process, on loopback TCP, each host with its log and its objects on the same real disk, and measures in turn, in
each round in another order:

  raw       as many files as there are hosts, written at the same time and in the way in which a host writes an object
  upload    one object, until Upload has returned, and until every host holds it
  together  several uploads at once, from all hosts
  alone     small commands, in an open loop
  beside    the same, beside uploads, one after another

It prints the throughput of uploads beside that of the raw files, the latency of small commands beside uploads and
without, and how much the heap of this process grows for each upload under way.

Objects are read on every host and compared with what was uploaded. After each window it checks that all hosts hold the
same, and every acknowledged write exactly once.

An interrupted run prints the rounds that were finished, marked partial. No files stay behind, except those of --out.

` + benchExitHelp(benchStatuses...)

const benchObjectsExample = `  millrace bench objects --quick                         16 MiB, one round, within about half a minute
  millrace bench objects --rounds 9                      a busy disk needs more rounds
  millrace bench objects --bytes 1GiB --uploads 2        large ones
  millrace bench objects --json --dir /mnt/nvme          the rows as JSON, on another disk`

func newBenchObjects(a app) *cobra.Command {
	var f objectFlags
	cmd := &cobra.Command{
		Use:     "objects",
		Short:   "Measure uploads of large objects, and small commands beside them",
		Long:    benchObjectsLong,
		Example: benchObjectsExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := f.read(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return measure(cmd, f.output, a, (*objectlab.Report)(nil), func(ctx context.Context, p report.Progress) (*objectlab.Report, error) {
				return objectlab.Run(ctx, plan, p)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.bytes, "bytes", "128MiB", "size of an object: 64MiB, 1GiB")
	flags.IntVar(&f.plan.Uploads, "uploads", 8, "how many uploads are under way at once in the way together")
	flags.Float64Var(&f.plan.Rate, "rate", 2000, "small commands per second to offer; far below the peak")
	flags.IntVar(&f.plan.ValueBytes, "value-bytes", 100, fmt.Sprintf("size of a small command, %d or more", load.MinValueBytes))
	flags.IntVar(&f.plan.Hosts, "nodes", 3, "hosts of the cluster, all of them voters")
	flags.DurationVar(&f.plan.Duration, "duration", 5*time.Second, "how long each window of small commands is at least")
	flags.DurationVar(&f.plan.Warmup, "warmup", time.Second, "how long they run before each window")
	flags.IntVar(&f.plan.Rounds, "rounds", 3, "how often each way is measured; the table shows medians")
	flags.StringVar(&f.plan.Dir, "dir", "", dirHelp)
	flags.StringVar(&f.out, "out", "", "write results.json to this directory")
	flags.BoolVar(&f.quick, "quick", false, "objects of 16 MiB and one round, within about half a minute")
	flags.Uint64Var(&f.plan.Seed, "seed", 1, "of the contents, of the open loop's schedule and of the order of the ways")
	f.addFlags(cmd)
	return cmd
}

// read translates the flags. Errors are the user's.
func (f objectFlags) read(changed func(string) bool) (p objectlab.Plan, err error) {
	p = f.plan
	if f.quick {
		quick(changed, "bytes", &f.bytes, "16MiB")
		quick(changed, "duration", &p.Duration, 2*time.Second)
		quick(changed, "warmup", &p.Warmup, 300*time.Millisecond)
		quick(changed, "rounds", &p.Rounds, 1)
	}
	if p.ObjectBytes, err = byteSize("bytes", f.bytes); err != nil {
		return p, err
	}
	return p, p.Validate()
}
