package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/millrace/millrace/host/rescue"
	"github.com/millrace/millrace/wal/inspect"
	"github.com/spf13/cobra"
)

var rescueLong = `rescue makes one host, alone, the beginning of a new cluster, for the day when a majority of the members is gone for good: their
disks are lost, and no backup is newer. If a majority can come back, wait for it, and replace the others.

Stop all hosts that are left, and give all their directories that this machine can read. rescue compares where their logs end,
in each group, and takes the one that ends last; the others are refused. If the directories are on several machines, run it
on each without --write, and compare the ends: the highest term wins, then the highest entry.

Without --write it prints what it would do, and changes nothing:

  kept         everything in the log, which counts as committed
  in doubt     entries above the commit index: they may have been committed, and their clients answered, or not
  may be lost  what only the members had that were not looked at. If this host was behind, that was acknowledged

With --write and --accept-loss the directory becomes that of a new cluster of this one host, with a number and an incarnation
of its own. Old members that come back are refused, and so is a host that was rescued apart from it: run rescue once, on one
directory. A rescue that was interrupted is finished by running it again; until then the host does not start.

Then start the program on the directory as before (Config.Cluster 0, or the new number). Empty the directories of all other
hosts, and let them join: with a join token that the program makes, or with Config.Joins, the new number as Config.Cluster, and
millrace members plan DIR add 2=HOST:PORT.
The old log stays in DIR/before-rescue-…; remove it when the cluster is well.

If a host has several groups, name those to rescue (--group), or say --all. A group whose other members still have a quorum
must not be rescued: the directory leaves it behind, and its members remove this one.

JSON: dirs [{dir, host, incarnation, without_authority}], dir, host, former_cluster, groups [{group, last, last_term, snapshot,
committed, doubtful [{index, term, type, bytes}], members [{id, role, given}], ends [{dir, host, last, last_term, committed, refused}],
plan, index}], left_behind [group], refused [why], done, cluster, incarnation, kept, continues.

` + membersExitHelp(exitOK, exitFailed, exitCannot, exitUsage, exitInterrupted)

func newRescue(a app) *cobra.Command {
	var asJSON bool
	var r rescue.Rescue
	var groups []uint
	cmd := &cobra.Command{
		Use: "rescue DIR...", Short: "A majority is gone for good: make one survivor a new cluster", Long: rescueLong, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Dirs, r.Groups = args, nil
			for _, group := range groups {
				r.Groups = append(r.Groups, uint64(group))
			}
			switch {
			case r.All && r.Groups != nil:
				return usageError{errors.New("--all means all groups; leave --group out")}
			case slices.Contains(r.Groups, 0):
				return usageError{errors.New("--group: groups are numbered from 1")}
			case r.AcceptLoss && !r.Write:
				return usageError{errors.New("--accept-loss is for --write; without that nothing is changed")}
			}
			return rescueAndAnswer(cmd.Context(), a, r, asJSON)
		},
	}
	cmd.Flags().UintSliceVar(&groups, "group", nil, "rescue these groups, and leave others behind")
	cmd.Flags().BoolVar(&r.All, "all", false, "rescue all groups of the directory")
	cmd.Flags().BoolVar(&r.Write, "write", false, "do the rescue; needs --accept-loss")
	cmd.Flags().BoolVar(&r.AcceptLoss, "accept-loss", false, "accept that what this directory lacks is lost for good")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func rescueAndAnswer(ctx context.Context, a app, r rescue.Rescue, asJSON bool) error {
	done, err := r.Run(ctx, rescue.Options{Logger: slog.New(slog.DiscardHandler)})
	if done == nil || err != nil && !errors.Is(err, rescue.ErrNotRescued) {
		return cannot(err)
	}
	return answer(a, &rescued{done}, asJSON)
}

// rescued is the answer of rescue.
type rescued struct{ *rescue.Report }

var _ inspect.Answer = (*rescued)(nil)

// Exit implements inspect.Answer.
func (r *rescued) Exit() int {
	if len(r.Refused) > 0 {
		return exitFailed
	}
	return exitOK
}

// maxListed bounds the entries in doubt that are printed.
const maxListed = 20

