package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/recipe"
)

// labRunFlags is the command line of lab run.
type labRunFlags struct {
	quick  bool
	glance bool
	long   bool
	probe  time.Duration
	dir    string
	seed   uint64
	labOutput
}

const recipesResume = `b2 and batches finish all of their points together, b5 those of one state, node and objects those of one round, snapshots
those of one section: what was cut short there begins again. b4
makes the changes of members that are finished once more, without clients, to have the same members again.

`

func newLabRun(a app) *cobra.Command {
	var f labRunFlags
	names := recipe.Names()
	cmd := &cobra.Command{
		Use:   "run RECIPE",
		Short: "Repeat an experiment of the sources, or of ours, with the source's figures beside",
		Long: `run repeats an experiment of the sources, or of ours, on this machine, prints the source's figures beside, and judges
its demands: pass, fail, or not measured and why. It says beforehand how long it will take, and what it leaves out.
All recipes together take about 55 minutes on two cores. With --quick each takes at most about two; with --long it has
the sources' own numbers of rounds, trials and bytes. Ctrl-C ends it and keeps what was finished. The recipes:

` + recipeTable() + resumeHelp + recipesResume + labExitHelp(),
		Example: `  millrace lab run rafttoy --quick
  millrace lab run b3 --out runs/b3          what a dead, a slow and a deaf follower do to the clients
  millrace lab run b3 --out runs/b3 --resume what was missing when that was interrupted`,
		Args: wantArgs(1, "one of "+strings.Join(names, ", ")),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, ok := recipe.ByName(args[0])
			if !ok {
				return usageError{fmt.Errorf("there is no recipe %q; choose from %s", args[0], strings.Join(names, ", "))}
			}
			if err := f.labOutput.validate(); err != nil {
				return err
			}
			size, err := f.size(cmd)
			if err != nil {
				return err
			}
			if f.telling() == experiment.Told {
				fmt.Fprintln(a.stderr, r.Estimate(size))
				if f.resume {
					fmt.Fprintln(a.stderr, "What is finished is not measured again.")
				}
			}
			o := experiment.Options{
				Recipe: r.Name, Summary: r.Question, Command: commandLine(cmd), Config: settings(cmd), Seed: f.seed, Dir: f.dir, Out: f.out, Resume: f.resume, Aside: aside(),
				Hosts: r.Hosts, NeedMiB: r.NeedMiB(size), Probe: f.probe, Progress: f.telling().To(a.stderr),
			}
			return experiment.RunAndWrite(cmd.Context(), o, a.stdout, func(ctx context.Context, s *experiment.Session) error { return r.Run(ctx, s, size) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.quick, "quick", false, "within about two minutes, with less of everything")
	flags.BoolVar(&f.long, "long", false, "with the sources' own numbers, however long that takes")
	flags.BoolVar(&f.glance, "glance", false, "everything once, for a moment: to see that it runs here. Its figures mean nothing")
	flags.DurationVar(&f.probe, "probe", 3*time.Second, "how long disk, network and memory of the machine are tried before; 0: not at all")
	flags.StringVar(&f.dir, "dir", "", dirHelp)
	flags.Uint64Var(&f.seed, "seed", 1, "of values, schedules and the order of points")
	f.addFlags(cmd)
	return cmd
}

// size returns the size that the flags ask for, and shortens the probe with it.
func (f *labRunFlags) size(cmd *cobra.Command) (recipe.Size, error) {
	n, size := 0, recipe.Full
	for _, of := range []struct {
		set   bool
		size  recipe.Size
		probe time.Duration
	}{{f.quick, recipe.Quick, time.Second}, {f.glance, recipe.Glance, 0}, {f.long, recipe.Long, f.probe}} {
		if of.set {
			n, size = n+1, of.size
			quick(cmd.Flags().Changed, "probe", &f.probe, of.probe)
		}
	}
	if n > 1 {
		return size, usageError{errors.New("--quick, --glance and --long exclude each other")}
	}
	return size, nil
}

// newLabClient is the client's process of the recipes logcabin and b1.
func newLabClient(a app) *cobra.Command {
	return &cobra.Command{
		Use:    recipe.ClientVerb,
		Short:  "The client of a recipe, whose job is read from the input",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return recipe.ServeClient(cmd.Context(), os.Stdin, a.stdout)
		},
	}
}

// recipeTable lists the recipes.
func recipeTable() string {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range recipe.All() {
		fmt.Fprintf(tw, "  %s\t%s\n", r.Name, r.Question)
	}
	_ = tw.Flush() // into memory
	return b.String()
}

func newLabList(a app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the recipes of run: how long each takes, the question that it answers, and its source",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			tw := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			for _, r := range recipe.All() {
				fmt.Fprintf(tw, "%s\t%v, quick %v\t%s\t(%s)\n", r.Name, r.About(recipe.Full).Round(5*time.Second), r.About(recipe.Quick).Round(5*time.Second), r.Question, r.Source)
			}
			return tw.Flush()
		},
	}
}
