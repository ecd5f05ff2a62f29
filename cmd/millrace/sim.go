package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/simulate"
)

// simFlags is the command line of sim, before it is a simulate.Plan.
type simFlags struct {
	plan    simulate.Plan
	seeds   string
	part    string
	minutes float64
	without string
	skip    string
	events  bool
	quiet   bool
	simOutput
}

// simOutput is how a result is written.
type simOutput struct {
	html string
	json bool
	hits int
}

func (o *simOutput) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.html, "html", "", "write the report as one page of HTML to this file, too")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the result as JSON, which sim merge reads, instead of a text")
	cmd.Flags().IntVar(&o.hits, "hits", 0, "demand that each possible cell of the matrix was hit this often")
}

var simLong = `sim runs whole clusters in virtual time, each from one number, the seed, with faults beneath them: power cuts, disks that fail,
hang and fill up, networks that lose, repeat, delay and corrupt, clocks that drift, members that come, go and lose their
disks. After every event it compares the cluster with what Raft promises; at the end faults stop, and the cluster must elect,
commit, agree and answer within a stated time. The same seed gives the same run.

Profiles
` + profileHelp() + `
The report
  How many seeds and events there were, and how many injections of each fault while a group was in each phase of its work:
  31 faults by 16 phases, with the cells that cannot be hit and why. --html writes it as a page that needs no network.

A failure
  ends the run (--failures), is made smaller (--shrink): by an earlier end, without kinds of faults, without single injections,
  and is printed with the command that replays it, which shows every event. Build that commit to see the same.

Long runs
  --soak FILE adds up results in a file, which is replaced as a whole; the next run with the same file continues with the next seeds.
  --shard I/N runs the seeds whose remainder by N is I, each shard with a file of its own; sim merge adds them up.
  An interrupt ends a run with the report of what was done; a second one ends it at once.

` + simExitHelp()

const simExample = `  millrace sim                                              the mixture of CI for a minute, on all cores
  millrace sim --profile core --seeds 1:100000              a hundred thousand seeds of the core alone
  millrace sim --profile full --minutes 60 --soak soak.json --html soak.html
  millrace sim --profile hosts --seeds 4711 --events        one seed, event by event
  millrace sim --profile full --seeds 0:1000000 --shard 7/100 --soak shard-7.json
  millrace sim merge shard-*.json --html all.html`

// profileHelp lists the profiles for the help.
func profileHelp() string {
	var b strings.Builder
	for _, p := range simulate.Profiles() {
		fmt.Fprintf(&b, "  %-13s %s\n", p.Name, p.About)
	}
	return b.String()
}

func simCommand(a app) *cobra.Command {
	f := simFlags{plan: simulate.Plan{Failures: 1}}
	cmd := &cobra.Command{
		Use:     "sim",
		Short:   "Simulate clusters from seeds, with faults, and check every event",
		Long:    simLong,
		Example: simExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := f.read(a)
			if err != nil {
				return err
			}
			return simulateSeeds(cmd.Context(), plan, f, a)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.plan.Profile, "profile", "ci", "what to run; see Profiles")
	flags.StringVar(&f.seeds, "seeds", "1:", "A:B are the seeds from A up to and without B, A: has no end, A is one seed")
	flags.Float64Var(&f.minutes, "minutes", 0, "begin no seed after this long; default: 1 if the seeds have no end, otherwise no bound")
	flags.StringVar(&f.part, "shard", "0/1", "I/N: run only the seeds whose remainder by N is I")
	flags.StringVar(&f.plan.Soak, "soak", "", "go on after the seeds of this file, and add the results to it")
	flags.IntVar(&f.plan.Workers, "workers", 0, "seeds to run at a time; 0 is one for each core")
	flags.IntVar(&f.plan.Failures, "failures", 1, "begin no seed after this many have failed")
	flags.DurationVar(&f.plan.Shrink, "shrink", time.Minute, "how long to look for a smaller schedule of each failure; 0 is not at all")
	flags.DurationVar(&f.plan.Patience, "patience", 5*time.Minute, "a seed that takes longer has failed")
	flags.IntVar(&f.plan.Length, "length", 0, "how long faults last: ticks of the core, ms of virtual time of hosts; 0 is the profile's own")
	flags.StringVar(&f.without, "without", "", "kinds of faults that are not injected, as the rows of the matrix name them: crash,slow-disk")
	flags.StringVar(&f.skip, "skip", "", "single injections of one seed that do not happen, as a replay names them: 1-17,23")
	flags.BoolVar(&f.events, "events", false, "print every event of one seed")
	f.simOutput.addFlags(cmd)
	flags.BoolVar(&f.quiet, "quiet", false, "no progress")
	cmd.AddCommand(simMergeCommand(a), newSimReplay(a))
	for _, sub := range append(cmd.Commands(), cmd) {
		sub.Flags().SortFlags = false
	}
	return cmd
}

