package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/remote"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// labExperiments are the verbs of lab that measure.
func labExperiments(a app) []*cobra.Command {
	return []*cobra.Command{newLabMeasure(a), newLabSweep(a), newLabRun(a), newLabList(a)}
}

// labFlags is what measure and sweep have in common, before it is an experiment.Plan.
type labFlags struct {
	plan      experiment.Plan // without what the dimensions set
	matrix    []*dimension
	pipelines string
	clients   string
	rates     string
	probe     time.Duration
	dir       string
	source    string
	seed      uint64
	labOutput
}

// labOutput is where a run goes and how it is told.
type labOutput struct {
	out    string
	resume bool
	quiet  bool
	json   bool
}

func (o *labOutput) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.out, "out", "", "write the run to this directory, which must be empty or new")
	cmd.Flags().BoolVar(&o.resume, "resume", false, "the run in --out was cut short: measure what is missing, with the same flags")
	cmd.Flags().BoolVar(&o.quiet, "quiet", false, "no progress")
	cmd.Flags().BoolVar(&o.json, "json-progress", false, "progress as a line of JSON for each event; docs/howto/lab.md has the fields")
}

// validate refuses flags that contradict each other.
func (o *labOutput) validate() error {
	if o.quiet && o.json {
		return usageError{errors.New("--quiet and --json-progress exclude each other")}
	}
	return nil
}

// aside are the flags that say where a run goes, and how it is told. A part that resumes it may have others.
func aside() []string { return []string{"dir", "json-progress", "out", "quiet", "resume", "source"} }

const resumeHelp = `
A run that was interrupted, killed or failed is resumed by the same command with --resume: what is finished stays, the
point that was cut short is measured again. Other settings, another program or another machine are refused. The results
say that the run has parts, and env.json has the environment of each.

`

// telling is how the run is told.
func (o *labOutput) telling() experiment.Telling {
	switch {
	case o.json:
		return experiment.AsEvents
	case o.quiet:
		return experiment.Quietly
	}
	return experiment.Told
}

const componentHelp = `
Components
  --log        when an append to the log counts: group, sync, group-delay(3ms,65536,100),
               unsafe-interval(3s,1048576), unsafe-os, memory; or another log: etcd, pebble.
  --engine     the state machine: memory, pebble.
  --transport  tcp, tcp+tls (a CA of this run), grpc, loopback (no sockets).
  --pipelines  basic, parallel, clamped, async; all but async on one group.
  --early-ack  acknowledge when committed; =false: when the leader's state machine has applied it.
What cannot be combined is refused with a sentence. etcd, pebble and grpc are other projects' code, which is not in
this program: the lab builds one that has it, from Millrace's source tree with the go command, and lets that measure.

The flags from --log to --pipelines take lists: --log group,etcd --value-bytes 128,4096. All combinations are measured in
one run, round by round, in random order: only figures of one run compare well.

Phases of a point: open the cluster, warm up until three windows of throughput are within 5 %, measure, drain,
verify. Every round measures the points in another order.

`

// addComponents adds the flags of both verbs.
func (f *labFlags) addComponents(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	p := &f.plan
	for _, d := range dimensions() {
		f.matrix = append(f.matrix, &d)
		flags.StringVar(&d.text, d.flag, d.text, d.usage)
	}
	flags.StringVar(&f.pipelines, "pipelines", "async", "basic, parallel, clamped, async")
	flags.BoolVar(&p.EarlyAck, "early-ack", true, "acknowledge a write when it is committed")
	addLoad(flags, p)
	flags.BoolVar(&p.Processes, "processes", false, "each host is a process of its own, and so are the clients (docs/howto/lab.md)")
	flags.DurationVar(&f.probe, "probe", 3*time.Second, "how long disk, network and memory of the machine are tried before; 0: not at all")
	flags.StringVar(&f.dir, "dir", "", dirHelp)
	flags.StringVar(&f.source, "source", "", "Millrace's source tree, for components of other projects (default: around the current directory)")
	flags.Uint64Var(&f.seed, "seed", 1, "of values, schedules and the order of points")
	f.addFlags(cmd)
}

