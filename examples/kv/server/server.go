// Package server is what the hosts of a replicated key-value store have in common, whatever keeps their
// state: the commands and what they do, HTTP for clients, and the flags of the process. examples/kv keeps
// the state in memory, examples/kv-pebble on the disk.
package server

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace"
)

// Store is the state machine of a host, and what HTTP reads of it. Get and Totals are for any goroutine.
type Store interface {
	Machine() millrace.Machine[Command, Result]
	Get(key string) (i Item, found bool, err error)
	Totals() Totals
	Close() error
}

// Open opens the state of a host with this directory.
type Open func(dir string) (Store, error)

// The statuses with which the process ends: 0 after SIGTERM or an interrupt and a close in good order.
const (
	exitFailed = 1 // a sentence on standard error says what
	exitUsage  = 2
)

// Main is the program: it serves, with the flags of the command line, until the process gets a signal.
func Main(name string, open Open) {
	o, err := ParseFlags(name, os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(exitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := Run(ctx, o, open); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(exitFailed)
	}
}

// Options are the flags.
type Options struct {
	config   millrace.Config
	http     map[uint64]string
	redirect bool
	timeout  time.Duration
}

// ParseFlags parses the flags of a program with this name.
func ParseFlags(name string, args []string) (o Options, err error) {
	c := &o.config
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	flags.Uint64Var(&c.ID, "id", 0, "this host's `number` in -peers, which belongs to its directory forever")
	flags.StringVar(&c.Dir, "dir", "", "this host's `directory`; it is made if missing")
	peers := flags.String("peers", "", "`addresses` for Raft of all hosts, the same on each: 1=127.0.0.1:7001,2=127.0.0.1:7002,3=127.0.0.1:7003")
	flags.BoolVar(&c.Joins, "joins", false, "this host comes to a cluster that was founded without it, or with another directory of it: it waits until POST /members on another host adds or replaces it")
	flags.StringVar(&c.Cluster, "cluster", "", "the `number` of the cluster, for -joins: GET /status of its hosts has it")
	token := flags.String("join-token-file", "", "`file` with what POST /members/token has returned on another host: this host joins the cluster by it, in place of -joins and -cluster")
	clients := flags.String("http", "", "`addresses` for clients of all hosts: 1=127.0.0.1:8001,2=127.0.0.1:8002,3=127.0.0.1:8003")
	flags.StringVar(&c.Listen, "listen", "", "`address` for Raft to listen on, if it is not the one in -peers")
	public := flags.Bool("public", false, "allow addresses that other machines reach; every machine that reaches -http, and without -cert the others, too, can read and write")
	secured := &millrace.TLS{}
	flags.StringVar(&secured.CertFile, "cert", "", "`file` with the certificate that names -id (millrace cert): hosts talk over TLS")
	flags.StringVar(&secured.KeyFile, "key", "", "`file` with the private key of -cert")
	flags.StringVar(&secured.CAFile, "ca", "", "`file` with the CAs that name hosts")
	flags.DurationVar(&c.HeartbeatInterval, "heartbeat", 100*time.Millisecond, "`time` between heartbeats, the same on each host; ten without one start an election")
	flags.BoolVar(&c.Leases, "leases", true, "let members promise their leader to elect no other for a while, the same on each host: consistency=lease needs it")
	flags.Int64Var(&c.Snapshots.LogBytes, "snapshot-bytes", 0, "how many `bytes` the log grows between two snapshots; 0: 64 MiB, or four times the last snapshot if that is more")
	flags.BoolVar(&c.BatchEntries, "batch-entries", false, "let commands share an entry of the log, which begins when all hosts have it; then no host of an earlier version can follow")
	flags.BoolVar(&o.redirect, "redirect", false, "send clients to the leader with their changes; without it, this host forwards them")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Second, "the longest `time` from a request to its answer")
	_ = flags.Parse(args) // it ends the process on an error
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag; -h prints them", flags.Arg(0))
	}
	if secured.CertFile != "" || secured.KeyFile != "" || secured.CAFile != "" {
		c.TLS = secured
	}
	c.Insecure = *public && c.TLS == nil
	if o.timeout < time.Millisecond || o.timeout > time.Hour {
		return o, fmt.Errorf("-timeout is %v, want 1ms to 1h", o.timeout)
	}
	if c.Members, err = parseAddresses(*peers); err != nil {
		return o, fmt.Errorf("-peers: %w", err)
	}
	if *token != "" {
		text, err := os.ReadFile(*token)
		if err != nil {
			return o, fmt.Errorf("-join-token-file: %w", err)
		}
		c.JoinToken = strings.TrimSpace(string(text))
	}
	if o.http, err = parseAddresses(*clients); err != nil {
		return o, fmt.Errorf("-http: %w", err)
	}
	if o.http[c.ID] == "" {
		return o, fmt.Errorf("-http has no address for -id %d", c.ID)
	}
	for id, address := range o.http {
		if name, _, _ := net.SplitHostPort(address); !*public && name != "localhost" && !net.ParseIP(name).IsLoopback() {
			return o, fmt.Errorf("-http: host %d: %s is not a loopback address, and HTTP asks for no password here; -public lets other machines in", id, address)
		}
	}
	c.ClientAddrs, c.MaxCommandBytes = o.http, maxCommandBytes
	return o, c.Validate()
}

// parseAddresses parses a list such as 1=127.0.0.1:7001,2=127.0.0.1:7002.
func parseAddresses(text string) (map[uint64]string, error) {
	addresses := map[uint64]string{}
	for item := range strings.SplitSeq(text, ",") {
		number, address, _ := strings.Cut(item, "=")
		id, err := strconv.ParseUint(number, 10, 64)
		if err != nil || addresses[id] != "" {
			return nil, fmt.Errorf("%q: want number=address, each number once, with commas between them", item)
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, fmt.Errorf("host %d: %w", id, err)
		}
		addresses[id] = address
	}
	return addresses, nil
}

// closeTimeout is how long clients may take at the end, and then the node: an election timeout for the
// hand-over, and a sync of the log.
const closeTimeout = 10 * time.Second

// Run serves until ctx ends or something fails.
func Run(ctx context.Context, o Options, open Open) (err error) {
	listener, err := net.Listen("tcp", o.http[o.config.ID])
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	defer listener.Close()
	state, err := open(o.config.Dir)
	if err != nil {
		return err
	}
	node, err := millrace.Open(ctx, o.config, state.Machine())
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return state.Close() // the end came during the start: nothing has failed
	}
	if err != nil {
		return errors.Join(err, state.Close())
	}
	web := &http.Server{ReadTimeout: o.timeout, WriteTimeout: 2 * o.timeout, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	defer func() {
		// The clients first: no request is taken any more, and those that were taken get their answers.
		answers, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if web.Shutdown(answers) != nil {
			_ = web.Close() // a client that is too slow
		}
		ending, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		closed := node.Close(ending)
		err = errors.Join(err, closed)
		if closed == nil { // otherwise the node may still use it, and the process ends
			err = errors.Join(err, state.Close())
		}
	}()
	web.Handler = (&api{
		id: o.config.ID, http: o.http, node: node, store: state,
		redirect: o.redirect, timeout: o.timeout, changes: make(chan struct{}, maxChanges),
	}).handler()
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	select {
	case <-ctx.Done():
		return nil
	case <-node.Failed():
		return node.Err()
	case err := <-failed:
		return fmt.Errorf("serve clients: %w", err)
	}
}
