// Command files is one host of a replicated file store: names are in the state machine, contents are large
// objects beside the log. Clients talk HTTP to any host.
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

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/object"
)

func main() {
	o, err := parseFlags(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "files: %v\n", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "files: %v\n", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	config   millrace.Config
	http     string        // the address for clients
	reserve  int64         // of the disk, for the log
	maxBytes int64         // of a file
	life     time.Duration // of bytes to which no name refers
}

// parseFlags parses the flags of the program.
func parseFlags(args []string) (o options, err error) {
	c := &o.config
	flags := flag.NewFlagSet("files", flag.ExitOnError)
	flags.Uint64Var(&c.ID, "id", 0, "this host's `number` in -peers, which belongs to its directory forever")
	flags.StringVar(&c.Dir, "dir", "", "this host's `directory`; it is made if missing")
	peers := flags.String("peers", "", "`addresses` for Raft of all hosts, the same on each: 1=127.0.0.1:7001,2=127.0.0.1:7002,3=127.0.0.1:7003")
	clients := flags.String("http", "", "`addresses` for clients of all hosts: 1=127.0.0.1:8001,2=127.0.0.1:8002,3=127.0.0.1:8003")
	public := flags.Bool("public", false, "allow addresses that other machines reach; every machine that reaches one can read and write everything")
	flags.Int64Var(&o.maxBytes, "max-bytes", 1<<30, "the `bytes` of the largest file")
	flags.DurationVar(&o.life, "life", time.Hour, "how long bytes stay to which no name refers; a majority must have a new file within that `time`")
	flags.Int64Var(&c.Snapshots.LogBytes, "snapshot-bytes", 0, "how many `bytes` the log grows between two snapshots, released files counted; 0: 64 MiB")
	flags.Int64Var(&o.reserve, "reserve", 0, "the `bytes` of the disk that files leave for the log; 0: 256 MiB")
	_ = flags.Parse(args) // it ends the process on an error
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is no flag; -h prints them", flags.Arg(0))
	case o.maxBytes < 1 || o.maxBytes > object.MaxBytes:
		return o, fmt.Errorf("-max-bytes is %d, want 1 to %d", o.maxBytes, int64(object.MaxBytes))
	case o.life < object.MinLife || o.life > object.MaxLife:
		return o, fmt.Errorf("-life is %v, want %v to %v", o.life, object.MinLife, object.MaxLife)
	}
	if c.Members, err = parseAddresses(*peers); err != nil {
		return o, fmt.Errorf("-peers: %w", err)
	}
	if c.ClientAddrs, err = parseAddresses(*clients); err != nil {
		return o, fmt.Errorf("-http: %w", err)
	}
	if o.http = c.ClientAddrs[c.ID]; o.http == "" {
		return o, fmt.Errorf("-http has no address for -id %d", c.ID)
	}
	if name, _, _ := net.SplitHostPort(o.http); !*public && name != "localhost" && !net.ParseIP(name).IsLoopback() {
		return o, fmt.Errorf("-http: %s is not a loopback address, and HTTP asks for no password here; -public lets other machines in", o.http)
	}
	c.Insecure = *public // Config.TLS would encrypt what hosts say: examples/kv has flags for it
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
		addresses[id] = address
	}
	return addresses, nil
}

// closeTimeout is how long transfers may go on at the end, and how long the node may take to close.
const closeTimeout = 10 * time.Second

// run serves until ctx ends or something fails.
func run(ctx context.Context, o options) (err error) {
	listener, err := net.Listen("tcp", o.http)
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	defer listener.Close()
	state := newStore()
	node, err := millrace.Open(ctx, o.config, state.machine(millrace.ObjectOptions{ReserveBytes: o.reserve}))
	if err != nil {
		return err
	}
	s := &server{o, node, state}
	web := &http.Server{Handler: s.handler(), ReadHeaderTimeout: idleTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	select {
	case <-ctx.Done():
	case <-node.Failed():
		err = node.Err()
	case err = <-failed:
		err = fmt.Errorf("serve clients: %w", err)
	}
	// The clients first: a put that ends in time is answered, and one that is broken off leaves nothing.
	transfers, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if web.Shutdown(transfers) != nil {
		_ = web.Close()
	}
	ending, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return errors.Join(err, node.Close(ending))
}
