package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab/bench"
)

// app is what the commands use besides files: where they print, and what they can measure.
type app struct {
	stdout  io.Writer
	stderr  *os.File // a terminal gets a progress bar
	targets bench.Registry
}

// run executes one command line and returns its exit status.
func run(ctx context.Context, args []string, a app) int {
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, errInterrupted) && sentence(err) != "" {
		fmt.Fprintf(a.stderr, "millrace: %s\n", sentence(err))
	}
	return exitStatus(err)
}

func newRoot(a app) *cobra.Command {
	root := &cobra.Command{
		Use:   "millrace",
		Short: "Millrace: a Raft library whose heart is the proposal pipeline",
		Long: `Millrace is a Raft library for Go whose heart is the proposal pipeline.
This command measures it on your machine, looks into the logs, the snapshots and the objects of its hosts,
makes their certificates, changes the members of a cluster, and simulates clusters with faults.

` + exitTable(nil, func(e exitMeaning) string { return e.meaning }),
		Example: `  millrace bench --quick      three hosts, real disk, three pipelines, within a minute
  millrace bench --help       every flag, every column
  millrace wal verify DIR     is this log whole?`,
		Version:       versionText(), // with --version
		SilenceUsage:  true,
		SilenceErrors: true,
		// An unknown verb is a mistake too. cobra reports it only if the root itself can run.
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return seeHelp(cmd, err) })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newServe(a), newBench(a), newLab(a), newWAL(a), newSnapshot(a), newObjects(a), newCert(a), newMembers(a), newFlight(a), simCommand(a), newVersion(a), newLogChild(a), newPeerChild(a), newLabClient(a))
	root.SetHelpCommand(newHelp(root))
	refuseArgs(root)
	return root
}

// seeHelp is a mistake in the command line of cmd.
func seeHelp(cmd *cobra.Command, err error) error {
	return usageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
}

// wantArgs refuses any other number of arguments than n, which want tells in words.
func wantArgs(n int, want string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == n:
			return nil
		case len(args) == 0:
			return fmt.Errorf("want %s, have none", want)
		}
		return fmt.Errorf("want %s, have %d", want, len(args))
	}
}

// refuseArgs makes arguments that a command does not take a mistake of the user, for cmd and all commands
// below it.
func refuseArgs(cmd *cobra.Command) {
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return seeHelp(cmd, err)
		}
		return nil
	}
	for _, below := range cmd.Commands() {
		refuseArgs(below)
	}
}

// newHelp replaces cobra's own, which ends with 0 for a verb that does not exist.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [VERB]",
		Short: "Print the help of a verb",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("%s has no verb %q", cmd.CommandPath(), rest[0])
			}
			if err != nil {
				return seeHelp(root, err)
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

func newVersion(a app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary and of Go",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.stdout, "millrace", versionText())
			return err
		},
	}
}

// versionText names the version of this binary, of Go, and the platform.
func versionText() string {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return fmt.Sprintf("%s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// untilInterrupt returns a context that the first SIGINT or SIGTERM ends, with errInterrupted as the cause.
// The second calls exit at once.
func untilInterrupt(exit func(int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel(errInterrupted)
		<-signals
		exit(exitInterrupted)
	}()
	return ctx, func() { signal.Stop(signals) }
}
