package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/host/admin"
	"github.com/millrace/millrace/wal/inspect"
)

var membersLong = `members says who the members of a group are, and changes them while the group works. DIR is the directory of a host that runs
and has an admin socket (Config.AdminSocket). Any member does, also one that does not lead.

  list       who the members are, and how far a plan under way is
  plan       what a change would do to the group, stage by stage; nothing is changed
  execute    carry a plan out, or go on watching one
  cancel     end the plan under way
  token      a join token, with which a new host becomes a member by itself
  address    say where another host is
  accept-key accept the key of a certificate that another host has never named
  skip       skip a command that state machines cannot apply
  upgrade    let the state machine go on at a higher version

A plan is in the log of its group: when execute is interrupted, only the watching ends.

rescue is for the day when a majority is gone for good. It works on the directories of hosts that are stopped.

` + membersExitHelp()

const changesHelp = `A CHANGE is two words:

  add ID=HOST:PORT      a voter more: it gets the log first, and votes when it has caught up
  learner ID=HOST:PORT  a member that has everything, serves reads, and does not vote
  replace ID[=HOST:PORT]  the id gets the directory with which its host comes now: the old one is lost
  promote ID            a learner becomes a voter
  demote ID             a voter becomes a learner
  remove ID             the member is none any more; its directory is never one again

A host that is added runs already, on an empty directory, with Config.Joins and the number of the cluster. Its address may be
left out (add 4) if this host knows it. Several changes are carried out together.

`

func newMembers(a app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "members",
		Short: "Who the members are, and change them: list, plan, execute, cancel, token, address, accept-key, skip, upgrade, rescue",
		Long:  membersLong,
		Example: `  millrace members list /var/lib/app
  millrace members plan /var/lib/app add 4=10.0.0.4:7000 remove 1
  millrace members execute /var/lib/app 5d0f3e8a              the plan that was printed
  millrace members token /var/lib/app --life 10m              a secret for Config.JoinToken of the new host
  millrace members rescue /var/lib/app                        what a rescue would keep, and what may be lost`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newMembersList(a), newMembersPlan(a), newMembersExecute(a), newMembersCancel(a), newMembersToken(a), newMembersAddress(a), newMembersKey(a), newMembersSkip(a), newMembersUpgrade(a), newRescue(a))
	for _, sub := range append(cmd.Commands(), cmd) {
		sub.Flags().SortFlags = false
	}
	return cmd
}

// asking is what all verbs of a running host are given.
type asking struct {
	group  uint64
	asJSON bool
}

func (q *asking) flags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Uint64Var(&q.group, "group", 1, "the group")
	jsonFlag(cmd, &q.asJSON)
	return cmd
}

// withHost connects to the host of a directory.
func withHost(ctx context.Context, dir string, do func(*admin.Client) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	socket := filepath.Join(dir, admin.SocketName)
	switch _, err := os.Lstat(socket); {
	case errors.Is(err, fs.ErrNotExist):
		return cannot(fmt.Errorf("%s has no admin socket: start the host, with Config.AdminSocket set, or do it in its program (Node.Plan, Group.VerifyObject): %w", dir, err))
	case err != nil:
		return cannot(err)
	}
	c, err := admin.Dial(ctx, socket)
	if err != nil {
		return cannot(err)
	}
	defer c.Close()
	return do(c)
}

// refused gives what the host has said the status of a refusal.
func refused(err error) error {
	if said := (*admin.RemoteError)(nil); errors.As(err, &said) {
		return statusError{exitFailed, err}
	}
	return cannot(err)
}

const membersJSON = `JSON: host, cluster, group, leader, founded, version, machine_version,
members [{id, role, heard, addr, incarnation, versions [lowest, highest]}], more, removed [id],
view (who says which are heard; 0: no leader has answered), tolerates, plan_id, plan, waits, tokens [{name, id, learner, seconds}].

`

func newMembersList(a app) *cobra.Command {
	var q asking
	return q.flags(&cobra.Command{
		Use: "list DIR", Short: "Who the members of a group are", Args: wantArgs(1, "one directory"),
		Long: "list says who the members are, as this host has applied it, which of them the leader has heard lately, how many more voters\nmay fail, which join tokens are open, and how far a plan under way is.\n\n" +
			membersJSON + membersExitHelp(exitOK, exitFailed, exitCannot, exitUsage, exitInterrupted),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withHost(cmd.Context(), args[0], func(c *admin.Client) error {
				m, err := c.Members(cmd.Context(), q.group)
				if err != nil {
					return refused(err)
				}
				return answer(a, &memberList{m}, q.asJSON)
			})
		},
	})
}