// addLoad adds what measure, sweep and load say of every load.
func addLoad(flags *pflag.FlagSet, p *experiment.Plan) {
	flags.StringVar(&p.Operation, "operation", experiment.Write, `what clients do: write, or read by "log", "read index", "lease", "follower", "local"`)
	flags.IntVar(&p.MaxInFlight, "max-in-flight", 10_000, "open loop: bound on operations without an answer; arrivals beyond it are dropped, and counted")
	flags.DurationVar(&p.Duration, "duration", 10*time.Second, "how long each point is measured")
	flags.DurationVar(&p.MinWarmup, "min-warmup", 2*time.Second, "shortest warm-up")
	flags.DurationVar(&p.MaxWarmup, "max-warmup", 20*time.Second, "longest warm-up; a point that is not steady by then is marked")
}

// options are those of a run of these flags.
func (f *labFlags) options(cmd *cobra.Command, a app, recipe, summary string, plans []experiment.Plan) experiment.Options {
	hosts := slices.MaxFunc(plans, func(a, b experiment.Plan) int { return a.Hosts - b.Hosts }).Hosts
	o := experiment.Options{
		Recipe: recipe, Summary: summary, Command: commandLine(cmd), Config: settings(cmd), Seed: f.seed, Dir: f.dir, Out: f.out, Resume: f.resume, Aside: aside(),
		Hosts: hosts, NeedMiB: 256 * hosts, Probe: f.probe, Progress: f.telling().To(a.stderr),
	}
	if f.plan.Processes {
		o.Hosts, o.Elsewhere = 0, remote.Processes{Command: memberCommand(thisProgram())}
	}
	return o
}

// thisProgram is the file of this program, which starts itself again as a member.
func thisProgram() string {
	if program, err := os.Executable(); err == nil {
		return program
	}
	return os.Args[0]
}

// commandLine is the command that does a run again: the flags that were given.
func commandLine(cmd *cobra.Command) []string {
	line := append([]string{}, splitPath(cmd)...)
	line = append(line, cmd.Flags().Args()...)
	cmd.Flags().Visit(func(f *pflag.Flag) { line = append(line, "--"+f.Name+"="+f.Value.String()) })
	return line
}

func splitPath(cmd *cobra.Command) []string {
	if cmd.Parent() == nil {
		return []string{cmd.Name()}
	}
	return append(splitPath(cmd.Parent()), cmd.Name())
}

// settings are all flags with their values.
func settings(cmd *cobra.Command) map[string]string {
	all := map[string]string{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			all[f.Name] = f.Value.String()
		}
	})
	return all
}

// readLoads reads the lists.
func (f *labFlags) readLoads() (err error) {
	if err := f.labOutput.validate(); err != nil {
		return err
	}
	if f.plan.Pipelines, err = list("pipelines", f.pipelines, func(s string) (string, error) { return s, nil }); err != nil {
		return err
	}
	if f.clients != "" {
		if f.plan.Clients, err = list("clients", f.clients, strconv.Atoi); err != nil {
			return err
		}
	}
	if f.rates != "" {
		f.plan.Rates, err = list("rate", f.rates, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
	}
	return err
}

func newLabMeasure(a app) *cobra.Command {
	var f labFlags
	cmd := &cobra.Command{
		Use:   "measure",
		Short: "Measure clusters of chosen components under chosen loads",
		Long:  "measure puts clusters together from components and measures each under each load.\n" + componentHelp + resumeHelp[1:] + labExitHelp(),
		Example: `  millrace lab measure --pipelines basic,parallel,async --clients 1,100 --repeat 5 --out a
  millrace lab measure --rate 1000,4000,16000 --net-delay 10ms --fsync-delay 1ms,5ms
  millrace lab measure --log group,etcd,pebble --repeat 6 --out logs
  millrace lab measure --operation "read index" --clients 100 --transport tcp+tls
  millrace lab measure --pipelines basic,parallel,async --clients 1,100 --repeat 5 --out a --resume`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.readLoads(); err != nil {
				return err
			}
			if len(f.plan.Rates) > 0 && !cmd.Flags().Changed("clients") {
				f.plan.Clients = nil // the default is for those who ask for nothing
			}
			plans, err := f.plans()
			if err != nil {
				return err
			}
			o := f.options(cmd, a, "measure", "How fast are these components under these loads?", plans)
			return f.do(cmd.Context(), a, experiment.Job{Options: o, Plans: plans})
		},
	}
	f.addComponents(cmd)
	cmd.Flags().StringVar(&f.clients, "clients", "1,16,100", "closed loop: numbers of clients, each with one operation outstanding")
	cmd.Flags().StringVar(&f.rates, "rate", "", "open loop: operations a second to offer, one or several")
	cmd.Flags().IntVar(&f.plan.Repeats, "repeat", 1, "measurements of each point; the table has medians")
	return cmd
}

