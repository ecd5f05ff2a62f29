package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/wal"
)

// benchFlags is the command line of bench, before it is a bench.Plan.
type benchFlags struct {
	clients     string
	rate        string
	valueBytes  int
	hosts       int
	pipelines   string
	fsyncDelay  string
	durability  string
	duration    time.Duration
	warmup      time.Duration
	runs        int
	dir         string
	quick       bool
	seed        uint64
	maxInFlight int
	young       bool
	batch       bool
	typed       bool
	groups      int
	profile     string
	output
}

var benchLong = `bench starts a cluster of hosts in this process, on loopback TCP, each host with its own log on the real
disk, and puts it under load: once for each pipeline and each number of clients. After each point it checks that
all hosts hold the same, and every acknowledged write exactly once. If they do not, it reports the difference and
no figures.

Load
  Closed loop (--clients): each client writes, waits for the answer, writes again. This finds the peak.
  Open loop (--rate): writes arrive on a random (Poisson) schedule, whatever the cluster does. A latency counts
  from the time in the schedule, so a stall is charged to every write that should have been sent during it.

Rows
  limits     what this machine can do: 1 KiB append + fdatasync with one file, the same with one file for each
             host at once, and 1 KiB to and fro over loopback TCP. Nothing durable and replicated is faster.
  bare       the same clients over a majority-acknowledged group commit without Raft: the speed of light.
  bare+cohort      bare with a leader that begins no batch while one is under way, and then waits for the clients
             that it has just answered, at most 1 ms and half a round: one batch of all clients, not two of halves.
  bare+crc+apply   bare with a checksum of each entry, made when it is appended and compared on every follower,
             and with all hosts applying to a state machine: the least that a correct replication costs.
  basic      P1: save, send, apply, in line.
  parallel   P2: send before saving, so that all disks work at once; acknowledge at commit, before applying.
  async      P3: saving and applying each by a worker of its own, off the consensus loop.
  async+inline     the same over a state machine that is declared never to wait (GroupConfig.NonBlocking): its
             commands are applied in the consensus loop.
  async+batch      async under one goroutine (--batch): it hands in what fits at once (Group.SubmitMany), and takes
             the outcomes together. Clients is how many of its writes are under way.
  async+groups     async over several groups of the same hosts (--groups), each with its share of the clients, and led
             by the hosts in turn. There is one log for all groups of a host.
  typed, typed+batch   async and async+batch behind the typed face (--typed): Node.Propose, which answers with the
             result of the leader's machine, and Node.SubmitMany. Below the table they are compared with the bytes.

Columns
  ops/s      acknowledged writes a second.     mean … max   latency as the client saw it.
  fsync/op   over all hosts.                   KiB/fsync    what one fsync made durable.
  ent/append entries in one batch to the log.  ent/apply    entries in one batch to the state machine.
  CPU µs/op, allocs/op   of the whole process: all hosts and the load generator together.

An interrupted run prints the points that were finished, marked partial. No files stay behind, except those of --out.

` + benchExitHelp(benchStatuses...)

// benchStatuses are the exit statuses of bench and the verbs below it.
var benchStatuses = []int{exitOK, exitFailed, exitCannot, exitUsage, exitInterrupted}

const benchExample = `  millrace bench --quick                               everything, briefly, within a minute
  millrace bench --pipelines async --clients 100       one pipeline, one load
  millrace bench --fsync-delay 2ms --rate 16000        a slow (cloud) disk under a fixed load of 16 MB/s
  millrace bench --rate 1000,4000,16000 --out knee     a latency curve as knee/latency.svg
  millrace bench --pipelines async --clients 100 --profile p     where the processor time goes, stage by stage
  millrace bench --runs 5 --dir /mnt/nvme --out r      median of five runs on another disk, results.json and plots in r`

const dirHelp = "where to put the logs: a new directory in DIR, removed at the end (default: the temporary\ndirectory, or the current one if that is in memory)"

const youngHelp = "begin with logs whose segments are not written yet; without it they are, as in a log of some age,\nfor what the disk needs is written before the clock starts (bare: always)"

