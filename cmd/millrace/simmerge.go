package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/simulate"
)

var simMergeLong = `sim merge adds up results of sim: files of --soak, or what --json has printed, as of the shards of a Kubernetes Job. It refuses
results of different profiles or lengths, and results that have a seed in common: it would count twice.

A shard that is missing, or has not run all its seeds, is no error: the report says which seeds there are.

` + simExitHelp()

func simMergeCommand(a app) *cobra.Command {
	var o simOutput
	cmd := &cobra.Command{
		Use:   "merge FILE...",
		Short: "Add up the results of several machines",
		Long:  simMergeLong,
		Example: `  millrace sim merge results/shard-*.json --html all.html
  millrace sim merge results/shard-*.json --json > all.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("want one file or several, have none")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			sum, err := mergeFiles(cmd.Context(), args)
			if err != nil {
				return err
			}
			return o.show(a, sum, nil)
		},
	}
	o.addFlags(cmd)
	return cmd
}

func mergeFiles(ctx context.Context, files []string) (*simulate.Result, error) {
	var results []*simulate.Result
	for _, file := range files {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r, err := simulate.Load(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, statusError{exitCannot, fmt.Errorf("there is no file %s", file)}
		}
		if err != nil {
			return nil, cannot(resultError(err))
		}
		results = append(results, r)
	}
	sum, err := simulate.Merge(files, results)
	if err != nil {
		return nil, usageError{err}
	}
	return sum, nil
}
