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
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// Exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1   // a target failed, or did not hold what it had acknowledged
	exitRefused     = 2   // what was asked cannot be done: flags, directories, room on the disk
	exitInterrupted = 130 // as shells count SIGINT
)

// world is what the commands touch besides files.
type world struct {
	stdout  io.Writer
	stderr  *os.File // a terminal gets a progress bar
	targets lab.Registry
}

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

var errInterrupted = errors.New("interrupted")

// run executes one command line and returns its exit status.
func run(ctx context.Context, args []string, w world) int {
	root := newRoot(w)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, errInterrupted) && sentence(err) != "" {
		fmt.Fprintf(w.stderr, "millrace: %s\n", sentence(err))
	}
	return exitStatus(err)
}

func exitStatus(err error) int {
	var usage usageError
	var own statusError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.As(err, &own):
		return own.status
	case errors.As(err, &usage), errors.Is(err, lab.ErrRefused), errors.Is(err, syscall.ENOSPC):
		return exitRefused
	}
	return exitFailed
}

// sentence joins the lines of a joined error, so that every failure is one line.
func sentence(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}

func newRoot(w world) *cobra.Command {
	root := &cobra.Command{
		Use:   "millrace",
		Short: "Millrace: a Raft library whose heart is the proposal pipeline",
		Long: `Millrace is a Raft library for Go whose heart is the proposal pipeline.
This command measures it on your machine, and looks into the logs of its hosts.`,
		Example: `  millrace bench --quick      three nodes, real disk, three pipelines, within a minute
  millrace bench --help       every knob, every column
  millrace wal verify DIR     is this log whole?`,
		SilenceUsage:  true,
		SilenceErrors: true,
		// A verb that does not exist is a mistake too; cobra would say so only if the root could run.
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(w.stdout)
	root.SetErr(w.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newBench(w), newWAL(w), newVersion(w), newLogChild(w))
	refuseArgs(root)
	return root
}

// refuseArgs makes arguments that a command does not take a mistake of the user's, for cmd and all below it.
func refuseArgs(cmd *cobra.Command) {
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
	for _, below := range cmd.Commands() {
		refuseArgs(below)
	}
}

func newVersion(w world) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary and of Go",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			version := "(devel)"
			if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
				version = info.Main.Version
			}
			_, err := fmt.Fprintf(w.stdout, "millrace %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// untilInterrupt returns a context that the first SIGINT or SIGTERM ends, with errInterrupted as the cause. The second exits at once.
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
