package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	snapshotlab "github.com/millrace/millrace/cmd/internal/lab/snapshots"
)

// snapshotFlags is the command line of bench snapshot, before it is a plan.
type snapshotFlags struct {
	plan     snapshotlab.Plan
	state    string
	send     string
	sections string
	logs     string
	quick    bool
	output
}

var benchSnapshotLong = `bench snapshot measures what snapshots cost. It starts clusters of hosts in this process, on loopback TCP, each host with
its log and its snapshots on the real disk, and a state machine of the typed API with a state of the wanted size.

  load      writes at a share of the peak, in windows that take turns: without a snapshot, while the leader's host takes
            one, while every host does, and while a member that was away gets one and installs it.
  restart   one host is closed and opened, with more and more log behind its snapshot.
  transfer  a member that is behind the log gets a state that is the same, has changed by 1 %, or wholly: of a machine
            in memory, whose stream is cut into parts of 64 MiB, and of one whose state is 128 immutable files.

After each window it checks that all hosts hold the same, and every acknowledged write exactly once; at the end of each
section, that all hosts have the same state, those that have installed a snapshot included.

An interrupted run prints the sections that were finished, marked partial. No files stay behind, except those of --out.
A machine in memory takes up to three times --state in the memory of this process for each host.

` + benchExitHelp(benchStatuses...)

const benchSnapshotExample = `  millrace bench snapshot --quick                        64 MiB, one window of each way, within about a minute
  millrace bench snapshot --sections load --runs 5       what those who write feel
  millrace bench snapshot --state 4GiB --send 256MiB     a large state, sent as fast as the network can
  millrace bench snapshot --json --dir /mnt/nvme         the rows as JSON, on another disk`

func newBenchSnapshot(a app) *cobra.Command {
	var f snapshotFlags
	cmd := &cobra.Command{
		Use:     "snapshot",
		Short:   "Measure snapshots taken, sent and installed under load, and restarts",
		Long:    benchSnapshotLong,
		Example: benchSnapshotExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := f.read(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return measure(cmd, f.output, a, (*snapshotlab.Report)(nil), func(ctx context.Context, p report.Progress) (*snapshotlab.Report, error) {
				return snapshotlab.Run(ctx, plan, p)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.state, "state", "1GiB", "size of the state: 64MiB, 1GiB")
	flags.StringVar(&f.sections, "sections", "load,restart,transfer", "what to measure")
	flags.IntVar(&f.plan.Clients, "clients", 100, "clients of the closed loop that finds the peak")
	flags.IntVar(&f.plan.LoadPercent, "load", 50, "what the open loop offers, in percent of the peak")
	flags.IntVar(&f.plan.ValueBytes, "value-bytes", 1024, fmt.Sprintf("size of a value, %d to 4096", load.MinValueBytes))
	flags.IntVar(&f.plan.Hosts, "nodes", 3, "hosts of the cluster, 3 or more")
	flags.StringVar(&f.logs, "logs", "0,64,256", "restart: MiB of log behind the snapshot")
	flags.StringVar(&f.send, "send", "64MiB", "how much of snapshots a host sends in a second")
	flags.DurationVar(&f.plan.Duration, "duration", 10*time.Second, "how long each window is at least")
	flags.DurationVar(&f.plan.Warmup, "warmup", time.Second, "how long the load runs before each window")
	flags.IntVar(&f.plan.Runs, "runs", 3, "windows of each way; the table shows medians")
	flags.StringVar(&f.plan.Dir, "dir", "", dirHelp)
	flags.StringVar(&f.out, "out", "", "write results.json to this directory")
	flags.BoolVar(&f.quick, "quick", false, "64 MiB of state and one window of each way, within about a minute")
	flags.Uint64Var(&f.plan.Seed, "seed", 1, "of the values, of the open loop's schedule and of the order of the ways")
	f.addFlags(cmd)
	return cmd
}

// read translates the flags. Errors are the user's.
func (f snapshotFlags) read(changed func(string) bool) (snapshotlab.Plan, error) {
	p := f.plan
	if f.quick {
		quick(changed, "state", &f.state, "64MiB")
		quick(changed, "logs", &f.logs, "0,16,64")
		quick(changed, "duration", &p.Duration, 2*time.Second)
		quick(changed, "warmup", &p.Warmup, 300*time.Millisecond)
		quick(changed, "runs", &p.Runs, 1)
	}
	var err error
	if p.StateBytes, err = byteSize("state", f.state); err != nil {
		return p, err
	}
	if p.SendBytesPerSecond, err = byteSize("send", f.send); err != nil {
		return p, err
	}
	if p.Sections, err = list("sections", f.sections, snapshotlab.ParseSection); err != nil {
		return p, err
	}
	if p.Logs, err = list("logs", f.logs, strconv.Atoi); err != nil {
		return p, err
	}
	return p, p.Validate()
}

// byteSize reads "64MiB", "1GiB", "4096KiB" or a number of bytes.
func byteSize(flag, text string) (int64, error) {
	digits, unit := text, int64(1)
	for suffix, bytes := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if d, ok := strings.CutSuffix(text, suffix); ok {
			digits, unit = d, bytes
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err == nil && (n < 0 || n > math.MaxInt64/unit) {
		err = errors.New("out of range")
	}
	if err != nil {
		return 0, usageError{fmt.Errorf("--%s: %q is not a size; write 64MiB, 1GiB or a number of bytes", flag, text)}
	}
	return n * unit, nil
}
