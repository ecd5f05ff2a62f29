package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// walFlags is the command line of bench wal, before it is a lab.LogPlan.
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
	out        string
	source     string
	quick      bool
	mechanisms bool
	seed       uint64
	quiet      bool
	json       bool
}

const benchWALLong = `bench wal measures the log that lies under a Raft library, alone: no network, no consensus. So many appenders each
append a value, wait until it is durable, append again; a loop gathers what is waiting into one batch with one fsync.
Measured are this log, etcd's WAL, hashicorp/raft-wal and bbolt (as raft-boltdb uses it), beside a raw file that is
overwritten with nothing but a write and an fdatasync a batch: the limit. Each is in a process of its own.

Checked after every point: the log is closed, opened again, and must hold every append that was acknowledged.

The other logs are built from cmd/internal/lab/logs in Millrace's source tree, with the go command. Where the tree is not to be found
(--source) or cannot be built, it is said, and the rest is measured.

Rows and columns
  raw file     preallocated, zeroed, overwritten for ever: one direct write and one fdatasync a batch.
  fsync/op     of files and directories together.     ent/fsync   entries that one fsync covered.
  CPU µs/op    of the process: appenders, loop and log.
  groups       one log serves all groups here; the others have a log for each.
  open a log   from the page cache: MB of values a second, and the time it took; the memory that it added at most, and how many
               files the log keeps open.

--mechanisms measures ways of writing instead, without any log: buffered, direct, O_DSYNC, sync_file_range, and the next
write beside the running fsync.

Exit status: as of bench.`

const benchWALExample = `  millrace bench wal --quick                           all logs, within two minutes
  millrace bench wal --appenders 1,1000 --runs 5       median and spread of five rounds
  millrace bench wal --logs millrace --dir /mnt/nvme   our log beside a raw file, on another disk
  millrace bench wal --mechanisms                      how this disk likes to be written`

// walPeer is a log that is built from the source tree.
type walPeer struct{ name, dir string }

var walPeers = []walPeer{{"etcd-wal", "etcdwal"}, {"raft-wal", "raftwal"}, {"bbolt", "boltdb"}}

func newBenchWAL(w world) *cobra.Command {
	var f walFlags
	cmd := &cobra.Command{
		Use:     "wal",
		Short:   "Measure the log alone, beside a raw file and others' logs",
		Long:    benchWALLong,
		Example: benchWALExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.mechanisms {
				return f.benchMechanisms(cmd, w)
			}
			plan, err := f.plan(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return f.bench(cmd, plan, w)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.appenders, "appenders", "1,16,100,1000", "numbers of appenders, each with one value outstanding")
	flags.StringVar(&f.groups, "groups", "1,64", "numbers of groups that the values go to in turn")
	flags.StringVar(&f.logs, "logs", "millrace,etcd-wal,raft-wal,bbolt", "what to measure besides the raw file")
	flags.IntVar(&f.valueBytes, "value-bytes", 1024, "size of a value")
	flags.Int64Var(&f.keepMiB, "keep-mib", 64, "a log under load is compacted to about so much, after four times that was written to it")
	flags.Int64Var(&f.recoverMiB, "recover-mib", 1024, "size of the log whose opening is measured; 0: not measured")
	flags.DurationVar(&f.duration, "duration", 3*time.Second, "how long each point is measured")
	flags.DurationVar(&f.warmup, "warmup", time.Second, "how long each point runs before that")
	flags.IntVar(&f.runs, "runs", 1, "rounds over everything; the table shows medians")
	flags.StringVar(&f.dir, "dir", "", "where to put the logs: a new folder in DIR, removed at the end (default: the temporary\ndirectory, or the current one if that is in memory)")
	flags.StringVar(&f.out, "out", "", "write results.json and throughput.svg to this directory")
	flags.StringVar(&f.source, "source", "", "Millrace's source tree, for the other logs (default: around the current directory)")
	flags.BoolVar(&f.quick, "quick", false, "everything within two minutes: 1, 100 and 1000 appenders, short windows, a small log to open")
	flags.BoolVar(&f.mechanisms, "mechanisms", false, "measure ways of writing instead of logs")
	flags.Uint64Var(&f.seed, "seed", 1, "of the values")
	flags.BoolVar(&f.quiet, "quiet", false, "no progress")
	flags.BoolVar(&f.json, "json", false, "print the rows as JSON instead of a table")
	return cmd
}

// plan translates the flags; the logs are not yet there to be measured.
func (f walFlags) plan(changed func(string) bool) (lab.LogPlan, error) {
	if f.quick {
		quick(changed, "appenders", &f.appenders, "1,100,1000")
		quick(changed, "recover-mib", &f.recoverMiB, 128)
		quick(changed, "keep-mib", &f.keepMiB, 48)
		quick(changed, "duration", &f.duration, 700*time.Millisecond)
		quick(changed, "warmup", &f.warmup, 300*time.Millisecond)
	}
	p := lab.LogPlan{
		ValueBytes: f.valueBytes, KeepBytes: f.keepMiB << 20, RecoverBytes: f.recoverMiB << 20,
		Duration: f.duration, Warmup: f.warmup, Runs: f.runs, Dir: f.dir, Seed: f.seed,
	}
	var err error
	if p.Appenders, err = list("--appenders", f.appenders, strconv.Atoi); err != nil {
		return p, err
	}
	if p.Groups, err = list("--groups", f.groups, strconv.Atoi); err != nil {
		return p, err
	}
	if _, err := f.chosen(); err != nil {
		return p, err
	}
	return p, p.Check()
}

// quick replaces a default by a smaller one.
func quick[T any](changed func(string) bool, flag string, value *T, smaller T) {
	if !changed(flag) {
		*value = smaller
	}
}

// chosen reads --logs.
func (f walFlags) chosen() ([]string, error) {
	names, err := list("--logs", f.logs, func(s string) (string, error) { return s, nil })
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		known := name == lab.OwnLogName || slices.ContainsFunc(walPeers, func(p walPeer) bool { return p.name == name })
		if !known {
			return nil, usageError{fmt.Errorf("--logs: %q is not known; choose of millrace, etcd-wal, raft-wal and bbolt", name)}
		}
	}
	return names, nil
}

