package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab/logs"
	"github.com/millrace/millrace/cmd/internal/lab/logs/child"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// walFlags is the command line of bench wal, before it is a logs.Plan or a logs.MechanismPlan.
type walFlags struct {
	appenders  string
	groups     string
	logs       string
	valueBytes int
	keepMiB    int64
	recoverMiB int64
	duration   time.Duration
	warmup     time.Duration
	runs       int
	dir        string
	source     string
	quick      bool
	mechanisms bool
	seed       uint64
	output
}

var benchWALLong = `bench wal measures the log that lies under a Raft library, alone: no network, no consensus. Appenders each append
a value, wait until it is durable, and append again; a loop gathers the values that wait into one batch with one
fsync. It measures this log, etcd's WAL, hashicorp/raft-wal and bbolt (as raft-boltdb uses it), beside a raw file
that is overwritten with nothing but a write and an fdatasync a batch: the limit. Each has a process of its own.

Checked after every point: the log is closed, opened again, and must hold every append that was acknowledged.

The other logs are built from tests/compare/others in Millrace's source tree, with the go command. If the tree is
not found (--source) or cannot be built, the table says so, and the other rows are measured.

Rows and columns
  raw file     preallocated, zeroed, overwritten without end: one direct write and one fdatasync a batch.
  fsync/op     of files and directories together.     ent/fsync   entries that one fsync covered.
  CPU µs/op    of the process: appenders, loop and log.
  groups       one log serves all groups here; the others have a log for each.
  open a log   from the page cache: MB of values a second, and the time it took; the memory that it added at
               most, and how many files the log keeps open.

--mechanisms measures ways of writing instead, without any log: buffered, direct, O_DSYNC, sync_file_range, and the
next write beside the running fsync.

` + benchExitHelp(benchStatuses...)

const benchWALExample = `  millrace bench wal --quick                           all logs, within two minutes
  millrace bench wal --appenders 1,1000 --runs 5       median and spread of five rounds
  millrace bench wal --logs millrace --dir /mnt/nvme   our log beside a raw file, on another disk
  millrace bench wal --mechanisms                      which way of writing suits this disk`

func newBenchWAL(a app) *cobra.Command {
	var f walFlags
	cmd := &cobra.Command{
		Use:     "wal",
		Short:   "Measure the log alone, beside a raw file and other projects' logs",
		Long:    benchWALLong,
		Example: benchWALExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.mechanisms {
				return f.benchMechanisms(cmd, a)
			}
			return f.benchLogs(cmd, a)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.appenders, "appenders", "1,16,100,1000", "numbers of appenders, each with one value outstanding")
	flags.StringVar(&f.groups, "groups", "1,64", "numbers of groups that the values go to in turn")
	flags.StringVar(&f.logs, "logs", "millrace,etcd-wal,raft-wal,bbolt", "what to measure besides the raw file")
	flags.IntVar(&f.valueBytes, "value-bytes", 1024, "size of a value")
	flags.Int64Var(&f.keepMiB, "keep-mib", 64, "a log under load is compacted to about this size, after four times that was written to it")
	flags.Int64Var(&f.recoverMiB, "recover-mib", 1024, "size of the log whose opening is measured; 0: not measured")
	flags.DurationVar(&f.duration, "duration", 3*time.Second, "how long each point is measured")
	flags.DurationVar(&f.warmup, "warmup", time.Second, "how long each point runs before that")
	flags.IntVar(&f.runs, "runs", 1, "rounds over everything; the table shows medians")
	flags.StringVar(&f.dir, "dir", "", dirHelp)
	flags.StringVar(&f.out, "out", "", "write results.json and throughput.svg to this directory")
	flags.StringVar(&f.source, "source", "", "Millrace's source tree, for the other logs (default: around the current directory)")
	flags.BoolVar(&f.quick, "quick", false, "everything within two minutes: 1, 100 and 1000 appenders, short windows, a small log to open")
	flags.BoolVar(&f.mechanisms, "mechanisms", false, "measure ways of writing instead of logs")
	flags.Uint64Var(&f.seed, "seed", 1, "of the values")
	f.addFlags(cmd)
	return cmd
}

