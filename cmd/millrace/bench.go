package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/wal"
)

// benchFlags is the command line of bench, before it is a lab.Plan.
type benchFlags struct {
	clients     string
	rate        string
	valueBytes  int
	nodes       int
	pipelines   string
	fsyncDelay  string
	durability  string
	duration    time.Duration
	warmup      time.Duration
	runs        int
	dir         string
	out         string
	quick       bool
	seed        uint64
	maxInFlight int
	quiet       bool
	json        bool
}

const benchLong = `bench starts a cluster of nodes in this process, on loopback TCP, each node with its own log on the real disk,
and puts it under load: once for each pipeline and each number of clients. After each point it checks that all
nodes hold the same, and every acknowledged write exactly once. If not, it says so, exits with 1 and prints no numbers.

Load
  Closed loop (--clients): each client writes, waits for the answer, writes again. Finds the peak.
  Open loop (--rate): writes arrive on a random (Poisson) schedule, whatever the cluster does; a latency counts from the
  time in the schedule, so a stall is charged to every write that should have been sent during it.

Rows
  limits     what this machine can do: 1 KiB append + fdatasync with one file, with as many files at once as there are
             nodes, and 1 KiB to and fro over loopback TCP. Nothing durable and replicated is faster than these.
  bare       the same clients over a majority-acknowledged group commit without Raft: the speed of light.
  basic      P1: save, send, apply, in line.
  parallel   P2: send before saving, so all disks work at once; acknowledge at commit, before applying.
  async      P3: saving and applying each by a worker of its own, off the consensus loop.

Columns
  ops/s      acknowledged writes a second.     mean … max   latency as the client saw it.
  fsync/op   over all nodes.                   KiB/fsync    what one fsync made durable.
  ent/append entries in one batch to the log.  ent/apply    entries in one batch to the state machine.
  CPU µs/op, allocs/op   of the whole process: all nodes and the load generator together.

Exit status: 0 done; 1 a cluster failed or did not hold what it had acknowledged; 2 bad flags, directory or full disk;
130 interrupted (the points that were finished are printed, marked partial). No files stay behind, except those of --out.`

const benchExample = `  millrace bench --quick                               everything, briefly, within a minute
  millrace bench --pipelines async --clients 100       one pipeline, one load
  millrace bench --fsync-delay 2ms --rate 16000        a slow (cloud) disk under a fixed load of 16 MB/s
  millrace bench --rate 1000,4000,16000 --out knee     a latency curve as knee/latency.svg
  millrace bench --runs 5 --dir /mnt/nvme --out r      median of five runs on another disk, results.json and plots in r`

func newBench(w world) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure the pipelines on this machine, beside its own limits",
		Long:    benchLong,
		Example: benchExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := f.plan(cmd.Flags().Changed, w.targets)
			if err != nil {
				return err
			}
			return f.bench(cmd, plan, w)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.clients, "clients", "1,16,100,1000", "closed loop: numbers of clients, each with one write outstanding")
	flags.StringVar(&f.rate, "rate", "0", "open loop: writes per second to offer, one or several; 0 means closed loop")
	flags.IntVar(&f.valueBytes, "value-bytes", 1024, fmt.Sprintf("size of a value, %d or more", lab.MinValueBytes))
	flags.IntVar(&f.nodes, "nodes", 3, "voters of the cluster")
	flags.StringVar(&f.pipelines, "pipelines", "basic,parallel,async", `what to measure besides bare; "bare" alone measures only that`)
	flags.StringVar(&f.durability, "durability", "group", "when an append counts: group, sync, group-delay(3ms,65536,100), unsafe-interval(3s,1048576), unsafe-os, memory; bare is always group")
	flags.StringVar(&f.fsyncDelay, "fsync-delay", "0", "sleep added to every fsync after the real one, to stand for a slow disk: 2ms, 500us")
	flags.DurationVar(&f.duration, "duration", 5*time.Second, "how long each point is measured")
	flags.DurationVar(&f.warmup, "warmup", time.Second, "how long each point runs before that")
	flags.IntVar(&f.runs, "runs", 1, "repetitions; the table shows the run with the median throughput")
	flags.StringVar(&f.dir, "dir", "", "where to put the logs: a new folder in DIR, removed at the end (default: the temporary\ndirectory, or the current one if that is in memory)")
	flags.StringVar(&f.out, "out", "", "write results.json, throughput.svg and latency.svg to this directory")
	flags.BoolVar(&f.quick, "quick", false, "everything within 60 s: 1, 100 and 1000 clients, short windows")
	flags.Uint64Var(&f.seed, "seed", 1, "of payloads and of the open loop's schedule")
	flags.IntVar(&f.maxInFlight, "max-in-flight", 10_000, "open loop: arrivals beyond so many unanswered writes are dropped, and counted")
	flags.BoolVar(&f.quiet, "quiet", false, "no progress")
	flags.BoolVar(&f.json, "json", false, "print the rows as JSON instead of a table")
	cmd.AddCommand(newBenchWAL(w), newBenchFlush(w))
	return cmd
}

