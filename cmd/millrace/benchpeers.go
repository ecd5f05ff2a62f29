package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/peers"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/lab/peer"
)

// peersFlags is the command line of bench peers, before it is a peers.Plan.
type peersFlags struct {
	clients    string
	systems    string
	valueBytes int
	hosts      int
	duration   time.Duration
	warmup     time.Duration
	runs       int
	dir        string
	source     string
	quick      bool
	young      bool
	noStrace   bool
	seed       uint64
	output
}

var benchPeersLong = `bench peers puts the same load on Millrace and on other Raft libraries: three hosts in one process, on loopback TCP,
each with a durable log on the real disk. One client loop, one clock and one check serve all of them. A value is
acknowledged when a majority has it on disk. After each point all hosts must hold the same, and each acknowledged value
exactly once, or that system has no figures.

Rows
  bare              a majority-acknowledged group commit without Raft: the speed of light, in the same minutes.
  bare+cohort       bare with a leader that waits a moment for the clients that it has just answered.
  bare+crc+apply    the same with checksums and state machines: the least that a correct replication costs.
  millrace          this library, asynchronous. (millrace-basic, millrace-parallel: its other pipelines, if named.)
  millrace-batch    the same under one goroutine that hands in what fits at once: beside raft-rs, which is driven so.
  etcd-raft-…       go.etcd.io/raft with etcd's log: basic; parallel append, early acknowledgement; async storage
                    writes, early acknowledgement.
  hashicorp-…       hashicorp/raft on raft-wal and on bolt.
  etcd              the etcd server, embedded, through its client.
  raft-rs-…         TiKV's raft-rs on raft-engine, in Rust: default files and prefilled files, with one thread that is
                    all clients and proposes in batches; prefilled files with a task for each client.
  ratis             Apache Ratis, in Java.

Columns
  fsync/op          over all hosts. A system that makes fewer than a majority needs is marked NOT DURABLE.
  CPU µs/op         of the whole process: all hosts and the clients together.
  ÷ bare, ÷ …       throughput, in the same round.      CPU ÷ its   CPU per operation to the best Go peer's.

The others are built from tests/compare/others in Millrace's source tree, with go, cargo and mvn. What cannot be
built is named, and the rest is measured. Logs have written segments when the clock starts, as bare's: millrace, etcd-raft-…, hashicorp-wal, raft-rs-prefilled
and raft-rs-tasks. The others begin young. strace, if installed, counts fsyncs once more from outside.

` + benchExitHelp(benchStatuses...)

const benchPeersExample = `  millrace bench peers --quick                         everything, briefly
  millrace bench peers --peers millrace,etcd-raft-async --clients 100 --runs 5
  millrace bench peers --runs 5 --out r                medians of five rounds, and results.json in r`

func newBenchPeers(a app) *cobra.Command {
	var f peersFlags
	cmd := &cobra.Command{
		Use:     "peers",
		Short:   "Measure the same load on other Raft libraries",
		Long:    benchPeersLong,
		Example: benchPeersExample,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, a) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.clients, "clients", "1,16,100,1000", "numbers of clients, each with one write outstanding")
	flags.StringVar(&f.systems, "peers", strings.Join(defaultSystems(), ","), "what to measure besides bare in its three forms")
	flags.IntVar(&f.valueBytes, "value-bytes", 1024, "size of a value")
	flags.IntVar(&f.hosts, "nodes", 3, "hosts of each cluster, all of them voters")
	flags.DurationVar(&f.duration, "duration", 5*time.Second, "how long each point is measured")
	flags.DurationVar(&f.warmup, "warmup", time.Second, "how long each point runs before that")
	flags.IntVar(&f.runs, "runs", 3, "rounds over everything; the table shows medians and, of throughput, the extremes")
	flags.BoolVar(&f.young, "young", false, youngHelp)
	flags.StringVar(&f.dir, "dir", "", dirHelp)
	flags.StringVar(&f.out, "out", "", "write results.json to this directory")
	flags.StringVar(&f.source, "source", "", "Millrace's source tree (default: around the current directory)")
	flags.BoolVar(&f.quick, "quick", false, "1 and 100 clients, one round of short windows")
	flags.BoolVar(&f.noStrace, "no-strace", false, "do not count fsyncs from outside")
	flags.Uint64Var(&f.seed, "seed", 1, "of the values")
	f.addFlags(cmd)
	return cmd
}

// plan translates the flags. Systems and Missing are filled in later, by findSystems.
func (f peersFlags) plan(changed func(string) bool) (peers.Plan, error) {
	p := peers.Plan{
		ValueBytes: f.valueBytes, Hosts: f.hosts, Duration: f.duration, Warmup: f.warmup, Runs: f.runs, Dir: f.dir, Seed: f.seed, Young: f.young,
	}
	if f.quick {
		quick(changed, "clients", &f.clients, "1,100")
		quick(changed, "duration", &p.Duration, 1500*time.Millisecond)
		quick(changed, "warmup", &p.Warmup, 500*time.Millisecond)
		quick(changed, "runs", &p.Runs, 1)
	}
	var err error
	if p.Clients, err = list("clients", f.clients, strconv.Atoi); err != nil {
		return p, err
	}
	if _, err := f.chosen(); err != nil {
		return p, err
	}
	if !f.noStrace {
		if p.Strace, err = exec.LookPath("strace"); err != nil {
			p.Strace = ""
		}
	}
	return p, p.Validate()
}

// chosen reads --peers. bare, in its three forms, is always measured.
func (f peersFlags) chosen() ([]string, error) {
	names, err := list("peers", f.systems, func(s string) (string, error) { return s, nil })
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, own := ownSystems[name]; own || slices.ContainsFunc(peerPrograms, func(p peerProgram) bool { return p.name == name }) {
			continue
		}
		return nil, usageError{fmt.Errorf("--peers: %q is not known; choose from %s", name, strings.Join(allSystems(), ", "))}
	}
	return names, nil
}

func (f peersFlags) run(cmd *cobra.Command, a app) error {
	plan, err := f.plan(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	return measureWith(cmd, f.output, f.source, a, (*peers.Report)(nil), func(ctx context.Context, b *builder, p report.Progress) (*peers.Report, error) {
		if err := f.findSystems(ctx, &plan, b); err != nil {
			return nil, err
		}
		return peers.Run(ctx, plan, p)
	})
}

// ownSystems are the systems that this program is itself the child of, with their targets in package bench.
var ownSystems = map[string]string{
	bench.BareName: bench.BareName, bench.BareCohortName: bench.BareCohortName, bench.FullBareName: bench.FullBareName,
	"millrace": "async", "millrace-batch": bench.BatchName, "millrace-parallel": "parallel", "millrace-basic": "basic",
}

// peerChildVerb asks this program to be the process that measures one system: see peer.Serve.
const peerChildVerb = "peer-child"

func newPeerChild(a app) *cobra.Command {
	return &cobra.Command{
		Use:    peerChildVerb + " SYSTEM",
		Short:  "Measure one point of bench peers, read from the input",
		Hidden: true,
		Args:   wantArgs(1, "one system"),
		RunE: func(_ *cobra.Command, args []string) error {
			open := a.targets[ownSystems[args[0]]]
			if open == nil {
				return usageError{fmt.Errorf("%s: %q is not a system of this program", peerChildVerb, args[0])}
			}
			if ownSystems[args[0]] == bench.BatchName {
				return peer.ServeBatches(os.Stdin, a.stdout, args[0], open)
			}
			return peer.Serve(os.Stdin, a.stdout, args[0], open)
		},
	}
}
