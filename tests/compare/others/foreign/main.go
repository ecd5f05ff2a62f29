// Command foreign does one job of `millrace lab measure` or `lab sweep` with components that are other
// projects' code. millrace builds and starts it; it reads the job from its input.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/millrace/millrace/cmd/lab/component"
	"github.com/millrace/millrace/tests/compare/others/foreign/etcdlog"
	"github.com/millrace/millrace/tests/compare/others/foreign/grpctransport"
	"github.com/millrace/millrace/tests/compare/others/foreign/pebblelog"
	"github.com/millrace/millrace/tests/compare/others/foreign/pebblemachine"
)

func components() component.Components {
	return component.Components{
		Logs:       map[string]component.OpenLog{component.EtcdLog: etcdlog.Open, component.PebbleLog: pebblelog.Open},
		Engines:    map[string]component.OpenEngine{component.PebbleEngine: pebblemachine.Open},
		Transports: map[string]component.Listen{component.GRPC: grpctransport.Listen},
	}
}

func main() {
	// A second signal is ignored: the first reaches us from the terminal, and another from millrace.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := component.Serve(ctx, os.Stdin, os.Stdout, os.Stderr, components())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