func newBench(a app) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure the pipelines on this machine, beside its own limits",
		Long:    benchLong,
		Example: benchExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := f.plan(cmd.Flags().Changed, a.targets)
			if err != nil {
				return err
			}
			return measure(cmd, f.output, a, (*bench.Report)(nil), func(ctx context.Context, p report.Progress) (*bench.Report, error) {
				return bench.Run(ctx, plan, p)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.clients, "clients", "1,16,100,1000", "closed loop: numbers of clients, each with one write outstanding")
	flags.StringVar(&f.rate, "rate", "0", "open loop: writes per second to offer, one or several; 0 means closed loop")
	flags.IntVar(&f.valueBytes, "value-bytes", 1024, fmt.Sprintf("size of a value, %d or more", load.MinValueBytes))
	flags.IntVar(&f.hosts, "nodes", 3, "hosts of the cluster, all of them voters")
	flags.StringVar(&f.pipelines, "pipelines", strings.Join(defaultPipelines(), ","), `what to measure besides bare; "bare" alone measures only that`)
	flags.BoolVar(&f.batch, "batch", false, "measure "+bench.BatchName+", too: one goroutine that keeps as many writes under way as there are clients")
	flags.BoolVar(&f.typed, "typed", false, "measure the typed face, too, beside the bytes below it: "+bench.TypedName+" and async, "+bench.TypedBatchName+" and "+bench.BatchName)
	flags.IntVar(&f.groups, "groups", 0, "measure "+bench.GroupsName+", too: the clients spread over so many groups of the same hosts")
	flags.StringVar(&f.durability, "durability", "group", "when an append counts: group, sync, group-delay(3ms,65536,100), unsafe-interval(3s,1048576), unsafe-os, memory; bare in its three forms is always group")
	flags.StringVar(&f.fsyncDelay, "fsync-delay", "0", "sleep added to every fsync after the real one, to stand for a slow disk: 2ms, 500us")
	flags.DurationVar(&f.duration, "duration", 5*time.Second, "how long each point is measured")
	flags.DurationVar(&f.warmup, "warmup", time.Second, "how long each point runs before that")
	flags.IntVar(&f.runs, "runs", 1, "repetitions; the table shows the run with the median throughput")
	flags.BoolVar(&f.young, "young", false, youngHelp)
	flags.StringVar(&f.dir, "dir", "", dirHelp)
	flags.StringVar(&f.out, "out", "", "write results.json, throughput.svg and latency.svg to this directory")
	flags.StringVar(&f.profile, "profile", "", "write a CPU profile of each point to this directory, and a table of stages: client, turn, lane, reader, writer, …")
	flags.BoolVar(&f.quick, "quick", false, "everything within 60 s: 1, 100 and 1000 clients, short windows")
	flags.Uint64Var(&f.seed, "seed", 1, "of payloads and of the open loop's schedule")
	flags.IntVar(&f.maxInFlight, "max-in-flight", 10_000, "open loop: bound on unanswered writes; arrivals beyond it are dropped, and counted")
	f.addFlags(cmd)
	cmd.AddCommand(newBenchWAL(a), newBenchPeers(a), newBenchServe(a))
	for verb, recipe := range movedBenches {
		cmd.AddCommand(newMovedBench(verb, recipe))
	}
	return cmd
}

// movedBenches are the verbs that bench had, and the recipes of the lab that answer their questions.
var movedBenches = map[string]string{"batches": "batches", "flush": "flush", "groups": "groups", "node": "node", "objects": "objects", "snapshot": "snapshots"}

// newMovedBench answers a verb that bench had, whatever flags come with it, with the recipe.
func newMovedBench(verb, recipe string) *cobra.Command {
	return &cobra.Command{
		Use: verb, Short: "A recipe of the lab: " + recipe, Hidden: true,
		Long:               "bench " + verb + " is a recipe of the lab: millrace lab run " + recipe + " --quick\n\n" + benchExitHelp(exitUsage),
		DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError{fmt.Errorf("bench %s is a recipe of the lab: millrace lab run %s --quick", verb, recipe)}
		},
	}
}

// quickBudget leaves some of the 60 s for starting and stopping.
const quickBudget = 50 * time.Second

