package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/node"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// nodeFlags is the command line of bench node, before it is a node.Plan.
type nodeFlags struct {
	plan    node.Plan
	clients string
	ways    string
	quick   bool
	output
}

var benchNodeLong = `bench node measures the typed API, package millrace: writes beside the same writes through the API of bytes, package
host, on the same hosts; forwarded writes; and reads of every consistency. The ways take turns, window by window.

After each window of writes it checks that all hosts hold the same, and every acknowledged write exactly once; a read
that misses a write that was acknowledged before the window ends the run.

An interrupted run prints the rows of the numbers of clients that were finished, marked partial. No files stay behind,
except those of --out.

` + benchExitHelp(benchStatuses...)

const benchNodeExample = `  millrace bench node --quick                               every way, briefly, within a minute
  millrace bench node --ways bytes,committed --runs 9       what the typed API costs
  millrace bench node --ways propose,lease --clients 100    writes beside reads by lease
  millrace bench node --json --dir /mnt/nvme                the rows as JSON, on another disk`

func newBenchNode(a app) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:     "node",
		Short:   "Measure the typed API: writes, forwarded writes, reads",
		Long:    benchNodeLong,
		Example: benchNodeExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := f.read(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return measure(cmd, f.output, a, (*node.Report)(nil), func(ctx context.Context, p report.Progress) (*node.Report, error) {
				return node.Run(ctx, plan, p)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.clients, "clients", "1,16,100,1000", "numbers of clients, each with one operation outstanding")
	flags.StringVar(&f.ways, "ways", "", fmt.Sprintf("what clients do, of %s; the first is what the others are compared with (default all)", wayNames()))
	flags.IntVar(&f.plan.ValueBytes, "value-bytes", 1024, fmt.Sprintf("size of a value, %d or more", load.MinValueBytes))
	flags.IntVar(&f.plan.Hosts, "nodes", 3, "hosts of the cluster")
	flags.DurationVar(&f.plan.Duration, "duration", 2*time.Second, "how long each window is")
	flags.DurationVar(&f.plan.Warmup, "warmup", 500*time.Millisecond, "how long the load runs before each window")
	flags.IntVar(&f.plan.Runs, "runs", 5, "windows of each way; the table shows medians")
	flags.StringVar(&f.plan.Dir, "dir", "", dirHelp)
	flags.StringVar(&f.out, "out", "", "write results.json to this directory")
	flags.BoolVar(&f.quick, "quick", false, "16 and 100 clients and one window of each way, within a minute")
	flags.Uint64Var(&f.plan.Seed, "seed", 1, "of the values")
	f.addFlags(cmd)
	return cmd
}

func wayNames() string {
	var names []string
	for _, w := range node.AllWays {
		names = append(names, w.String())
	}
	return strings.Join(names, ",")
}

// read translates the flags. Errors are the user's.
func (f nodeFlags) read(changed func(string) bool) (node.Plan, error) {
	p := f.plan
	if f.quick {
		quick(changed, "clients", &f.clients, "16,100")
		quick(changed, "duration", &p.Duration, time.Second)
		quick(changed, "warmup", &p.Warmup, 300*time.Millisecond)
		quick(changed, "runs", &p.Runs, 1)
	}
	var err error
	if p.Clients, err = list("clients", f.clients, strconv.Atoi); err != nil {
		return p, err
	}
	if p.Ways = node.AllWays; f.ways != "" {
		if p.Ways, err = list("ways", f.ways, node.ParseWay); err != nil {
			return p, err
		}
	}
	return p, p.Validate()
}