// memberList is the answer of list.
type memberList struct{ admin.Members }

var _ inspect.Answer = (*memberList)(nil)

// MarshalJSON writes the number of the cluster as a string: JSON's readers round such numbers. The admin
// socket's form has a number.
func (m *memberList) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		admin.Members
		Cluster uint64 `json:"cluster,string"`
	}{m.Members, m.Cluster})
}

// Exit implements inspect.Answer.
func (m *memberList) Exit() int { return exitOK }

// WriteText implements inspect.Answer.
func (m *memberList) WriteText(w io.Writer) error {
	var b strings.Builder
	leader := "no leader is known"
	if m.Leader != 0 {
		leader = fmt.Sprintf("host %d leads", m.Leader)
	}
	fmt.Fprintf(&b, "group %d of cluster %d, version %d of its members, as host %d has applied it; %s\n", m.Group, m.Cluster, m.Version, m.Host, leader)
	fmt.Fprintf(&b, "%6s  %-14s  %-7s  %-32s  %s\n", "host", "role", "heard", "directory", "address")
	for _, i := range m.Members.Members {
		heard := "no"
		switch {
		case i.Heard:
			heard = "yes"
		case m.View == 0:
			heard = "unknown"
		}
		role, directory := i.Role, i.Incarnation
		if !m.Founded {
			role, directory = "founder", "-"
		}
		fmt.Fprintf(&b, "%6d  %-14s  %-7s  %-32s  %s\n", i.ID, role, heard, directory, i.Addr)
	}
	if m.More > 0 {
		fmt.Fprintf(&b, "and %d more\n", m.More)
	}
	switch {
	case !m.Founded:
		fmt.Fprintln(&b, "the group is not founded yet")
	case m.View == 0 && m.Leader != 0:
		fmt.Fprintf(&b, "how many more voters may fail is unknown to host %d (%s: ask there)\n", m.Host, leader)
	case m.View == 0:
		fmt.Fprintf(&b, "how many more voters may fail is unknown to host %d (%s)\n", m.Host, leader)
	case m.Tolerates < 0:
		fmt.Fprintln(&b, "the voters that were heard lately are no quorum")
	default:
		fmt.Fprintf(&b, "%d more voters may fail\n", m.Tolerates)
	}
	m.writeVersions(&b)
	if len(m.Removed) > 0 {
		fmt.Fprintf(&b, "removed for good: %v\n", m.Removed)
	}
	for _, t := range m.Tokens {
		who, as := "any new host", "a voter"
		if t.ID != 0 {
			who = fmt.Sprintf("host %d", t.ID)
		}
		if t.Learner {
			as = "a learner"
		}
		fmt.Fprintf(&b, "join token %s is open: %s may become %s with it within %v\n", t.Name, who, as, time.Duration(t.Seconds)*time.Second)
	}
	if m.Plan != "" {
		fmt.Fprintf(&b, "under way: %s\n", m.Plan)
	}
	if m.Waits != "" {
		fmt.Fprintf(&b, "it waits:  %s\n", m.Waits)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeVersions says which versions of the state machine the programs can do, if one knows more than 0.
func (m *memberList) writeVersions(b *strings.Builder) {
	isTold := m.MachineVersion > 0
	var can []string
	for _, i := range m.Members.Members {
		if len(i.Versions) != 2 {
			can = append(can, fmt.Sprintf("host %d has not said", i.ID))
			continue
		}
		isTold = isTold || i.Versions[1] > 0
		can = append(can, fmt.Sprintf("host %d can do %d to %d", i.ID, i.Versions[0], i.Versions[1]))
	}
	if isTold {
		fmt.Fprintf(b, "version %d of the state machine; %s\n", m.MachineVersion, strings.Join(can, ", "))
	}
}

func newMembersAddress(a app) *cobra.Command {
	return &cobra.Command{
		Use: "address DIR ID=HOST:PORT", Short: "Say where another host is", Args: wantArgs(2, "a directory and ID=HOST:PORT"),
		Long: "address tells the host where another one is: one that it has not known, or one that has moved. Hosts that meet tell each other.\n\n" +
			membersExitHelp(exitOK, exitFailed, exitCannot, exitUsage, exitInterrupted),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, addr, err := parseMember(args[1])
			if err == nil && addr == "" {
				err = fmt.Errorf("%q has no address, want ID=HOST:PORT", args[1])
			}
			if err != nil {
				return usageError{err}
			}
			return withHost(cmd.Context(), args[0], func(c *admin.Client) error { return refused(c.SetPeer(cmd.Context(), id, addr)) })
		},
	}
}

func newMembersToken(a app) *cobra.Command {
	var q asking
	var member uint64
	var life time.Duration
	var learner bool
	cmd := q.flags(&cobra.Command{
		Use: "token DIR", Short: "Make a join token", Args: wantArgs(1, "one directory"),
		Long: `token makes a join token and prints it. The token is a secret: a host with an empty directory, the token (Config.JoinToken) and
the address of one member becomes a member by itself, once. Nothing keeps the token; if it is lost, make another one.

JSON: text.

` + membersExitHelp(exitOK, exitFailed, exitCannot, exitUsage, exitInterrupted),
		RunE: func(cmd *cobra.Command, args []string) error {
			if life < 0 {
				return usageError{fmt.Errorf("--life is %v, want more than nothing", life)}
			}
			return withHost(cmd.Context(), args[0], func(c *admin.Client) error {
				t, err := c.JoinToken(cmd.Context(), q.group, member, life, learner)
				if err != nil {
					return refused(err)
				}
				return answer(a, &newToken{t}, q.asJSON)
			})
		},
	})
	cmd.Flags().DurationVar(&life, "life", time.Hour, "how long it is valid, in time in which a member leads; at most 720h")
	cmd.Flags().Uint64Var(&member, "member", 0, "the only host that may use it; if it is a member, its directory is replaced (default any new host)")
	cmd.Flags().BoolVar(&learner, "learner", false, "the new member stays a learner")
	return cmd
}

// newToken is the answer of token.
type newToken struct{ admin.Token }

var _ inspect.Answer = (*newToken)(nil)

// Exit implements inspect.Answer.
func (t *newToken) Exit() int { return exitOK }

// WriteText implements inspect.Answer.
func (t *newToken) WriteText(w io.Writer) error {
	_, err := fmt.Fprintln(w, t.Text)
	return err
}

func newMembersKey(a app) *cobra.Command {
	return &cobra.Command{
		Use: "accept-key DIR ID", Short: "Accept the key of a host that was refused for it", Args: wantArgs(2, "a directory and the id of a host"),
		Long: `accept-key makes the host of DIR accept the key for which it has refused host ID last, until it restarts. Host ID then names its
key, and the group binds it. Make sure that the certificate is the one that you have made: only the CA says so.

` + membersExitHelp(exitOK, exitFailed, exitCannot, exitUsage, exitInterrupted),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, addr, err := parseMember(args[1])
			if err == nil && addr != "" {
				err = fmt.Errorf("%q has an address, want an ID", args[1])
			}
			if err != nil {
				return usageError{err}
			}
			return withHost(cmd.Context(), args[0], func(c *admin.Client) error { return refused(c.AcceptKey(cmd.Context(), id)) })
		},
	}
}

