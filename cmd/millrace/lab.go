package main

import "github.com/spf13/cobra"

func newLab(a app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Experiments: any cluster under any load, and those of the sources as recipes",
		Long:  "lab makes experiments. docs/howto/lab.md says which, and how.\n\n" + benchExitHelp(benchStatuses...),
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(labExperiments(a)...)
	return cmd
}
