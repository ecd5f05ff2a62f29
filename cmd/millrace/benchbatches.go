package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab/batches"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// batchesFlags is the command line of bench batches, before it is a batches.Plan.
type batchesFlags struct {
	plan                           batches.Plan
	delays, syncs, clients, shares string
	quick                          bool
	output
}

var benchBatchesLong = `bench batches compares rules that say when a leader begins its next batch while earlier ones are not committed:
at once, at a fixed depth, halfway through the measured round, when the followers have received the batch before, by a
window of bytes, or by the stages of a round. The dissertation leaves that question open (section 10.2.2).

Three hosts with their real log, framing and core run in virtual time, on a model of networks, disks and processors.
So the figures are the same on every machine, and nothing else that this machine does has a part in them. They say
which rule waits less, not how fast this machine is.

The rule with the least sum of p99 ratios over all networks, disks and loads wins. --out writes every cell as JSON,
CSV and text, and one plot for each network.

An interrupted run prints the networks and disks that were finished, marked partial.

` + benchExitHelp(benchStatuses...)

const benchBatchesExample = `  millrace bench batches --quick                  two networks and three disks, within about a minute
  millrace bench batches --out r                  the full grid, with curves, within about ten minutes
  millrace bench batches --delays 2ms --syncs 4ms one network and disk: yours
  millrace bench batches --processors 1 --cost 300   hosts on which a batch costs six times as much of all they have`

func newBenchBatches(a app) *cobra.Command {
	var f batchesFlags
	cmd := &cobra.Command{
		Use:     "batches",
		Short:   "Compare rules for when a leader begins its next batch, in virtual time",
		Long:    benchBatchesLong,
		Example: benchBatchesExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := f.read(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return measure(cmd, f.output, a, (*batches.Report)(nil), func(ctx context.Context, p report.Progress) (*batches.Report, error) {
				return batches.Run(ctx, plan, p)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	full := batches.Full()
	flags.StringVar(&f.delays, "delays", listed(full.Delays), "delays of the network, one way")
	flags.StringVar(&f.syncs, "syncs", listed(full.Syncs), "times of a sync of a disk")
	flags.StringVar(&f.clients, "clients", listed(full.Clients), "closed loop: numbers of clients, each with one write outstanding")
	flags.StringVar(&f.shares, "shares", listed(full.Shares), "open loop: percent of the best rate that the closed loops reach")
	flags.IntVar(&f.plan.ValueBytes, "value-bytes", full.ValueBytes, "size of a value")
	flags.IntVar(&f.plan.Ops, "ops", full.Ops, "writes that are measured at each point, at least")
	flags.IntVar(&f.plan.Runs, "runs", full.Runs, "runs of each point, each with a seed of its own; the table shows the median")
	flags.IntVar(&f.plan.Processors, "processors", full.Processors, "processors of each host")
	flags.IntVar(&f.plan.CostFactor, "cost", full.CostFactor, "processor time of each piece of work, in percent of what it was measured to be")
	flags.StringVar(&f.out, "out", "", "write results.json, results.csv, cells.txt and plots to this directory")
	flags.BoolVar(&f.quick, "quick", false, "two networks, three disks and three loads, within about a minute")
	flags.Uint64Var(&f.plan.Seed, "seed", full.Seed, "of the jitter of networks and disks, and of the clients")
	f.addFlags(cmd)
	return cmd
}

// listed renders a list as a flag takes it.
func listed[T any](items []T) string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = strings.ReplaceAll(fmt.Sprint(item), "µ", "u")
	}
	return strings.Join(texts, ",")
}

// read translates the flags. Errors are the user's.
func (f batchesFlags) read(changed func(string) bool) (p batches.Plan, err error) {
	p = f.plan
	if f.quick {
		less := batches.Quick()
		quick(changed, "delays", &f.delays, listed(less.Delays))
		quick(changed, "syncs", &f.syncs, listed(less.Syncs))
		quick(changed, "clients", &f.clients, listed(less.Clients))
		quick(changed, "shares", &f.shares, listed(less.Shares))
		quick(changed, "ops", &p.Ops, less.Ops)
	}
	if p.Delays, err = list("delays", f.delays, time.ParseDuration); err != nil {
		return p, err
	}
	if p.Syncs, err = list("syncs", f.syncs, time.ParseDuration); err != nil {
		return p, err
	}
	if p.Clients, err = list("clients", f.clients, strconv.Atoi); err != nil {
		return p, err
	}
	if f.shares != "" {
		if p.Shares, err = list("shares", f.shares, strconv.Atoi); err != nil {
			return p, err
		}
	}
	return p, p.Validate()
}