func (f walFlags) bench(cmd *cobra.Command, plan lab.LogPlan, w world) (err error) {
	if f.out != "" {
		if err := lab.CheckOut(f.out, (*lab.LogReport)(nil)); err != nil {
			return err
		}
	}
	programs, err := os.MkdirTemp("", "millrace-peers-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(programs)) }()
	if err := f.findLogs(cmd, &plan, programs, w); err != nil {
		return err
	}
	report, err := lab.RunLogs(cmd.Context(), plan, lab.NewProgress(w.stderr, f.quiet))
	if report == nil {
		return err
	}
	return errors.Join(writeReport(report, f.json, f.out, w), err)
}

// findLogs fills in what can be measured, and says what cannot.
func (f walFlags) findLogs(cmd *cobra.Command, plan *lab.LogPlan, programs string, w world) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	plan.Logs = []lab.LogChild{{Name: lab.RawLogName, Command: []string{self, logChildVerb, lab.RawLogName}}}
	names, err := f.chosen()
	if err != nil {
		return err
	}
	tree, noTree := sourceTree(f.source)
	for _, name := range names {
		if name == lab.OwnLogName {
			plan.Logs = append(plan.Logs, lab.LogChild{Name: name, Command: []string{self, logChildVerb, name}})
			continue
		}
		if noTree != nil {
			plan.Missing = append(plan.Missing, fmt.Sprintf("%s: %v", name, noTree))
			continue
		}
		peer := walPeers[slices.IndexFunc(walPeers, func(p walPeer) bool { return p.name == name })]
		if !f.quiet {
			fmt.Fprintf(w.stderr, "building %s from %s\n", name, filepath.Join(tree, logPrograms, peer.dir))
		}
		program := filepath.Join(programs, peer.dir)
		if err := buildPeer(cmd.Context(), filepath.Join(tree, logPrograms, peer.dir), program); err != nil {
			if cmd.Context().Err() != nil {
				return errInterrupted
			}
			plan.Missing = append(plan.Missing, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		plan.Logs = append(plan.Logs, lab.LogChild{Name: name, Command: []string{program}, Peer: true})
	}
	return nil
}

// logChildVerb is how this program is asked to be a child that measures one log: see lab.ServeLog.
const logChildVerb = "log-child"

func newLogChild(w world) *cobra.Command {
	return &cobra.Command{
		Use:    logChildVerb + " LOG",
		Short:  "Measure one point of bench wal, read from the input",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, library := range []lab.LogLibrary{lab.RawLog(), lab.OwnLog()} {
				if library.Name == args[0] {
					return lab.ServeLog(os.Stdin, w.stdout, library)
				}
			}
			return usageError{fmt.Errorf("%s: %q is not a log of this program", logChildVerb, args[0])}
		},
	}
}
