// Package server is what the hosts of a replicated key-value store have in common, whatever keeps their
// state: the commands and what they do, HTTP for clients, and the flags of the process. examples/kv keeps
// the state in memory, examples/kv-pebble on the disk.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/ops"
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

// Main is the program: it serves, with the settings of the process, until a signal comes. Package ops has the
// settings that programs share, the pages for operators, and the end of the process in good order.
func Main(name string, open Open) {
	ops.Main(name, func(ctx context.Context, args []string) error {
		o, err := Parse(name, args, os.Environ())
		if err != nil {
			return err
		}
		return Run(ctx, o, open)
	})
}

// Options are the settings of a process: those of package ops, and of the store.
type Options struct {
	*ops.Settings
	redirect bool
	public   bool
	timeout  time.Duration
	listen   string // for clients; "": their address of this host
}

// Parse reads the settings of a program with this name.
func Parse(name string, args, environment []string) (o Options, err error) {
	o.Settings = ops.NewSettings(name)
	c, f := &o.Config, o.Flags
	c.Leases, c.MaxCommandBytes = true, maxCommandBytes // consistency=lease needs leases
	f.Var(f.Lookup("members").Value, "peers", "the earlier name of members")
	f.Var(f.Lookup("client-addresses").Value, "http", "the earlier name of client-addresses: where this host listens for clients, and where the others do")
	f.StringVar(&o.listen, "client-listen", "", "`address` to listen on for clients, if it is not the one in client-addresses")
	f.BoolVar(&o.public, "public", false, "let other machines reach client-addresses: no client is asked for a password, so every machine that reaches them can read and write")
	f.BoolVar(&c.SingleEntries, "single-entries", false, "make each command an entry of the log, so that hosts of a version without batches can follow")
	f.BoolVar(&o.redirect, "redirect", false, "send clients to the leader with their changes; without it, this host forwards them")
	f.DurationVar(&o.timeout, "timeout", 5*time.Second, "the longest `time` from a request to its answer")
	if err := o.Settings.Parse(args, environment); err != nil {
		return o, err
	}
	return o, o.check()
}

// check refuses what only this program knows to be wrong.
func (o *Options) check() error {
	wrong := func(format string, args ...any) error { return &ops.UsageError{Err: fmt.Errorf(format, args...)} }
	if o.timeout < time.Millisecond || o.timeout > time.Hour {
		return wrong("setting timeout is %v, want 1ms to 1h", o.timeout)
	}
	if o.Config.ClientAddrs[o.Config.ID] == "" {
		return wrong("setting client-addresses has no address for this host, id %d", o.Config.ID)
	}
	if o.listen == "" {
		o.listen = o.Config.ClientAddrs[o.Config.ID]
	} else if name, _, err := net.SplitHostPort(o.listen); err != nil {
		return wrong("setting client-listen is %.80q, want host:port such as :8001: %w", o.listen, err)
	} else if !o.public && name != "localhost" && !net.ParseIP(name).IsLoopback() {
		return wrong("setting client-listen is %s, which is not a loopback address, and HTTP asks for no password here; public lets other machines in", o.listen)
	}
	for id, address := range o.Config.ClientAddrs {
		if name, _, _ := net.SplitHostPort(address); !o.public && name != "localhost" && !net.ParseIP(name).IsLoopback() {
			return wrong("setting client-addresses: host %d: %s is not a loopback address, and HTTP asks for no password here; public lets other machines in", id, address)
		}
	}
	return nil
}

// Run serves until ctx ends or something fails.
func Run(ctx context.Context, o Options, open Open) error {
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	defer listener.Close()
	state, err := open(o.Config.Dir)
	if err != nil {
		return err
	}
	node, err := millrace.Open(ctx, o.Config, state.Machine())
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return state.Close() // the end came during the start: nothing has failed
	}
	if err != nil {
		return errors.Join(err, state.Close())
	}
	s := o.Service()
	pages, err := ops.NewHandler(node, s.Options)
	if err != nil {
		return errors.Join(err, node.Close(ctx), state.Close())
	}
	s.Listener = listener
	s.Server = &http.Server{ReadTimeout: o.timeout, WriteTimeout: 2 * o.timeout, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	serving, stop := context.WithCancel(context.Background()) // watchers end first: their requests have no end
	defer stop()
	s.Server.RegisterOnShutdown(stop)
	s.Handler = (&api{
		id: o.Config.ID, node: node, store: state, pages: pages,
		redirect: o.redirect, timeout: o.timeout, changes: make(chan struct{}, maxChanges), watchers: make(chan struct{}, maxWatchers), serving: serving,
	}).handler()
	err = ops.Run(ctx, node, s)
	if hangs := (*ops.HangError)(nil); !errors.As(err, &hangs) { // otherwise the node may still use it, and the process ends
		err = errors.Join(err, state.Close())
	}
	return err
}
