package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/remote"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/transport/cert"
)

const loadLong = `load puts a load on members that run already (millrace lab member), and measures it as millrace lab measure does: the same
loops, steady state and verification, and the same results. Latencies are those of a client on this machine.

Before it begins it refuses members that do not belong together: of other clusters, other programs, other flags. Each
point empties the machines of all members, so nothing of an earlier load is left; one load at a time. At the end each member
has applied every acknowledged write exactly once. A member that is gone meanwhile, and does not come back, is named in the
warnings of the results.

With --sweep it looks for the knee of the members as millrace lab sweep does: it doubles the offered rate until more is
offered than they can do, then bisects. Each rate is a load of its own. The logs of the members grow by all that is written:
start them with --snapshot-mib. A rate at which a member goes ends the sweep with an error that names both; what was
measured until then stays in the results.

With --certificates the members must have been started with theirs. The directory holds ca.pem, load.pem and load-key.pem
(millrace lab certificates).

A load that was interrupted keeps what was finished, and cannot be resumed: its members went on meanwhile, and nothing in
the results says what they did. Begin another one.

`

// loadFlags is what load is told.
type loadFlags struct {
	plan         experiment.Plan
	members      string
	certificates string
	clients      string
	rates        string
	sweeps       bool
	sweep        experiment.Sweep // with sweeps
	wait         time.Duration
	roundTrips   time.Duration
	dir          string
	seed         uint64
	serving      remote.ResultServing
	labOutput
}

func newLabLoad(a app) *cobra.Command {
	var f loadFlags
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Put a load on members that run already, here or on other machines",
		Long:  loadLong + labExitHelp(),
		Example: `  millrace lab load --members 10.0.0.1:7001,10.0.0.2:7001,10.0.0.3:7001 --certificates pki --out runs/three-machines
  millrace lab load --members … --rate 1000,4000,16000 --operation "read index"
  millrace lab load --members … --sweep --p99 5ms --out runs/knee`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, a) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	p := &f.plan
	flags.StringVar(&f.members, "members", "", "`HOST:PORT,…` where the members listen for loads, in any order")
	flags.StringVar(&f.certificates, "certificates", "", "`directory` with ca.pem, load.pem and load-key.pem (default plain TCP)")
	flags.StringVar(&f.clients, "clients", "1,16,100", "closed loop: numbers of clients, each with one operation outstanding")
	flags.StringVar(&f.rates, "rate", "", "open loop: operations a second to offer, one or several")
	flags.IntVar(&p.ValueBytes, "value-bytes", 1024, fmt.Sprintf("size of a value, %d or more", load.MinValueBytes))
	addLoad(flags, p)
	flags.IntVar(&p.Repeats, "repeat", 1, "measurements of each point; the table has medians")
	flags.BoolVar(&f.sweeps, "sweep", false, "find the highest rate that the members bear, in place of --clients and --rate")
	addSweep(flags, &f.sweep)
	flags.DurationVar(&f.wait, "wait", time.Minute, "how long members may take to be there, and ready")
	flags.DurationVar(&f.roundTrips, "round-trips", time.Second, "how long round trips to the members are measured before; 0: not at all")
	flags.StringVar(&f.dir, "dir", "", dirHelp)
	flags.Uint64Var(&f.seed, "seed", 1, "of values, schedules and the order of points")
	f.addFlags(cmd)
	_ = flags.MarkHidden("resume") // it is there to be refused with a reason
	flags.StringVar(&f.serving.Serve, "serve", "", "`address` at which millrace lab collect fetches the results: all runs in the directory that holds --out. load ends when they were fetched")
	flags.DurationVar(&f.serving.ServeFor, "serve-for", 24*time.Hour, "how long after the load results are served at most")
	return cmd
}

const maxWait = time.Hour

// validate refuses what can be refused without the members.
func (f *loadFlags) validate(cmd *cobra.Command) (err error) {
	if f.resume {
		return usageError{errors.New("--resume: a load on members cannot be resumed: they went on meanwhile, and nothing in the results says what they did; begin another one, with another --out")}
	}
	if err := f.readLoads(cmd.Flags().Changed); err != nil {
		return err
	}
	members := splitAddrs(f.members)
	if len(members) == 0 || len(members) > lab.MaxHosts {
		return lab.Invalid("Members", "%d addresses, want 1 to %d", len(members), lab.MaxHosts)
	}
	if f.wait <= 0 || f.wait > maxWait {
		return lab.Invalid("Wait", "%v is not between 1ns and %v", f.wait, maxWait)
	}
	if f.roundTrips < 0 || f.roundTrips > time.Minute {
		return usageError{fmt.Errorf("--round-trips: %v is not between 0 and %v", f.roundTrips, time.Minute)}
	}
	if err := f.serving.Validate(f.out, f.certificates != ""); err != nil {
		return err
	}
	any := remote.Components{Log: "group", Engine: "memory", Transport: "tcp", Pipeline: "async", EarlyAck: true, Groups: 1}
	plan := f.of(any, len(members))
	if err := plan.Validate(); err != nil {
		return err
	}
	return distinct([]experiment.Plan{plan})
}

