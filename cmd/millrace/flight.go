package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/host/admin"
)

var flightLong = `flight makes a running host write what its flight recorder has to a new file in DIR/flight, and prints the path. The host
goes on meanwhile. It needs Config.FlightRecorder and Config.AdminSocket. millrace sim replay explains the file.

The file has the latest inputs of the groups, with the ids of hosts and the changes of members, and with users' commands only if
Config.FlightRecorder.Data is flight.Payloads. Only the owner of DIR can read it. DIR/flight keeps the latest 16 files.

JSON: path.

` + membersExitHelp(exitOK, exitFailed, exitCannot, exitUsage, exitInterrupted)

// newFlight asks a running host for what its flight recorder has.
func newFlight(a app) *cobra.Command {
	var group uint64
	var asJSON bool
	cmd := &cobra.Command{
		Use: "flight DIR", Short: "Make a running host write what its flight recorder has", Long: flightLong, Args: wantArgs(1, "one directory"),
		Example: `  millrace flight /var/lib/app               all groups
  millrace flight /var/lib/app --group 7     one of them`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withHost(cmd.Context(), args[0], func(c *admin.Client) error {
				f, err := c.DumpFlight(cmd.Context(), group)
				if err != nil {
					return refused(err)
				}
				return answer(a, &flightWritten{f}, asJSON)
			})
		},
	}
	cmd.Flags().Uint64Var(&group, "group", 0, "the group; 0 is all of them")
	jsonFlag(cmd, &asJSON)
	cmd.Flags().SortFlags = false
	return cmd
}

// flightWritten is the answer of flight.
type flightWritten struct{ admin.Flight }

// WriteText implements inspect.Answer.
func (f *flightWritten) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s has the latest inputs of the groups; explain them with millrace sim replay %s\n", f.Path, f.Path)
	return err
}

// Exit implements inspect.Answer.
func (f *flightWritten) Exit() int { return exitOK }
