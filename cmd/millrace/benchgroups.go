package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab/groups"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// groupsFlags is the command line of bench groups, before it is a groups.Plan.
type groupsFlags struct {
	plan   groups.Plan
	groups string
	quick  bool
	output
}

var benchGroupsLong = `bench groups measures what many groups on the same hosts cost. For each number of groups it starts a new cluster
of hosts in this process, on loopback TCP, each host with its log on the real disk, and measures

  how long it takes to found the groups, and to open them again after everything was closed;
  the memory of one group on one host;
  the processor time of all hosts while no client writes;
  the throughput of clients that are spread over the groups, beside the same clients on one group of the same
  hosts, in windows that take turns.

After each window it checks that all hosts hold the same in each group, and every acknowledged write exactly once; at
the end, that each state machine is the same after a restart. If one group stops, or one host fails, the run ends with
the reason.

The logs are not compacted: they grow for as long as the windows last. An interrupted run prints the rows that were
finished, marked partial. No files stay behind, except those of --out.

` + benchExitHelp(benchStatuses...)

const benchGroupsExample = `  millrace bench groups --quick                     up to 1,000 groups, within about a minute
  millrace bench groups --runs 9                    the median of nine pairs of windows
  millrace bench groups --groups 10000 --idle 30s   one number of groups, idle for longer
  millrace bench groups --json --dir /mnt/nvme      the rows as JSON, on another disk`

func newBenchGroups(a app) *cobra.Command {
	var f groupsFlags
	cmd := &cobra.Command{
		Use:     "groups",
		Short:   "Measure what many groups on the same hosts cost",
		Long:    benchGroupsLong,
		Example: benchGroupsExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := f.read(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return measure(cmd, f.output, a, (*groups.Report)(nil), func(ctx context.Context, p report.Progress) (*groups.Report, error) {
				return groups.Run(ctx, plan, p)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.groups, "groups", "1,64,1000,10000", "numbers of groups, one row for each")
	flags.IntVar(&f.plan.Clients, "clients", 1000, "clients, each with one write outstanding, spread over the groups")
	flags.IntVar(&f.plan.ValueBytes, "value-bytes", 1024, fmt.Sprintf("size of a value, %d or more", load.MinValueBytes))
	flags.IntVar(&f.plan.Hosts, "nodes", 3, "hosts of the cluster; each is a member of every group")
	flags.DurationVar(&f.plan.Heartbeat, "heartbeat", 100*time.Millisecond, "time between heartbeats; an election timeout is ten of them, or up to twenty")
	flags.DurationVar(&f.plan.Idle, "idle", 5*time.Second, "how long idle processor time is measured")
	flags.DurationVar(&f.plan.Duration, "duration", 2*time.Second, "how long each window under load is")
	flags.DurationVar(&f.plan.Warmup, "warmup", 500*time.Millisecond, "how long the load runs before each window")
	flags.IntVar(&f.plan.Runs, "runs", 3, "pairs of windows; the table shows the pair with the median ratio")
	flags.StringVar(&f.plan.Dir, "dir", "", dirHelp)
	flags.StringVar(&f.out, "out", "", "write results.json to this directory")
	flags.BoolVar(&f.quick, "quick", false, "up to 1,000 groups and one pair of windows, within about a minute")
	flags.Uint64Var(&f.plan.Seed, "seed", 1, "of the values")
	f.addFlags(cmd)
	return cmd
}

// read translates the flags. Errors are the user's.
func (f groupsFlags) read(changed func(string) bool) (groups.Plan, error) {
	p := f.plan
	if f.quick {
		quick(changed, "groups", &f.groups, "1,64,1000")
		quick(changed, "idle", &p.Idle, 2*time.Second)
		quick(changed, "duration", &p.Duration, time.Second)
		quick(changed, "warmup", &p.Warmup, 300*time.Millisecond)
		quick(changed, "runs", &p.Runs, 1)
	}
	var err error
	if p.Groups, err = list("groups", f.groups, strconv.Atoi); err != nil {
		return p, err
	}
	return p, p.Validate()
}
