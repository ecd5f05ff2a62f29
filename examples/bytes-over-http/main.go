// Command bytes-over-http is one host of a replicated map from keys to bytes, with HTTP for clients.
package main

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

	"github.com/millrace/millrace/host"
)

// options are the flags.
type options struct {
	id        uint64
	dir       string
	peers     map[uint64]string
	http      map[uint64]string
	public    bool
	heartbeat time.Duration
}

// The statuses with which the process ends: 0 after SIGTERM or an interrupt and a close in good order.
const (
	exitFailed = 1 // a sentence on standard error says what
	exitUsage  = 2
)

func main() {
	o, err := parseFlags(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bytes-over-http:", err)
		os.Exit(exitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bytes-over-http:", err)
		os.Exit(exitFailed)
	}
}

func parseFlags(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bytes-over-http", flag.ExitOnError)
	flags.Uint64Var(&o.id, "id", 0, "this host's `number` in -peers, which belongs to its directory forever")
	flags.StringVar(&o.dir, "dir", "", "this host's `directory`; it is made if missing")
	peers := flags.String("peers", "", "`addresses` for Raft of all hosts, the same on each: 1=127.0.0.1:7001,2=127.0.0.1:7002,3=127.0.0.1:7003")
	clients := flags.String("http", "", "`addresses` for clients of all hosts: 1=127.0.0.1:8001,2=127.0.0.1:8002,3=127.0.0.1:8003")
	flags.BoolVar(&o.public, "public", false, "allow addresses that other machines reach; every machine that reaches them can read and write")
	flags.DurationVar(&o.heartbeat, "heartbeat", 100*time.Millisecond, "`time` between heartbeats, the same on each host; ten without one start an election")
	_ = flags.Parse(args) // it ends the process on an error
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag; -h prints them", flags.Arg(0))
	}
	if o.peers, err = parseAddresses(*peers, o.public); err != nil {
		return o, fmt.Errorf("-peers: %w", err)
	}
	if o.http, err = parseAddresses(*clients, o.public); err != nil {
		return o, fmt.Errorf("-http: %w", err)
	}
	if o.http[o.id] == "" {
		return o, fmt.Errorf("-http has no address for -id %d", o.id)
	}
	return o, o.host().Validate()
}

// parseAddresses parses a list such as 1=127.0.0.1:7001,2=127.0.0.1:7002.
func parseAddresses(text string, public bool) (map[uint64]string, error) {
	addresses := map[uint64]string{}
	for item := range strings.SplitSeq(text, ",") {
		number, address, _ := strings.Cut(item, "=")
		id, err := strconv.ParseUint(number, 10, 64)
		if err != nil || addresses[id] != "" {
			return nil, fmt.Errorf("%q: want number=address, each number once, with commas between them", item)
		}
		name, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("host %d: %w", id, err)
		}
		if ip := net.ParseIP(name); !public && name != "localhost" && !ip.IsLoopback() {
			return nil, fmt.Errorf("host %d: %s is not a loopback address; Raft and HTTP ask for no password here, so other machines are let in with -public only", id, address)
		}
		addresses[id] = address
	}
	return addresses, nil
}

func (o options) host() host.Config {
	return host.Config{ID: o.id, Dir: o.dir, Peers: o.peers, HeartbeatInterval: o.heartbeat}
}

// closeTimeout is how long the end may take: an election timeout for the hand-over, and a sync of the log.
const closeTimeout = 10 * time.Second

// run serves until ctx ends or something fails.
func run(ctx context.Context, o options) (err error) {
	listener, err := net.Listen("tcp", o.http[o.id])
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	defer listener.Close()
	h, err := host.Open(ctx, o.host())
	if err != nil {
		return err
	}
	state := &store{values: map[string][]byte{}}
	web := &http.Server{ReadTimeout: requestTimeout, WriteTimeout: 2 * requestTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	defer func() {
		// The host first: it hands over what it leads and answers every put. HTTP only sends these answers.
		ending, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err = errors.Join(err, h.Close(ending), web.Shutdown(ending))
	}()
	group, err := h.OpenGroup(ctx, host.GroupConfig{ID: 1, MaxCommandBytes: maxCommandBytes}, state)
	if err != nil {
		return err
	}
	web.Handler = (&api{id: o.id, http: o.http, group: group, store: state, puts: make(chan struct{}, maxPuts)}).handler()
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	select {
	case <-ctx.Done():
		return nil
	case <-group.Failed():
		return group.Err()
	case err := <-failed:
		return fmt.Errorf("serve clients: %w", err)
	}
}