// plan translates the flags; changed tells which of them the user gave. Errors are the user's.
func (f benchFlags) plan(changed func(string) bool, targets bench.Registry) (bench.Plan, error) {
	p := bench.Plan{
		ValueBytes: f.valueBytes, Hosts: f.hosts, Groups: f.groups, Duration: f.duration, Warmup: f.warmup, Runs: f.runs,
		Dir: f.dir, Seed: f.seed, MaxInFlight: f.maxInFlight, Young: f.young, Profile: f.profile, Targets: targets,
	}
	if f.quick {
		p.Budget = quickBudget
		quick(changed, "clients", &f.clients, "1,100,1000")
		quick(changed, "duration", &p.Duration, 2500*time.Millisecond)
		quick(changed, "warmup", &p.Warmup, 500*time.Millisecond)
	}
	var err error
	if p.Clients, err = list("clients", f.clients, strconv.Atoi); err != nil {
		return p, err
	}
	if p.Rates, err = list("rate", f.rate, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }); err != nil {
		return p, err
	}
	if len(p.Rates) == 1 && p.Rates[0] == 0 {
		p.Rates = nil
	}
	if len(p.Rates) > 0 && changed("clients") {
		return p, usageError{errors.New("--clients (closed loop) and --rate (open loop) exclude each other")}
	}
	if p.Pipelines, err = list("pipelines", f.pipelines, func(s string) (string, error) { return s, nil }); err != nil {
		return p, err
	}
	var more []string
	switch {
	case f.typed:
		more = []string{"async", bench.TypedName, bench.BatchName, bench.TypedBatchName}
	case f.batch:
		more = []string{bench.BatchName}
	}
	for _, name := range more {
		if !slices.Contains(p.Pipelines, name) {
			p.Pipelines = append(p.Pipelines, name)
		}
	}
	if f.groups > 0 && !slices.Contains(p.Pipelines, bench.GroupsName) {
		p.Pipelines = append(p.Pipelines, bench.GroupsName)
	}
	// bare is always measured.
	if p.Pipelines = slices.DeleteFunc(p.Pipelines, func(name string) bool { return name == bench.BareName }); len(p.Pipelines) == 0 {
		p.Pipelines = nil
	}
	if p.FsyncDelay, err = delay(f.fsyncDelay); err != nil {
		return p, err
	}
	if p.Durability, err = wal.ParseMode(f.durability); err != nil {
		return p, usageError{fmt.Errorf("--durability: %w", err)}
	}
	return p, p.Validate()
}

// defaultPipelines is all but what --batch, --typed and --groups add.
func defaultPipelines() []string {
	return slices.DeleteFunc(bench.PipelineNames(), bench.IsOptional)
}

// quick replaces the default of a flag by a smaller value, unless the user gave the flag.
func quick[T any](changed func(string) bool, flag string, value *T, smaller T) {
	if !changed(flag) {
		*value = smaller
	}
}

// list splits "1,16,100". It refuses an item that occurs twice.
func list[T comparable](flag, text string, parse func(string) (T, error)) ([]T, error) {
	return listOf(flag, text, strings.Split(text, ","), parse)
}

// listOf is list for a text that is split already.
func listOf[T comparable](flag, text string, parts []string, parse func(string) (T, error)) ([]T, error) {
	var items []T
	seen := map[T]bool{}
	for _, part := range parts {
		part = strings.TrimSpace(part)
		item, err := parse(part)
		if err != nil || part == "" {
			return nil, usageError{fmt.Errorf("--%s: %q in %q cannot be read; write it like the default in --help", flag, part, text)}
		}
		if seen[item] {
			return nil, usageError{fmt.Errorf("--%s: %q is there twice", flag, part)}
		}
		seen[item] = true
		items = append(items, item)
	}
	return items, nil
}

// delay reads a duration. 0 needs no unit.
func delay(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, usageError{fmt.Errorf("--fsync-delay: %q is not a duration; write 2ms or 500us", text)}
	}
	return d, nil
}

// output is where a bench writes its report, and how.
type output struct {
	out   string
	quiet bool
	json  bool
}

// tell is where a bench tells what it builds; nil: nowhere.
func (o *output) tell(a app) io.Writer {
	if o.quiet {
		return nil
	}
	return a.stderr
}

// addFlags adds the flags that are the same for all benches.
func (o *output) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.quiet, "quiet", false, "no progress")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the rows as JSON instead of a table")
}

// benchReport is what a bench returns: a pointer to its report, or nil.
type benchReport interface {
	comparable
	report.Files
	WriteTable(io.Writer) error
	WriteJSON(io.Writer) error
}

// measure runs a bench and writes its report, a partial one included. It refuses an --out that cannot take
// the files before anything is measured; none is a nil report, which knows their names.
func measure[R benchReport](cmd *cobra.Command, o output, a app, none R, run func(context.Context, report.Progress) (R, error)) error {
	if o.out != "" {
		if err := report.ValidateOut(o.out, none); err != nil {
			return err
		}
	}
	r, err := run(cmd.Context(), report.NewProgress(a.stderr, o.quiet))
	if r == none {
		return err
	}
	return errors.Join(writeReport(r, o, a), err)
}

// writeReport prints a report, and writes its files if there is a directory for them.
func writeReport[R benchReport](r R, o output, a app) error {
	write := r.WriteTable
	if o.json {
		write = r.WriteJSON
	}
	if err := write(a.stdout); err != nil || o.out == "" {
		return err
	}
	return report.WriteFiles(o.out, r)
}
