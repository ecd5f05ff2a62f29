package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/server"
	"github.com/millrace/millrace/server/config"
)

var serveLong = `serve is a member of a service that speaks etcd's API, version 3: put, get, txn, watch, lease, lock and elect, by gRPC and as JSON.
Clients of etcd work as they are. The flags are etcd's, and so are the environment variables (ETCD_NAME, or MILLRACE_NAME) and the file
of --config-file. Every flag of etcd 3.7 is known: it works, or a sentence says why it changes nothing, or what to do.

  --dev            three members in this process on 127.0.0.1, with data in --data-dir (default millrace-dev); clients at port 2379
  --print-config   print all settings as they are in force, with where they come from, and end
  --version        print which version of etcd's API is served, and end

"millrace serve log DIR" prints what is committed in the directory of a stopped member.

SIGTERM ends a member in order: readiness, leadership, watches, requests, log. A second one ends it at once.

`

// newServe is the verb of the service. Its flags are etcd's, which package config reads.
func newServe(a app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve [flags of etcd]",
		Short: "Serve etcd's API: a member, or three for a first look (--dev)",
		Long:  serveLong + exitTable([]int{exitOK, exitFailed, exitCannot, exitUsage, exitInterrupted}, func(e exitMeaning) string { return e.serve }),
		Example: `  millrace serve --dev
  etcdctl put greeting hello                     in another terminal
  millrace serve --name m1 --initial-cluster m1=http://10.0.0.1:2380,m2=http://10.0.0.2:2380,m3=http://10.0.0.3:2380 ...`,
		DisableFlagParsing: true,
		Args:               cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return serve(cmd.Context(), a, args, func() error {
				fmt.Fprintln(a.stdout, cmd.Long)
				fmt.Fprintln(a.stdout)
				fmt.Fprint(a.stdout, config.Help())
				return nil
			})
		},
	}
	cmd.AddCommand(newServeLog(a))
	return cmd
}

// stopTimeout bounds the close of the log at the end, after the requests.
const stopTimeout = 15 * time.Second

func serve(ctx context.Context, a app, args []string, help func() error) error {
	dev := false
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		is := arg == "--dev" || arg == "-dev"
		dev = dev || is
		return is
	})
	l, err := config.Load(args, os.Environ(), os.ReadFile)
	switch {
	case errors.Is(err, config.ErrHelp):
		return help()
	case err != nil:
		return usageError{err}
	case ctx.Err() != nil:
		return errInterrupted
	case l.Version:
		fmt.Fprintf(a.stdout, "millrace %s\netcd API: %s\n", versionText(), server.EtcdVersion)
		return nil
	case l.Print:
		fmt.Fprint(a.stdout, l.Text())
		return nil
	}
	if dev && l.Values["log-level"].Source == config.Default {
		l.Config.LogLevel = "warn"
	}
	if dev && l.Values["log-format"].Source == config.Default {
		l.Config.LogFormat = "console"
	}
	logger, files, err := server.NewLogger(l.Config, a.stdout, a.stderr)
	if err != nil {
		return usageError{err}
	}
	defer files.Close()
	for _, w := range l.Warnings {
		logger.Warn(w)
	}
	go server.BoundGarbage(ctx)
	if dev {
		return serveDev(ctx, a, l, logger)
	}
	s, err := server.Start(ctx, server.Config{Config: l.Config, Logger: logger, Fatal: a.fatal})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		logger.Info("stopping")
	case err = <-s.Failed():
	}
	return errors.Join(err, closeWithin(l.Config.StopTimeout+stopTimeout, s.Close))
}

// fatal ends the process: what is under way cannot be closed.
func (a app) fatal(err error) {
	fmt.Fprintf(a.stderr, "millrace: %s\n", sentence(err))
	os.Exit(exitStatus(err))
}

func closeWithin(d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return f(ctx)
}

// serveDev runs the cluster of --dev. A flag about addresses would be for one of its members only.
func serveDev(ctx context.Context, a app, l *config.Loaded, logger *slog.Logger) error {
	for name, v := range l.Values {
		if v.Source != config.Default && (strings.HasPrefix(name, "listen-") || strings.HasPrefix(name, "initial-") || name == "name" || name == "advertise-client-urls") {
			return usageError{fmt.Errorf("--%s does not go with --dev, which has three members at fixed ports of 127.0.0.1", name)}
		}
	}
	dir := "millrace-dev"
	if l.Values["data-dir"].Source != config.Default {
		dir = l.Config.Dir
	}
	o := server.DevOptions{Dir: dir, Clients: server.DevClients, Peers: server.DevPeers, Logger: logger, Fatal: a.fatal}
	for name, v := range l.Values {
		if v.Source != config.Default && name != "data-dir" {
			o.Flags = append(o.Flags, "--"+name+"="+v.Text)
		}
	}
	d, err := server.StartDev(ctx, o)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; --dev has fixed ports, %d and %d: stop what listens there, etcd or another --dev, or serve with --listen-client-urls", err, o.Clients, o.Peers)
	}
	if err != nil {
		return err
	}
	for _, m := range d.Members {
		select {
		case <-m.Ready():
		case err = <-m.Failed():
		case <-ctx.Done():
		}
	}
	if err == nil && ctx.Err() == nil {
		path, perr := filepath.Abs(dir)
		if perr != nil {
			path = dir
		}
		fmt.Fprintf(a.stdout, `Three members serve etcd's API; their data is in %s.

  endpoints   127.0.0.1:%d 127.0.0.1:%d 127.0.0.1:%d
  write       etcdctl put greeting hello
  read        etcdctl get greeting
  look        etcdctl endpoint status --cluster -w table

Ctrl-C stops them. The same command finds the data again.
`, path, o.Clients[0], o.Clients[1], o.Clients[2])
		select {
		case <-ctx.Done():
		case err = <-d.Failed(ctx):
		}
	}
	return errors.Join(err, closeWithin(l.Config.StopTimeout+stopTimeout, d.Close))
}
