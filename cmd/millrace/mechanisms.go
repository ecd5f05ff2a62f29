package main

import (
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// mechanismBatches are what 1, 16, 100 and 1000 appenders with 1 KiB each put into one batch, and half of the last.
var mechanismBatches = []int{1 << 10, 16 << 10, 100 << 10, 500 << 10, 1000 << 10}

// benchMechanisms is bench wal --mechanisms. Of the other flags it knows those that make sense.
func (f walFlags) benchMechanisms(cmd *cobra.Command, w world) error {
	plan := lab.MechanismPlan{BatchBytes: mechanismBatches, Duration: f.duration, Runs: f.runs, Dir: f.dir}
	if f.quick {
		quick(cmd.Flags().Changed, "duration", &plan.Duration, f.duration/10)
	}
	if err := plan.Check(); err != nil {
		return err
	}
	if f.out != "" {
		if err := lab.CheckOut(f.out, (*lab.MechanismReport)(nil)); err != nil {
			return err
		}
	}
	report, err := lab.RunMechanisms(cmd.Context(), plan, lab.NewProgress(w.stderr, f.quiet))
	if err != nil {
		return err
	}
	return writeReport(report, f.json, f.out, w)
}