const sweepResumes = `The search goes the way of the finished points again, without measuring them, and goes on where they end.

`

func newLabSweep(a app) *cobra.Command {
	var f labFlags
	var w experiment.Sweep
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Find the highest rate that a cluster bears",
		Long: "sweep doubles the offered rate until more is offered than the cluster can do, then bisects to the knee. With\n" +
			"--p99 it also finds the highest rate with p99 below that. Members that run already are swept with\n" +
			"millrace lab load --sweep.\n" + componentHelp + resumeHelp[1:] + sweepResumes + labExitHelp(),
		Example: `  millrace lab sweep --p99 5ms --out knee
  millrace lab sweep --pipelines basic,async --value-bytes 4096`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.readLoads(); err != nil {
				return err
			}
			if err := checkSweep(w); err != nil {
				return err
			}
			f.plan.Rates, f.plan.Repeats = []float64{w.Start}, 1
			plans, err := f.plans()
			if err != nil {
				return err
			}
			o := f.options(cmd, a, "sweep", "Up to which rate does each of these bear its load?", plans)
			return f.do(cmd.Context(), a, experiment.Job{Options: o, Plans: plans, Sweep: &w})
		},
	}
	f.addComponents(cmd)
	addSweep(cmd.Flags(), &w)
	return cmd
}

// sweepFlags are the flags of addSweep.
var sweepFlags = []string{"start", "max-rate", "steps", "p99"}

// addSweep adds what sweep and load --sweep say of a sweep.
func addSweep(flags *pflag.FlagSet, w *experiment.Sweep) {
	w.Factor = 2
	flags.Float64Var(&w.Start, "start", 1000, "sweep: the first rate, operations a second")
	flags.Float64Var(&w.Max, "max-rate", 1_000_000, "sweep: no rate above it is tried")
	flags.IntVar(&w.Steps, "steps", 4, "sweep: bisections after the first saturation")
	flags.DurationVar(&w.Limit, "p99", 0, "sweep: find the highest rate with p99 below this, too; 0: only the knee")
}

// checkSweep refuses a sweep whose numbers are out of bounds.
func checkSweep(w experiment.Sweep) error {
	switch {
	case !(w.Start >= 1 && w.Start <= w.Max):
		return usageError{fmt.Errorf("--start: %v is not between 1 and --max-rate, which is %v", w.Start, w.Max)}
	case w.Steps < 0 || w.Steps > 20:
		return usageError{fmt.Errorf("--steps: %d is not between 0 and 20", w.Steps)}
	case w.Limit < 0:
		return usageError{fmt.Errorf("--p99: %v is below 0, which looks for the knee only", w.Limit)}
	}
	return nil
}

// do does a job here, or in a program that has the components of other projects.
func (f *labFlags) do(ctx context.Context, a app, j experiment.Job) error {
	foreign := experiment.ForeignNames(j.Plans)
	if foreign == "" {
		return j.Run(ctx, a.stdout, rig.Foreign{})
	}
	_, err := withPrograms(func(dir string) (struct{}, error) {
		var tell io.Writer
		if f.telling() == experiment.Told {
			tell = a.stderr
		}
		program, err := newBuilder(f.source, dir, tell).program(ctx, foreign, foreignProgram, buildGo)
		switch {
		case errors.Is(err, errInterrupted):
			return struct{}{}, err
		case err != nil:
			return struct{}{}, statusError{exitCannot, fmt.Errorf("a program with %s is needed: %w", foreign, err)}
		}
		return struct{}{}, j.HandOver(ctx, program[0], f.telling(), a.stdout, a.stderr)
	})
	return err
}

// foreignProgram is the program with components of other projects.
const foreignProgram = otherPrograms + "/foreign"