// quickBudget leaves some of the 60 s for starting and stopping.
const quickBudget = 50 * time.Second

// plan translates the flags; changed tells which of them the user gave. Errors are the user's.
func (f benchFlags) plan(changed func(string) bool, targets lab.Registry) (lab.Plan, error) {
	p := lab.Plan{
		ValueBytes: f.valueBytes, Nodes: f.nodes, Duration: f.duration, Warmup: f.warmup, Runs: f.runs,
		Dir: f.dir, Seed: f.seed, MaxInFlight: f.maxInFlight, Targets: targets,
	}
	if f.quick {
		p.Budget = quickBudget
		if !changed("clients") {
			f.clients = "1,100,1000"
		}
		if !changed("duration") {
			p.Duration = 2500 * time.Millisecond
		}
		if !changed("warmup") {
			p.Warmup = 500 * time.Millisecond
		}
	}
	var err error
	if p.Clients, err = list("--clients", f.clients, strconv.Atoi); err != nil {
		return p, err
	}
	if p.Rates, err = list("--rate", f.rate, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }); err != nil {
		return p, err
	}
	if len(p.Rates) == 1 && p.Rates[0] == 0 {
		p.Rates = nil
	}
	if len(p.Rates) > 0 && changed("clients") {
		return p, usageError{errors.New("--clients (closed loop) and --rate (open loop) exclude each other")}
	}
	if p.Pipelines, err = list("--pipelines", f.pipelines, func(s string) (string, error) { return s, nil }); err != nil {
		return p, err
	}
	// bare is always measured.
	if p.Pipelines = slices.DeleteFunc(p.Pipelines, func(name string) bool { return name == lab.BareName }); len(p.Pipelines) == 0 {
		p.Pipelines = nil
	}
	if p.FsyncDelay, err = delay(f.fsyncDelay); err != nil {
		return p, err
	}
	if p.Durability, err = wal.ParseMode(f.durability); err != nil {
		return p, usageError{fmt.Errorf("--durability: %w", err)}
	}
	return p, p.Check()
}

// list splits "1,16,100" and refuses what is there twice.
func list[T comparable](flag, text string, parse func(string) (T, error)) ([]T, error) {
	var items []T
	seen := map[T]bool{}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		item, err := parse(part)
		if err != nil || part == "" {
			return nil, usageError{fmt.Errorf("%s: %q in %q cannot be read; write it like the default in --help", flag, part, text)}
		}
		if seen[item] {
			return nil, usageError{fmt.Errorf("%s: %q is there twice", flag, part)}
		}
		seen[item] = true
		items = append(items, item)
	}
	return items, nil
}

// delay reads a duration; a bare 0 needs no unit.
func delay(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, usageError{fmt.Errorf("--fsync-delay: %q is not a duration; write 2ms or 500us", text)}
	}
	return d, nil
}

// bench runs the plan and writes what came out.
func (f benchFlags) bench(cmd *cobra.Command, plan lab.Plan, w world) error {
	if f.out != "" {
		if err := lab.CheckOut(f.out, (*lab.Report)(nil)); err != nil {
			return err
		}
	}
	report, err := lab.Run(cmd.Context(), plan, lab.NewProgress(w.stderr, f.quiet))
	if report == nil {
		return err
	}
	return errors.Join(writeReport(report, f.json, f.out, w), err)
}

// report is what a bench has found out.
type report interface {
	lab.Files
	WriteTable(io.Writer) error
	WriteJSON(io.Writer) error
}

// writeReport prints a report, and writes its files if there is a directory for them.
func writeReport(r report, json bool, out string, w world) error {
	print := r.WriteTable
	if json {
		print = r.WriteJSON
	}
	if err := print(w.stdout); err != nil {
		return err
	}
	if out == "" {
		return nil
	}
	return lab.WriteFiles(out, r)
}
