package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/service"
)

// etcdPrograms is the module that pins the programs of etcd, below the source tree.
const etcdPrograms = "tests/clients/programs"

type benchServeFlags struct {
	loads, clients     string
	systems            string
	members, rounds    int
	valueBytes, keys   int
	duration, warmup   time.Duration
	dir, source, other string
	profiles           string
	bytes              string
	rate               int
	toLeader, quick    bool
	output
}

var benchServeLong = `bench serve measures millrace serve beside etcd: each as processes of its own, with the same flags, under the same client
(etcd's), in turn. etcd is built from the sources that tests/clients/programs pins, through the module proxy.

Loads
  put            a value under one of 100,000 keys
  get            one of 10,000 keys, linearizable          serializable   the same, from the member that is asked
  list           500 keys with 4 KiB each, linearizable
  watch          from the begin of a put to its event at a watcher, at 5,000 puts a second; ops/s are the puts
  fanout         from a put to the last of --clients watchers of its key
  renew          a lease, once
  keys           --keys new keys of 50 bytes, once each; then RSS is that of a member with all of them
  restart        until a linearizable read is answered after SIGKILL of all members, with --keys keys
  large          more data than memory, alone: --bytes of values are written, the last quarter over older ones; the members are killed
                 and started; keys are read from a cold disk; then puts come at --rate, before, beside and after a compaction
                 and its sweep. It needs 1.7 times the bytes for each member, and some that stay free

Columns
  CPU µs/op      of all members, for an operation        RSS   of the largest member, afterwards
  ÷              to the row of etcd under the same load

The machine must be quiet: clients and members share it.

` + benchExitHelp(benchStatuses...)