// read translates the flags. Errors are the user's.
func (f *simFlags) read(a app) (*simulate.Plan, error) {
	p := f.plan
	p.Hits = f.hits
	var err error
	if p.Seeds, err = simulate.ParseSeeds(f.seeds); err != nil {
		return nil, usageError{fmt.Errorf("--seeds: %w", err)}
	}
	if p.Part, err = simulate.ParsePart(f.part); err != nil {
		return nil, usageError{fmt.Errorf("--shard: %w", err)}
	}
	if p.Skip, err = simulate.ParseNumbers(f.skip); err != nil {
		return nil, usageError{fmt.Errorf("--skip: %w", err)}
	}
	if f.without != "" {
		if p.Without, err = list("without", f.without, func(s string) (string, error) { return s, nil }); err != nil {
			return nil, err
		}
	}
	if p.Minutes = time.Duration(f.minutes * float64(time.Minute)); f.minutes == 0 && p.Seeds.To == simulate.Endless {
		p.Minutes = time.Minute
	}
	if f.events {
		if f.json {
			return nil, usageError{errors.New("--events and --json exclude each other: both print to standard output")}
		}
		p.Trace, p.Shrink = a.stdout, 0
	}
	return &p, p.Validate()
}

// simulateSeeds runs a plan and writes what it has shown.
func simulateSeeds(ctx context.Context, p *simulate.Plan, f simFlags, a app) error {
	defer spareCollector()()
	result, save, done, err := openResult(p)
	if err != nil {
		return err
	}
	progress := simulate.NewProgress(a.stderr, f.quiet)
	before := len(result.Failures)
	if done {
		fmt.Fprintf(a.stderr, "%s has all seeds of this run; it is only shown\n", p.Soak)
	} else {
		err = simulate.Run(ctx, p, result, progress, save)
	}
	if len(result.Failures) > before && err == nil {
		simulate.Shrink(ctx, p, result, before, progress)
		err = errors.Join(save(result), context.Cause(ctx))
	}
	progress.End()
	return f.show(a, result, err)
}

// openResult opens the file of a soak, or begins with nothing.
func openResult(p *simulate.Plan) (r *simulate.Result, save func(*simulate.Result) error, done bool, err error) {
	if p.Soak == "" {
		return simulate.NewResult(p), func(*simulate.Result) error { return nil }, false, nil
	}
	soak, r, done, err := simulate.OpenSoak(p)
	if err != nil {
		return nil, nil, false, resultError(err)
	}
	return r, soak.Save, done, nil
}

// resultError gives the error of a file its exit status.
func resultError(err error) error {
	var damaged *simulate.DamagedError
	if errors.As(err, &damaged) {
		return statusError{exitDamaged, err}
	}
	return cannot(err)
}

// show writes a result, the report of an interrupted run included, and turns it into an exit status. A
// failure counts more than an interrupt.
func (o simOutput) show(a app, r *simulate.Result, err error) error {
	if o.html != "" {
		var page strings.Builder
		werr := r.WriteHTML(&page, o.hits)
		if werr == nil {
			werr = simulate.WriteFile(o.html, []byte(page.String()))
		}
		err = errors.Join(err, cannot(werr))
	}
	if o.json {
		data, encodeErr := r.Encode()
		_, writeErr := a.stdout.Write(data)
		err = errors.Join(err, encodeErr, cannot(writeErr))
	} else {
		err = errors.Join(err, cannot(r.WriteText(a.stdout, o.hits)))
	}
	if len(r.Verdict(o.hits)) > 0 && (err == nil || errors.Is(err, errInterrupted)) {
		return statusError{exitFailed, errAnswered}
	}
	return err
}

// gcPercent lets the heap grow to several times of what is in use before garbage is collected, up to
// heapBytes in all: most simulated runs make little that lasts, a few hold a gigabyte.
const (
	gcPercent = 800
	heapBytes = 3 << 30
)

// spareCollector collects garbage less often, unless the user has said how often. It returns how to end that.
func spareCollector() (end func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	percent, limit := debug.SetGCPercent(gcPercent), debug.SetMemoryLimit(heapBytes)
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}
