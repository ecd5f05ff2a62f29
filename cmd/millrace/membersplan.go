package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/millrace/millrace/host/admin"
	"github.com/millrace/millrace/wal/inspect"
)

const planJSON = `JSON: id, group, text, view (who says which members are heard; 0: no leader has answered), tolerates, absent [id], stages [{what, tolerates_during, tolerates_after}].

`

func newMembersPlan(a app) *cobra.Command {
	var q asking
	return q.flags(&cobra.Command{
		Use: "plan DIR CHANGE...", Short: "What a change of the members would do", Args: cobra.MinimumNArgs(3),
		Long: "plan says what changes would do to the group, stage by stage, and how many failures it tolerates meanwhile. Nothing is changed.\nThe host remembers the plan, so that execute can be given its id.\n\n" +
			changesHelp + planJSON + membersExitHelp(exitOK, exitFailed, exitCannot, exitUsage, exitInterrupted),
		RunE: func(cmd *cobra.Command, args []string) error {
			changes, err := parseChanges(args[1:])
			if err != nil {
				return usageError{err}
			}
			return withHost(cmd.Context(), args[0], func(c *admin.Client) error {
				p, err := c.Plan(cmd.Context(), q.group, changes)
				if err != nil {
					return refused(err)
				}
				return answer(a, &plannedMembers{p, args[0], q.group}, q.asJSON)
			})
		},
	})
}

// plannedMembers is the answer of plan.
type plannedMembers struct {
	admin.Plan
	dir string
	of  uint64
}

var _ inspect.Answer = (*plannedMembers)(nil)

// Exit implements inspect.Answer.
func (p *plannedMembers) Exit() int { return exitOK }

// WriteText implements inspect.Answer.
func (p *plannedMembers) WriteText(w io.Writer) error {
	group := ""
	if p.of != 1 {
		group = fmt.Sprintf(" --group %d", p.of)
	}
	_, err := fmt.Fprintf(w, "%s\nnothing was changed; millrace members execute%s %s %s carries it out\n", p.Text, group, p.dir, p.ID)
	return err
}

const executeLong = `execute carries out a plan: the one of an id that plan has printed, or one for changes, which it prints first; then it asks,
or wants --yes. It shows how far the plan is, and ends when all of it is in force.

Interrupting it ends only the watching: the plan goes on, and when it has begun, also without this host. Call execute with
the same id to watch it again, on any member if it is the plan under way or the last one that has ended; cancel ends it.

`

const progressJSON = `JSON: plan, done, refused, left (the plan has removed this host, which does not see its end), state.

`

func newMembersExecute(a app) *cobra.Command {
	var q asking
	var yes bool
	cmd := q.flags(&cobra.Command{
		Use: "execute DIR (PLAN | CHANGE...)", Short: "Carry out a plan, or go on watching one", Args: cobra.MinimumNArgs(2),
		Long: executeLong + changesHelp + progressJSON + membersExitHelp(exitOK, exitFailed, exitCannot, exitUsage, exitInterrupted),
		RunE: func(cmd *cobra.Command, args []string) error {
			e := execution{app: a, asking: q, dir: args[0], yes: yes}
			if len(args) == 2 {
				e.id = args[1]
				if err := rejectPlanID(e.id); err != nil {
					return usageError{err}
				}
			} else if changes, err := parseChanges(args[1:]); err != nil {
				return usageError{err}
			} else {
				e.changes = changes
			}
			return withHost(cmd.Context(), e.dir, func(c *admin.Client) error { return e.run(cmd.Context(), c) })
		},
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "carry out the plan for the changes without asking")
	return cmd
}

// rejectPlanID says why a word names no plan, or returns nil.
func rejectPlanID(id string) error {
	if len(id) < 8 || len(id) > 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return fmt.Errorf("%q is no plan, want the id that plan has printed, 8 to 32 hexadecimal digits, or changes in pairs of words", id)
	}
	return nil
}

// execution is what execute was asked for.
type execution struct {
	app app
	asking
	dir     string
	id      string
	changes []admin.Change
	yes     bool
}

