// Command files is one host of a replicated file store: names are in the state machine, contents are large
// objects beside the log. Clients talk HTTP to any host.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/ops"
)

func main() {
	ops.Main("files", func(ctx context.Context, args []string) error {
		o, err := parse(args, os.Environ())
		if err != nil {
			return err
		}
		return run(ctx, o)
	})
}

// options are the settings: those of package ops, and of the store.
type options struct {
	*ops.Settings
	public   bool          // other machines reach the address for clients
	reserve  int64         // of the disk, for the log
	maxBytes int64         // of a file
	life     time.Duration // of bytes to which no name refers
}

// parse reads the settings of the program.
func parse(args, environment []string) (o options, err error) {
	o.Settings = ops.NewSettings("files")
	f := o.Flags
	f.BoolVar(&o.public, "public", false, "let other machines reach client-addresses: every machine that reaches one can read and write everything")
	f.Int64Var(&o.maxBytes, "max-bytes", 1<<30, "the `bytes` of the largest file")
	f.DurationVar(&o.life, "life", time.Hour, "how long bytes stay to which no name refers; a majority must have a new file within that `time`")
	f.Int64Var(&o.reserve, "reserve", 0, "the `bytes` of the disk that files leave for the log; 0: 256 MiB")
	if err := o.Settings.Parse(args, environment); err != nil {
		return o, err
	}
	return o, o.check()
}

// address is where this host listens for clients.
func (o *options) address() string { return o.Config.ClientAddrs[o.Config.ID] }

// check refuses what only this program knows to be wrong.
func (o *options) check() error {
	wrong := func(format string, args ...any) error { return &ops.UsageError{Err: fmt.Errorf(format, args...)} }
	switch name, _, _ := net.SplitHostPort(o.address()); {
	case o.maxBytes < 1 || o.maxBytes > object.MaxBytes:
		return wrong("setting max-bytes is %d, want 1 to %d", o.maxBytes, int64(object.MaxBytes))
	case o.life < object.MinLife || o.life > object.MaxLife:
		return wrong("setting life is %v, want %v to %v", o.life, object.MinLife, object.MaxLife)
	case o.address() == "":
		return wrong("setting client-addresses has no address for this host, id %d", o.Config.ID)
	case !o.public && name != "localhost" && !net.ParseIP(name).IsLoopback():
		return wrong("setting client-addresses: %s is not a loopback address, and HTTP asks for no password here; public lets other machines in", o.address())
	}
	return nil
}

// run serves until ctx ends or something fails. At the end a put that ends in time is answered, and one that
// is broken off leaves nothing.
func run(ctx context.Context, o options) error {
	listener, err := net.Listen("tcp", o.address())
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	defer listener.Close()
	state := newStore()
	node, err := millrace.Open(ctx, o.Config, state.machine(millrace.ObjectOptions{ReserveBytes: o.reserve}))
	if err != nil {
		return err
	}
	s := o.Service()
	s.Handler, s.Listener = (&server{o, node, state}).handler(), listener
	s.Server = &http.Server{ReadHeaderTimeout: idleTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	return ops.Run(ctx, node, s)
}
