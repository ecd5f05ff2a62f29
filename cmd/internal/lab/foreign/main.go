// Command foreign does one job of `millrace lab measure` or `lab sweep` with components that are other
// projects' code. millrace builds and starts it; it reads the job from its input.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/foreign/etcdlog"
	"github.com/millrace/millrace/cmd/internal/lab/foreign/grpctransport"
	"github.com/millrace/millrace/cmd/internal/lab/foreign/pebblelog"
	"github.com/millrace/millrace/cmd/internal/lab/foreign/pebblemachine"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

func components() rig.Foreign {
	return rig.Foreign{
		Logs:       map[string]rig.OpenLog{experiment.EtcdLog: etcdlog.Open, experiment.PebbleLog: pebblelog.Open},
		Engines:    map[string]rig.OpenEngine{experiment.PebbleEngine: pebblemachine.Open},
		Transports: map[string]rig.Listen{experiment.GRPC: grpctransport.Listen},
	}
}

func main() {
	// A second signal is ignored: the first reaches us from the terminal, and another from millrace.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := experiment.Serve(ctx, os.Stdin, os.Stdout, os.Stderr, components())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
