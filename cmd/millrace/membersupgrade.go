package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/millrace/millrace/host/admin"
	"github.com/spf13/cobra"
)

func newMembersUpgrade(a app) *cobra.Command {
	var q asking
	return q.flags(&cobra.Command{
		Use: "upgrade DIR VERSION", Short: "Let the state machine go on at a higher version", Args: wantArgs(2, "a directory and a version"),
		Long: `upgrade puts an entry into the log from which on commands are applied at a higher version of the state machine
(Command.Version), on every member. First start all members with a program that can do the version: list says what each can do.
The leader refuses, and names the member, if one cannot or does not answer. The group never goes back to a lower version.

A member that starts later with a program that cannot do the version applies nothing more. It keeps its log and its vote, and
goes on when it is started with a program that can.

JSON: group, version, since (the index of the entry), text.

` + membersExitHelp(exitOK, exitFailed, exitCannot, exitUsage, exitInterrupted),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := strconv.ParseUint(args[1], 10, 32)
			if err != nil || to == 0 {
				return usageError{fmt.Errorf("%q is no version to upgrade to, want a number from 1 to 4294967295", args[1])}
			}
			return withHost(cmd.Context(), args[0], func(c *admin.Client) error {
				u, err := c.Upgrade(cmd.Context(), q.group, uint32(to))
				if err != nil {
					return refused(err)
				}
				return answer(a, &upgradeAnswer{u}, q.asJSON)
			})
		},
	})
}

// upgradeAnswer is the answer of upgrade.
type upgradeAnswer struct{ admin.Upgrade }

// Exit implements inspect.Answer.
func (u *upgradeAnswer) Exit() int { return exitOK }

// WriteText implements inspect.Answer.
func (u *upgradeAnswer) WriteText(w io.Writer) error {
	_, err := fmt.Fprintln(w, u.Text)
	return err
}