// parseMember reads ID or ID=HOST:PORT.
func parseMember(text string) (id uint64, addr string, err error) {
	number, addr, named := strings.Cut(text, "=")
	id, err = strconv.ParseUint(number, 10, 64)
	if err != nil || id == 0 || named && addr == "" {
		return 0, "", fmt.Errorf("%q is no member, want ID or ID=HOST:PORT", text)
	}
	return id, addr, nil
}

// parseChanges reads pairs of words.
func parseChanges(words []string) (changes []admin.Change, err error) {
	if len(words) == 0 || len(words)%2 != 0 {
		return nil, fmt.Errorf("%d words are no changes, want pairs: add 4=HOST:PORT remove 1", len(words))
	}
	for i := 0; i < len(words); i += 2 {
		c := admin.Change{Op: words[i]}
		if c.ID, c.Addr, err = parseMember(words[i+1]); err != nil {
			return nil, err
		}
		switch c.Op {
		case admin.OpAdd, admin.OpLearner, admin.OpReplace:
		case admin.OpPromote, admin.OpDemote, admin.OpRemove:
			if c.Addr != "" {
				return nil, fmt.Errorf("%s %d needs no address", c.Op, c.ID)
			}
		default:
			return nil, fmt.Errorf("%q is no change, want add, learner, replace, promote, demote or remove", c.Op)
		}
		changes = append(changes, c)
	}
	return changes, nil
}
