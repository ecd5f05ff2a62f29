package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab/compare"
)

var labCompareLong = fmt.Sprintf(`compare sets run B beside run A: for each point that both have (the same labels) and each figure, the median of the
repeats with its 95 %% confidence interval, the change, and p, the probability that chance alone makes such a change (U test
of Mann and Whitney, which assumes nothing of the distributions). A change with p below 0.05 is significant.

A point needs at least %d repeats on each side (--repeat); with fewer there is no interval, no p, and no verdict.
Runs of different environments (processor, kernel, disk, Go, limits) are refused, because their difference is not the program's;
--force compares them all the same, and says so.

Conditions
  --fail-if 'FIGURE > +N%%'   is broken where the figure has risen by more than N %%, and the change is significant
  --fail-if 'FIGURE < -N%%'   the same for a fall
  FIGURE is a name of result.json (p99_us), or the name without its unit (p99, cpu, allocs), or throughput.
  A broken condition ends compare with status 1. One that too few repeats leave undecided ends it with 3: a gate that cannot
  decide must not look open.

`, compare.MinRepeats) + labExitHelp()

// labCompareFlags is the command line of lab compare.
type labCompareFlags struct {
	failIf []string
	where  []string
	force  bool
	every  bool
	json   bool
}

func newLabCompare(a app) *cobra.Command {
	var f labCompareFlags
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Compare two runs, with statistics, and fail on a regression",
		Long:  labCompareLong,
		Example: `  millrace lab compare runs/before runs/after
  millrace lab compare runs/before runs/after --fail-if 'p99 > +10%' --fail-if 'throughput < -5%'
  millrace lab compare runs/before runs/after --where pipeline=async --where clients=100 --all`,
		Args: wantArgs(2, "the directories of two runs"),
		RunE: func(cmd *cobra.Command, dirs []string) error { return f.run(cmd, dirs, a) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&f.failIf, "fail-if", nil, "a change that is not accepted, such as 'p99 > +10%'; may be given several times")
	flags.StringArrayVar(&f.where, "where", nil, "compare only points with this label, such as pipeline=async; may be given several times")
	flags.BoolVar(&f.force, "force", false, "compare although the environments differ")
	flags.BoolVar(&f.every, "all", false, "print every figure, not only the main ones")
	flags.BoolVar(&f.json, "json", false, "print every figure as JSON instead of a table")
	return cmd
}

func (f *labCompareFlags) run(cmd *cobra.Command, dirs []string, a app) error {
	var conditions []compare.Condition
	for _, text := range f.failIf {
		c, err := compare.ParseCondition(text)
		if err != nil {
			return usageError{fmt.Errorf("--fail-if: %w", err)}
		}
		conditions = append(conditions, c)
	}
	where, err := labelFlags("where", f.where)
	if err != nil {
		return err
	}
	archives, err := readArchives(cmd, dirs)
	if err != nil {
		return err
	}
	c, err := compare.Of(archives[0], archives[1], compare.Options{Force: f.force, Where: where})
	if err != nil {
		return labError(err)
	}
	findings, err := c.Judge(conditions)
	if err != nil {
		return usageError{fmt.Errorf("--fail-if: %w", err)}
	}
	if f.json {
		err = c.WriteJSON(a.stdout, findings)
	} else {
		err = c.WriteTable(a.stdout, f.every, findings)
	}
	return errors.Join(err, verdict(findings))
}

// verdict is the error of a comparison whose conditions are broken, or cannot be judged.
func verdict(findings []compare.Finding) error {
	broken, undecided := 0, 0
	for _, f := range findings {
		switch {
		case f.Broken:
			broken++
		case f.Undecided:
			undecided++
		}
	}
	switch {
	case broken > 0:
		return statusError{exitFailed, fmt.Errorf("%d of %d conditions are broken", broken, len(findings))}
	case undecided > 0:
		return statusError{exitCannot, fmt.Errorf("%d of %d conditions cannot be judged: they need %d repeats of each point on each side", undecided, len(findings), compare.MinRepeats)}
	}
	return nil
}

func cutLabel(text string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" || value == "" {
		return "", "", fmt.Errorf("%q is not a label; write one like pipeline=async", text)
	}
	return name, value, nil
}