func (e *execution) run(ctx context.Context, c *admin.Client) error {
	if e.changes != nil {
		p, err := c.Plan(ctx, e.group, e.changes)
		if err != nil {
			return refused(err)
		}
		if e.id = p.ID; !e.asJSON {
			if _, err := fmt.Fprintln(e.app.stdout, p.Text); err != nil {
				return err
			}
		}
		if err := e.confirm(p); err != nil {
			return err
		}
	}
	p, err := e.watch(ctx, c)
	if errors.Is(err, errInterrupted) {
		fmt.Fprintf(e.app.stderr, "the watching has ended; plan %s goes on: millrace members execute %s %s watches it again, and cancel ends it\n", e.id, e.dir, e.id)
		return err
	}
	if err != nil {
		return refused(err)
	}
	return answer(e.app, &progress{p}, e.asJSON)
}

// confirm asks on a terminal whether the plan is meant.
func (e *execution) confirm(p admin.Plan) error {
	if e.yes {
		return nil
	}
	if e.app.stderr == nil || !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(e.app.stderr.Fd())) {
		return usageError{fmt.Errorf("there is no terminal to ask on; look at the plan, and name it (millrace members execute %s %s), or say --yes", e.dir, p.ID)}
	}
	fmt.Fprint(e.app.stderr, "Carry it out? [y/N] ")
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if said := strings.ToLower(strings.TrimSpace(line)); err != nil || said != "y" && said != "yes" {
		return statusError{exitFailed, fmt.Errorf("plan %s was not begun", p.ID)}
	}
	return nil
}

// watch shows how far the plan is, until it ends.
func (e *execution) watch(ctx context.Context, c *admin.Client) (p admin.Progress, err error) {
	for !p.Done {
		seen := p.State
		if p, err = c.Execute(ctx, e.group, e.id, seen); err != nil {
			return p, err
		}
		if p.State != seen && p.State != "" && !e.asJSON {
			if _, err := fmt.Fprintln(e.app.stdout, p.State); err != nil {
				return p, err
			}
		}
	}
	return p, nil
}

// progress is the answer of execute and cancel.
type progress struct{ admin.Progress }

var _ inspect.Answer = (*progress)(nil)

// Exit implements inspect.Answer.
func (p *progress) Exit() int {
	if p.Refused != "" {
		return exitFailed
	}
	return exitOK
}

// WriteText implements inspect.Answer.
func (p *progress) WriteText(w io.Writer) (err error) {
	switch {
	case p.Refused != "":
		_, err = fmt.Fprintf(w, "plan %s: %s\n", p.Plan, p.Refused)
	case p.Left:
		_, err = fmt.Fprintf(w, "plan %s has removed this host, and goes on without it: look at it on another member\n", p.Plan)
	case !p.Done:
		_, err = fmt.Fprintf(w, "plan %s is not begun\n", p.Plan)
	default:
		_, err = fmt.Fprintf(w, "plan %s: all of it is in force\n", p.Plan)
	}
	return err
}

func newMembersCancel(a app) *cobra.Command {
	var q asking
	return q.flags(&cobra.Command{
		Use: "cancel DIR PLAN", Short: "End the plan under way", Args: wantArgs(2, "a directory and the id of a plan"),
		Long: "cancel ends the plan under way: what is in force stays, and a joint configuration is left first. list says its id.\n\n" +
			progressJSON + membersExitHelp(exitOK, exitFailed, exitCannot, exitUsage, exitInterrupted),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := rejectPlanID(args[1]); err != nil {
				return usageError{err}
			}
			return withHost(cmd.Context(), args[0], func(c *admin.Client) error {
				p, err := c.Cancel(cmd.Context(), q.group, args[1])
				if err != nil {
					return refused(err)
				}
				return answer(a, &cancelled{progress{p}}, q.asJSON)
			})
		},
	})
}

// cancelled is the answer of cancel: that the plan was cancelled is what was asked for.
type cancelled struct{ progress }

// Exit implements inspect.Answer.
func (c *cancelled) Exit() int {
	if c.Refused == "" && c.Done {
		return exitFailed // it was carried out before
	}
	return exitOK
}