// WriteText implements inspect.Answer.
func (r *rescued) WriteText(w io.Writer) error {
	var b strings.Builder
	if r.Continues {
		fmt.Fprintf(&b, "interrupted  a rescue of %s has begun, and was not complete\n", r.Dir)
	}
	for i := range r.Groups {
		if g := &r.Groups[i]; g.Members != nil {
			r.describe(&b, g)
		}
	}
	if len(r.Left) > 0 {
		fmt.Fprintf(&b, "left behind  groups %v: this host is no member of them any more; have their other members remove it, or rescue them elsewhere\n", r.Left)
	}
	for _, why := range r.Refused {
		fmt.Fprintf(&b, "refused      %s\n", why)
	}
	switch {
	case r.Done:
		fmt.Fprintf(&b, "rescued      %s is host %d, alone, of the new cluster %d\n", r.Dir, r.Host, r.Cluster)
		fmt.Fprintf(&b, "             the old log is in %s\n", r.Kept)
		fmt.Fprintf(&b, "next         start the program on it; empty the directories of all other hosts; they join with a token, or with\n             Config.Joins and Config.Cluster %d, and: millrace members plan %s add ID=HOST:PORT\n", r.Cluster, r.Dir)
	case len(r.Refused) > 0:
		fmt.Fprintln(&b, "nothing was changed")
	case r.Continues:
		fmt.Fprintln(&b, "nothing was changed; --write --accept-loss finishes the rescue")
	default:
		fmt.Fprintf(&b, "nothing was changed; --write --accept-loss makes %s host %d, alone, of a new cluster\n", r.Dir, r.Host)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// describe prints one group.
func (r *rescued) describe(b *strings.Builder, g *rescue.Group) {
	fmt.Fprintf(b, "group %-6d of cluster %d\n", g.Group, r.Former)
	for _, e := range g.Ends {
		verdict := "is the best"
		if e.Refused != "" {
			verdict = "is refused: " + e.Refused
		}
		fmt.Fprintf(b, "  %s  host %d ends with entry %d of term %d, and knows %d as committed; it %s\n", e.Dir, e.Host, e.Last, e.LastTerm, e.Committed, verdict)
	}
	from := "from the first entry"
	if g.Snapshot > 0 {
		from = fmt.Sprintf("a snapshot through entry %d", g.Snapshot)
	}
	fmt.Fprintf(b, "  kept         everything through entry %d, %s; entry %d makes this host the only member\n", g.Last, from, g.Index)
	r.describeDoubtful(b, g)
	var gone []string
	for _, m := range g.Members {
		if !m.Given {
			gone = append(gone, fmt.Sprintf("%d (%s)", m.ID, m.Role))
		}
	}
	if len(gone) > 0 {
		fmt.Fprintf(b, "  may be lost  what only these members had, which were not looked at: %s\n", strings.Join(gone, ", "))
	}
	for _, d := range r.Dirs {
		if d.Dir == r.Dir && d.WithoutAuthority {
			fmt.Fprintln(b, "  may be lost  what this log lacks: it was damaged, or lost its power in an unsafe mode (millrace wal verify says more)")
		}
	}
	if g.Plan != "" {
		fmt.Fprintf(b, "  cancelled    %s\n", g.Plan)
	}
}

func entries(first, last uint64) string {
	if first == last {
		return fmt.Sprintf("entry %d", first)
	}
	return fmt.Sprintf("entries %d to %d", first, last)
}

// describeDoubtful lists the entries behind the commit index.
func (r *rescued) describeDoubtful(b *strings.Builder, g *rescue.Group) {
	if g.Last <= g.Committed {
		return
	}
	fmt.Fprintf(b, "  in doubt     %s: they may have been committed or not, and count as committed\n", entries(g.Committed+1, g.Last))
	for i, e := range g.Doubtful {
		if i == maxListed {
			fmt.Fprintf(b, "               and %d more: millrace wal dump --group %d --from %d %s\n", g.Last-g.Committed-maxListed, g.Group, e.Index, r.Dir)
			break
		}
		fmt.Fprintf(b, "               entry %d of term %d, %s, %d bytes\n", e.Index, e.Term, e.Type, e.Bytes)
	}
}