// readLoads reads what is offered: numbers of clients and rates, or the first rate of a sweep. given reports
// whether the user has given a flag.
func (f *loadFlags) readLoads(given func(flag string) bool) error {
	lists := labFlags{pipelines: "async", clients: f.clients, rates: f.rates, labOutput: f.labOutput}
	if err := lists.readLoads(); err != nil {
		return err
	}
	if f.sweeps {
		if i := slices.IndexFunc(loadsOfUser, given); i >= 0 {
			return usageError{fmt.Errorf("--sweep and --%s exclude each other: a sweep chooses the rates, and measures each once", loadsOfUser[i])}
		}
		f.plan.Rates = []float64{f.sweep.Start}
		return checkSweep(f.sweep)
	}
	if i := slices.IndexFunc(sweepFlags, given); i >= 0 {
		return usageError{fmt.Errorf("--%s is about a sweep: give --sweep, too, or leave it out", sweepFlags[i])}
	}
	if f.plan.Clients, f.plan.Rates = lists.plan.Clients, lists.plan.Rates; len(f.plan.Rates) > 0 && !given("clients") {
		f.plan.Clients = nil // the default is for a user who asks for nothing
	}
	return nil
}

// loadsOfUser are the flags in whose place a sweep decides.
var loadsOfUser = []string{"clients", "rate", "repeat"}

// of is the plan of this load on members of some components.
func (f *loadFlags) of(c remote.Components, members int) experiment.Plan {
	of, p := c.Experiment(members), f.plan
	p.Log, p.Engine, p.Transport, p.Pipelines, p.EarlyAck = of.Log, of.Engine, of.Transport, of.Pipelines, of.EarlyAck
	p.Groups, p.Hosts, p.FsyncDelay, p.NetDelay = of.Groups, of.Hosts, of.FsyncDelay, of.NetDelay
	p.Depth, p.DiskBandwidth = of.Depth, of.DiskBandwidth
	return p
}

func (f *loadFlags) run(cmd *cobra.Command, a app) error {
	if err := f.validate(cmd); err != nil {
		return err
	}
	ctx := cmd.Context()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	o := remote.Options{Members: splitAddrs(f.members), Wait: f.wait}
	if f.certificates != "" {
		own, err := remote.LoadCredentials(f.certificates)
		if err != nil {
			return lab.Cannot("Certificates", "%v", err)
		}
		o.Credentials = own
	}
	if f.telling() == experiment.Told {
		o.Waiting = func(why error) { fmt.Fprintf(a.stderr, "waiting for the members: %v\n", why) }
	}
	return f.served(ctx, a, o.Credentials, func() error { return f.measure(ctx, cmd, a, o) })
}

// measure connects to the members and puts the load on them.
func (f *loadFlags) measure(ctx context.Context, cmd *cobra.Command, a app, o remote.Options) error {
	c, err := remote.Connect(ctx, o)
	if err != nil {
		return err
	}
	defer c.Close()
	plan := f.of(c.Hello().Components, len(o.Members))
	if err := plan.Validate(); err != nil {
		return err
	}
	if f.roundTrips > 0 {
		if err := c.MeasureRoundTrips(ctx, f.roundTrips); err != nil {
			return err
		}
	}
	config := settings(cmd)
	for name, value := range memberSettings(c.Hello().Components) {
		config["member "+name] = value
	}
	job := experiment.Job{Plans: []experiment.Plan{plan}, Options: experiment.Options{
		Recipe: "load", Summary: "How fast are these members under these loads?", Command: commandLine(cmd), Config: config, Seed: f.seed, Dir: f.dir, Out: f.out,
		Progress: f.telling().To(a.stderr), Elsewhere: remote.Members{Cluster: c}, Afar: true,
	}}
	if f.sweeps {
		job.Sweep, job.Options.Recipe, job.Options.Summary = &f.sweep, "sweep", "Up to which rate do these members bear their load?"
	}
	return job.Run(ctx, a.stdout, rig.Foreign{})
}

// served measures, and serves the results meanwhile and until they were collected, if the flags say so. How
// the load has ended is what counts. A load that leaves no results has nothing to wait for.
func (f *loadFlags) served(ctx context.Context, a app, own *cert.Credentials, measure func() error) (err error) {
	if f.serving.Serve == "" {
		return measure()
	}
	out, err := filepath.Abs(f.out)
	if err != nil {
		return err
	}
	s, err := remote.ServeResults(f.serving, filepath.Dir(out), own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	hasResults := func() bool {
		_, err := os.Stat(filepath.Join(out, archive.ResultFile))
		return err == nil
	}
	others := hasResults()
	if err = measure(); ctx.Err() != nil || err != nil && (others || !hasResults()) {
		return err
	}
	if err != nil { // the process will say it at its end, too
		fmt.Fprintf(a.stderr, "the load has failed: %s\n", sentence(err))
	}
	fmt.Fprintf(a.stdout, "The results are served at %s until millrace lab collect has fetched them, for %v at most.\n", s.Addr(), f.serving.ServeFor)
	if awaited := s.Await(ctx); awaited != nil && ctx.Err() == nil {
		err = errors.Join(err, awaited)
	}
	return err
}

// memberSettings are the flags of the members, by name.
func memberSettings(c remote.Components) map[string]string {
	return map[string]string{
		"log": c.Log, "engine": c.Engine, "transport": c.Transport, "pipeline": c.Pipeline, "early-ack": strconv.FormatBool(c.EarlyAck),
		"depth": strconv.Itoa(c.Depth), "disk-bandwidth": strconv.FormatInt(c.Bandwidth, 10), "groups": strconv.Itoa(c.Groups), "fsync-delay": c.FsyncDelay.String(), "net-delay": c.NetDelay.String(),
		"leases": strconv.FormatBool(c.Leases), "snapshot-mib": strconv.Itoa(c.SnapshotMiB),
	}
}