// plan translates the flags. Logs and Missing are filled in later, by findLogs.
func (f walFlags) plan(changed func(string) bool) (logs.Plan, error) {
	if f.quick {
		quick(changed, "appenders", &f.appenders, "1,100,1000")
		quick(changed, "recover-mib", &f.recoverMiB, 128)
		quick(changed, "keep-mib", &f.keepMiB, 48)
		quick(changed, "duration", &f.duration, 700*time.Millisecond)
		quick(changed, "warmup", &f.warmup, 300*time.Millisecond)
	}
	p := logs.Plan{
		ValueBytes: f.valueBytes, KeepBytes: f.keepMiB << 20, RecoverBytes: f.recoverMiB << 20,
		Duration: f.duration, Warmup: f.warmup, Runs: f.runs, Dir: f.dir, Seed: f.seed,
	}
	var err error
	if p.Appenders, err = list("appenders", f.appenders, strconv.Atoi); err != nil {
		return p, err
	}
	if p.Groups, err = list("groups", f.groups, strconv.Atoi); err != nil {
		return p, err
	}
	if _, err := f.chosen(); err != nil {
		return p, err
	}
	return p, p.Validate()
}

// chosen reads --logs.
func (f walFlags) chosen() ([]string, error) {
	names, err := list("logs", f.logs, func(s string) (string, error) { return s, nil })
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		known := name == child.OwnLogName || slices.ContainsFunc(otherLogs, func(o otherLog) bool { return o.name == name })
		if !known {
			return nil, usageError{fmt.Errorf("--logs: %q is not known; choose from millrace, etcd-wal, raft-wal and bbolt", name)}
		}
	}
	return names, nil
}

func (f walFlags) benchLogs(cmd *cobra.Command, a app) error {
	plan, err := f.plan(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	return measureWith(cmd, f.output, f.source, a, (*logs.Report)(nil), func(ctx context.Context, b *builder, p report.Progress) (*logs.Report, error) {
		if err := f.findLogs(ctx, &plan, b); err != nil {
			return nil, err
		}
		return logs.Run(ctx, plan, p)
	})
}

// mechanismBatches are what 1, 16, 100 and 1000 appenders with 1 KiB each put into one batch, and half of the
// last.
var mechanismBatches = []int{1 << 10, 16 << 10, 100 << 10, 500 << 10, 1000 << 10}

// benchMechanisms is bench wal --mechanisms. It reads only the flags that apply to it.
func (f walFlags) benchMechanisms(cmd *cobra.Command, a app) error {
	plan := logs.MechanismPlan{BatchBytes: mechanismBatches, Duration: f.duration, Runs: f.runs, Dir: f.dir}
	if f.quick {
		quick(cmd.Flags().Changed, "duration", &plan.Duration, f.duration/10)
	}
	if err := plan.Validate(); err != nil {
		return err
	}
	return measure(cmd, f.output, a, (*logs.MechanismReport)(nil), func(ctx context.Context, p report.Progress) (*logs.MechanismReport, error) {
		return logs.RunMechanisms(ctx, plan, p)
	})
}

// logChildVerb asks this program to be the process that measures one log: see child.Serve.
const logChildVerb = "log-child"

func newLogChild(a app) *cobra.Command {
	return &cobra.Command{
		Use:    logChildVerb + " LOG",
		Short:  "Measure one point of bench wal, read from the input",
		Hidden: true,
		Args:   wantArgs(1, "one log"),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, library := range []child.Library{child.RawLog(), child.OwnLog()} {
				if library.Name == args[0] {
					return child.Serve(os.Stdin, a.stdout, library)
				}
			}
			return usageError{fmt.Errorf("%s: %q is not a log of this program", logChildVerb, args[0])}
		},
	}
}
