package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

var labLong = `lab makes experiments and works with their results. Each run leaves a directory: result.json, env.json, bench.txt (which
benchstat reads) and the latencies of every second as HdrHistogram logs. docs/howto/lab.md describes them.

bench is the short way to a table; lab is for figures that others can check, repeat and compare.

` + labExitHelp()

func newLab(a app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Experiments, their reports, and comparisons of runs",
		Long:  labLong,
		Example: `  millrace lab run b3 --quick --out runs/b3  an experiment of the sources; millrace lab list names them
  millrace lab report runs/monday           a page that opens without a network, and tables
  millrace lab compare runs/before runs/after --fail-if 'p99 > +10%'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(labExperiments(a)...)
	cmd.AddCommand(labProcesses(a)...)
	cmd.AddCommand(newLabReport(a), newLabPlot(a), newLabCompare(a))
	return cmd
}

func labExitHelp() string {
	return exitTable([]int{exitOK, exitFailed, exitDamaged, exitCannot, exitUsage, exitInterrupted}, func(e exitMeaning) string { return e.lab })
}

// readArchives reads the directories of runs that a command line names.
func readArchives(cmd *cobra.Command, dirs []string) ([]*archive.Archive, error) {
	var all []*archive.Archive
	for _, dir := range dirs {
		if err := cmd.Context().Err(); err != nil {
			return nil, errInterrupted
		}
		a, err := archive.Read(dir)
		if err != nil {
			return nil, labError(err)
		}
		all = append(all, a)
	}
	return all, nil
}

// labError gives an error about results its status. Directories of runs are arguments here: no flag names
// them.
func labError(err error) error {
	var refused *lab.FieldError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, archive.ErrDamaged):
		return statusError{exitDamaged, err}
	case errors.As(err, &refused) && (refused.Field == "Dir" || refused.Field == "Out") && errors.Is(err, lab.ErrCannot):
		return statusError{exitCannot, errors.New(refused.Reason)}
	}
	return err
}

// wantDirs refuses a command line without a directory.
func wantDirs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("want one directory of a run or several, have none")
	}
	return nil
}

// labelFlags reads LABEL=VALUE of a flag that may be given several times.
func labelFlags(flag string, texts []string) (map[string]string, error) {
	all := map[string]string{}
	for _, text := range texts {
		name, value, err := cutLabel(text)
		if err != nil {
			return nil, usageError{fmt.Errorf("--%s: %w", flag, err)}
		}
		if _, double := all[name]; double {
			return nil, usageError{fmt.Errorf("--%s: %s is there twice", flag, name)}
		}
		all[name] = value
	}
	return all, nil
}