func newBenchServe(a app) *cobra.Command {
	var f benchServeFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Measure millrace serve beside etcd",
		Long:  benchServeLong,
		Example: `  millrace bench serve --quick                         everything, briefly
  millrace bench serve --loads put --clients 1,16,100,1000 --rounds 3
  millrace bench serve --loads large --systems millrace --members 1 --bytes 20GiB --value-bytes 4096 --clients 100 --duration 30s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.loads == string(service.LargeKind) {
				return f.runLarge(cmd.Context(), a)
			}
			return f.run(cmd.Context(), a)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.loads, "loads", "put,get,serializable,list,watch,fanout,renew", "what to measure")
	flags.StringVar(&f.clients, "clients", "1,16,100,1000", "numbers of clients; list runs with at most 16, watch and restart with 1, fanout and keys with the largest")
	flags.StringVar(&f.systems, "systems", "etcd,millrace", "what to measure it on")
	flags.IntVar(&f.members, "members", 3, "members of a cluster, 1 to 7")
	flags.IntVar(&f.valueBytes, "value-bytes", 1<<10, "bytes of a value, 8 to 1 MiB")
	flags.IntVar(&f.keys, "keys", 1_000_000, "keys of the loads keys and restart, 1 to 100 million")
	flags.StringVar(&f.bytes, "bytes", "1GiB", "values that the load large writes before its compaction, such as 64MiB or 20GiB")
	flags.IntVar(&f.rate, "rate", 0, "puts a second beside the compaction of the load large; 0: a quarter of what its writes have reached")
	flags.DurationVar(&f.duration, "duration", 5*time.Second, "length of one measurement")
	flags.DurationVar(&f.warmup, "warmup", time.Second, "load before it")
	flags.IntVar(&f.rounds, "rounds", 3, "rounds; the table has their medians")
	flags.BoolVar(&f.toLeader, "to-leader", true, "clients connect to the leader; false: to all members in turn")
	flags.StringVar(&f.other, "etcd", "", "the program of etcd (default: it is built)")
	flags.StringVar(&f.dir, "dir", "", dirHelp)
	flags.StringVar(&f.source, "source", "", "Millrace's source tree (default: the current directory, or one above it)")
	flags.StringVar(&f.profiles, "profiles", "", "directory for profiles of the members, SYSTEM-LOAD-CLIENTS-mN.cpu.pprof and .heap.pprof, of the last round")
	flags.BoolVar(&f.quick, "quick", false, "16 clients, one round of a second")
	f.addFlags(cmd)
	return cmd
}

// plan checks the flags.
func (f *benchServeFlags) plan() (p service.Plan, err error) {
	if f.quick {
		f.clients, f.rounds, f.duration, f.warmup = "16", 1, time.Second, 500*time.Millisecond
	}
	var clients []int
	for _, text := range strings.Split(f.clients, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > 20_000 {
			return p, usageError{fmt.Errorf("--clients has %q, want numbers from 1 to 20000", text)}
		}
		clients = append(clients, n)
	}
	switch {
	case f.members < 1 || f.members > 7:
		return p, usageError{fmt.Errorf("--members is %d, want 1 to 7", f.members)}
	case f.valueBytes < 8 || f.valueBytes > 1<<20:
		return p, usageError{fmt.Errorf("--value-bytes is %d, want 8 to %d", f.valueBytes, 1<<20)}
	case f.keys < 1 || f.keys > 100_000_000:
		return p, usageError{fmt.Errorf("--keys is %d, want 1 to 100000000", f.keys)}
	case f.duration <= 0 || f.warmup < 0 || f.rounds < 1:
		return p, usageError{fmt.Errorf("--duration %v, --warmup %v and --rounds %d must be more than nothing", f.duration, f.warmup, f.rounds)}
	}
	for _, name := range strings.Split(f.loads, ",") {
		kind := service.Kind(strings.TrimSpace(name))
		if kind == service.LargeKind {
			return p, usageError{fmt.Errorf("--loads has %q, want large alone: it has a report of its own", f.loads)}
		}
		if !slices.Contains(service.Kinds, kind) {
			return p, usageError{fmt.Errorf("--loads has %q, want some of %v", name, service.Kinds)}
		}
		for _, n := range f.clientsOf(kind, clients) {
			l := service.Load{Kind: kind, Clients: n, ValueBytes: f.valueBytes}
			if kind == service.Keys || kind == service.Restart {
				l.Keys = f.keys
			}
			p.Loads = append(p.Loads, l)
		}
	}
	p.Members, p.Duration, p.Warmup, p.Rounds = f.members, f.duration, f.warmup, f.rounds
	p.ToLeader, p.Profiles = f.toLeader, f.profiles
	return p, nil
}

// clientsOf returns with how many clients a kind of load is measured.
func (f *benchServeFlags) clientsOf(kind service.Kind, clients []int) []int {
	switch kind {
	case service.Watch, service.Restart:
		return []int{1}
	case service.Fanout, service.Keys:
		return []int{slices.Max(clients)}
	case service.List:
		var few []int
		for _, n := range clients {
			few = append(few, min(n, 16))
		}
		return slices.Compact(few)
	}
	return clients
}

func (f *benchServeFlags) run(ctx context.Context, a app) error {
	p, err := f.plan()
	if err != nil {
		return err
	}
	if p.Systems, p.Missing, err = f.programs(ctx, a); err != nil {
		return err
	}
	if p.Dir, err = os.MkdirTemp(f.dir, "millrace-serve-"); err != nil {
		return err
	}
	defer os.RemoveAll(p.Dir)
	if p.Profiles != "" {
		if err := os.MkdirAll(p.Profiles, 0o755); err != nil {
			return err
		}
	}
	report, err := service.Run(ctx, p, func(done, of int, what string) {
		if w := f.tell(a); w != nil {
			fmt.Fprintf(w, "%d of %d: %s\n", done, of, what)
		}
	})
	write := report.WriteTable
	if f.json {
		write = report.WriteJSON
	}
	return errors.Join(write(a.stdout), err)
}

// programs returns the systems to measure, and why others are missing.
func (f *benchServeFlags) programs(ctx context.Context, a app) (systems []service.System, missing []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range strings.Split(f.systems, ",") {
		switch strings.TrimSpace(name) {
		case "millrace":
			systems = append(systems, service.System{Name: "millrace", Command: []string{self, "serve"}})
		case "etcd":
			program, err := f.etcd(ctx, a)
			if err != nil {
				missing = append(missing, fmt.Sprintf("etcd: %v", err))
				continue
			}
			systems = append(systems, service.System{Name: "etcd", Command: []string{program}})
		default:
			return nil, nil, usageError{fmt.Errorf("--systems has %q, want etcd or millrace", name)}
		}
	}
	return systems, missing, nil
}

// etcd returns etcd's program, which it builds if the user named none.
func (f *benchServeFlags) etcd(ctx context.Context, a app) (string, error) {
	if f.other != "" {
		_, err := os.Stat(f.other)
		return f.other, err
	}
	source, err := sourceTree(f.source)
	if err != nil {
		return "", err
	}
	cache, err := buildCache("etcd")
	if err != nil {
		return "", err
	}
	program := filepath.Join(cache, "etcd")
	build := exec.Command("go", "build", "-o", program, "go.etcd.io/etcd/server/v3")
	build.Env = append(os.Environ(), "GOWORK=off")
	if w := f.tell(a); w != nil {
		fmt.Fprintln(w, "building etcd")
	}
	return program, runBuild(ctx, build, filepath.Join(source, filepath.FromSlash(etcdPrograms)))
}
