package main

import "github.com/spf13/cobra"

// simCommand is the parent of the verbs that run cores in virtual time.
func simCommand(a app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run cores in virtual time: replay",
		Long:  "sim runs the cores of Millrace in virtual time.\n\n" + replayExitHelp(),
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSimReplay(a))
	return cmd
}
