package main

import (
	"fmt"
	"io"

	"github.com/millrace/millrace/host/admin"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/spf13/cobra"
)

func newMembersSkip(a app) *cobra.Command {
	var q asking
	var yes bool
	cmd := q.flags(&cobra.Command{
		Use: "skip DIR INDEX", Short: "Skip a command that state machines cannot apply", Args: wantArgs(2, "a directory and the index of a command"),
		Long: `skip makes every member of a group skip one command, at which state machines are halted: Explain names it. An entry in the log says
so, and the command then has no effect on any member, at no start. Its client learns that. The leader refuses unless its own
machine is halted exactly at that command. A member that has applied the command halts for good, and must be replaced.

A machine with a snapshot continues at once, another one after its next start. Without --yes nothing is done: skip says what it
would do. A program that can apply the command is the better way, where there is one.

INDEX is the command as Explain and the error name it: the index of its entry and, behind the first command of a batch, a dot and
its place. JSON: group, index, pos, done, text.

` + membersExitHelp(exitOK, exitFailed, exitCannot, exitUsage, exitInterrupted),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := raftpb.ParsePosition(args[1])
			if err != nil {
				return usageError{fmt.Errorf("%q is no index of a command, want a number from 1, and of a batch a dot and the place in it", args[1])}
			}
			return withHost(cmd.Context(), args[0], func(c *admin.Client) error {
				s, err := c.Skip(cmd.Context(), q.group, at, yes)
				if err != nil {
					return refused(err)
				}
				return answer(a, &skipAnswer{s}, q.asJSON)
			})
		},
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// skipAnswer is the answer of skip.
type skipAnswer struct{ admin.Skip }

// Exit implements inspect.Answer.
func (s *skipAnswer) Exit() int { return exitOK }

// WriteText implements inspect.Answer.
func (s *skipAnswer) WriteText(w io.Writer) error {
	_, err := fmt.Fprintln(w, s.Text)
	return err
}
