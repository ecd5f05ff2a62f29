package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
	"github.com/millrace/millrace/wal/inspect"
)

var walLong = `wal looks into the log of a host: the directory that Millrace was opened with, or the directory log in it.

All but "repair --write" only read. They take no lock and can be used beside a running host: then the answer is that
of a moment, and a write that is under way is not taken for damage. Whether a host is running is read from the
kernel's table of locks, where there is one; that table does not show hosts in other containers.

` + exitHelp()

func newWAL(a app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wal",
		Short: "Look into the log of a host: verify, stat, dump, diff, repair",
		Long:  walLong,
		Example: `  millrace wal verify /var/lib/app          is it whole?
  millrace wal stat --json /var/lib/app     what is in it?
  millrace wal dump --group 1 --from 100 --data text /var/lib/app
  millrace wal diff host1/log host2/log     where do two hosts part?
  millrace wal repair /var/lib/app          what would a repair cost?`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newWALVerify(a), newWALStat(a), newWALDump(a), newWALDiff(a), newWALRepair(a))
	for _, sub := range append(cmd.Commands(), cmd) {
		sub.Flags().SortFlags = false
	}
	return cmd
}

// found returns the options for the log in dir.
func found(a app, dir string) (wal.InspectOptions, error) {
	inner, err := inspect.Find(vfs.OS(), dir)
	return wal.InspectOptions{Dir: inner, Progress: scanProgress(a)}, cannot(err)
}

// scanProgress returns a function that shows how much is read, or nil if there is no terminal.
func scanProgress(a app) func(done, total int64) {
	if a.stderr == nil || !term.IsTerminal(int(a.stderr.Fd())) {
		return nil
	}
	began, drawn := time.Now(), time.Time{}
	return func(done, total int64) {
		if now := time.Now(); done < total && now.Sub(began) > time.Second && now.Sub(drawn) > 200*time.Millisecond {
			drawn = now
			fmt.Fprintf(a.stderr, "\r\x1b[Kread %d of %d MiB", done>>20, total>>20)
		}
		if done >= total && !drawn.IsZero() {
			fmt.Fprint(a.stderr, "\r\x1b[K")
			drawn = time.Time{}
		}
	}
}

// answer prints what a question found, and turns it into an exit status.
func answer(a app, found inspect.Answer, asJSON bool) error {
	var err error
	if asJSON {
		err = inspect.WriteJSON(a.stdout, found)
	} else {
		err = found.WriteText(a.stdout)
	}
	if err != nil || found.Exit() == exitOK {
		return cannot(err)
	}
	return statusError{found.Exit(), errAnswered}
}

func jsonFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "print JSON instead of text")
}

var verifyLong = `verify reads all of a log and checks every rule of the format (R1 to R12 in wal/record/format.go). It finds exactly what
the next start would object to. Unlike a start it continues after the first finding, and says of each

  where      file and offset
  means      whether something was lost, and whether it was below the durable watermark
  what       the rule that is broken
  gone       entries, by group and index, and terms and votes, as far as can be told

A torn end is what a crash leaves: a write that was not durable yet. It is no loss, and verify exits with 0. A flipped
bit in the last batch of a log that was not closed looks the same, so verify says "probably". A warning is no loss:
the next start mends it, or it is a block that the disk cannot read and no record needs. A log with amnesia may lack
records that it acknowledged; verify names those that are known to be missing, and exits with 4.

JSON: dir, state (whole, torn, corrupt, unreadable), in_use, holder_pid, owner, passes, checked {bytes, segments, records,
records_by_kind, links, groups}, findings [{kind, rule, file, offset, bytes, durable, reason, lost [{group, first, last}],
lost_states [group], meaning}], fence {found, generation, dirty, amnesia, closed}, missing [{group, first, through, term, state}],
unknown_files [{name, bytes}].

` + logExitHelp(exitOK, exitDamaged, exitCannot, exitAmnesia, exitUsage, exitInterrupted)

func newWALVerify(a app) *cobra.Command {
	return newWALQuestion(a, "verify", "Check every rule of the format", verifyLong, func(ctx context.Context, o wal.InspectOptions) (inspect.Answer, error) {
		return inspect.Verify(ctx, o)
	})
}

// newWALQuestion makes a command that asks one question about one log.
func newWALQuestion(a app, name, short, long string, ask func(context.Context, wal.InspectOptions) (inspect.Answer, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: name + " DIR", Short: short, Long: long, Args: wantArgs(1, "one directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := found(a, args[0])
			if err != nil {
				return err
			}
			answered, err := ask(cmd.Context(), opts)
			if err != nil {
				return cannot(err)
			}
			return answer(a, answered, asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

var statLong = `stat says what is in a log: in the whole, in each segment and in each group. Live records are those from which the
next start would build its state; the others are dead, and go when segments are cleaned. The commit index is the one
that was written, which may be older than the one a running host knows.

JSON: dir, state, in_use, holder_pid, owner, bytes, used_bytes, live_bytes, dead_bytes, index_bytes, records {kind: number}, fence
{found, generation, dirty, amnesia, closed}, segments [{id, name, bytes, version, owner, end, durable, records {count, bytes},
live_bytes}], groups [{id, first, last, snapshot {index, term}, has_hard_state, term, vote, commit, terms [{term, first,
last}], records, live_bytes, index_bytes}], spares and unknown_files [{name, bytes}].

` + printExitHelp(exitOK, exitCannot, exitUsage, exitInterrupted)

func newWALStat(a app) *cobra.Command {
	return newWALQuestion(a, "stat", "What is in a log, by segment and by group", statLong, func(ctx context.Context, o wal.InspectOptions) (inspect.Answer, error) {
		return inspect.Stat(ctx, o)
	})
}

var dumpLong = `dump prints records in the order in which they were written, one a line, with little memory. Where the records of a
segment end in something that is neither zeros nor the end of the file, a line says so, and dump continues with the
next segment; verify says what it means.

A write of a group counts as a whole or not at all. The sign before the kind shows its records: = is all of a write,
/ the first of several, \ the last. A void record says that the write before it has no end, and counts for nothing.

JSON, one object a line: file, offset, bytes, kind (entry, hard state, link, mark, truncation, base, reset, moved entry, front,
void; "" if there is no record), group, index, term, type, durable, length, and where they apply what (an entry is, in words:
"skip of command 7"), begins, ends (true for the first and the last record of a write), vote, commit, data, flaw, rule.

` + printExitHelp(exitOK, exitCannot, exitUsage, exitInterrupted)

func newWALDump(a app) *cobra.Command {
	var o inspect.DumpOptions
	cmd := &cobra.Command{
		Use: "dump DIR", Short: "Print the records of a log", Long: dumpLong, Args: wantArgs(1, "one directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			opts, err := found(a, args[0])
			if err != nil {
				return err
			}
			o.InspectOptions = opts
			o.ByGroup = cmd.Flags().Changed("group")
			o.Describe = func(typ uint8, data []byte) string { return host.EntryText(raftpb.EntryType(typ), data) }
			return cannot(inspect.Dump(cmd.Context(), o, a.stdout))
		},
	}
	flags := cmd.Flags()
	flags.Var(number{&o.Group}, "group", "only records of this group")
	flags.Var(number{&o.From}, "from", "only records with this index or a greater one")
	flags.Var(number{&o.To}, "to", "only records with an index up to this one")
	flags.StringVar(&o.Data, "data", "none", "show the data of entries: hex, text or none")
	flags.Int64Var(&o.Limit, "limit", 0, "stop after this many lines; 0 is no limit")
	jsonFlag(cmd, &o.JSON)
	return cmd
}

// number is a flag for an id or an index. It reports a mistake in words, not as a syntax of strconv.
type number struct{ to *uint64 }

func (n number) String() string {
	if n.to == nil || *n.to == 0 {
		return ""
	}
	return strconv.FormatUint(*n.to, 10)
}

func (n number) Type() string { return "number" }

func (n number) Set(s string) error {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a whole number of 0 or more", s)
	}
	*n.to = v
	return nil
}

var diffLong = `diff compares the logs of two hosts, group by group: what both hold, where they part, and what only one has. What is
committed must be the same everywhere, and entries with the same index and term are the same. So

  same, prefix   they agree as far as both go                                                         exit status 0
  apart          they have no index in common, so nothing was compared                                             1
  tail           they part above the smaller commit index: allowed, and the leader will mend it                    1
  missing        only one has the group                                                                            1
  violation      they part at or below it, or have other data under the same term: a violation of safety           2
  damaged        one cannot be read where it would have to be compared                                        2 or 3

A log whose host does not start is named, whatever the comparison finds: diff exits with 2 if a log is corrupt, with 3 if it
is unreadable, and with 4 if it has amnesia and the comparison does not give 2 or 3.

Commit indexes are those that were written, which are older than what the hosts knew: a violation that diff finds is
one, but diff may overlook one. If the hosts are running, the answer mixes two moments.

JSON: a and b {dir, owner, state, amnesia, in_use}, worst, groups [{group, a and b (as in stat), common, only_a and only_b {first, last},
parted_at, term_a, term_b, verdict, meaning}].

` + exitHelp(exitOK, exitFailed, exitDamaged, exitCannot, exitAmnesia, exitUsage, exitInterrupted)

func newWALDiff(a app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "diff DIR DIR", Short: "Compare the logs of two hosts", Long: diffLong, Args: wantArgs(2, "two directories"),
		RunE: func(cmd *cobra.Command, args []string) error {
			first, err := found(a, args[0])
			if err != nil {
				return err
			}
			second, err := found(a, args[1])
			if err != nil {
				return err
			}
			comparison, err := inspect.Diff(cmd.Context(), first, second)
			if err != nil {
				return cannot(err)
			}
			return answer(a, comparison, asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

var repairLong = `repair makes a damaged log one that a host starts with: it gives up the first damage and everything after it.
Without --write it prints what it would do and what that would cost, and changes nothing.

With --write it first notes, durably, that the log has amnesia: it may lack records that it acknowledged, and its host
must not vote. It also notes what is missing (LOSS). Damaged segments are kept beside the log as NAME.N.damaged, and
whole ones behind them as NAME.N.behind; remove them when the cluster is well. A log that a host has open is refused.
A repair that was interrupted can be repeated.

Then start the host: it works without authority until it has caught up. Its groups neither vote nor count, the other
members feed them what is missing, and the host clears the mark by itself. That needs a leader and a majority of
members that have authority, and all other members must be heard once. An empty directory is no way back: peers refuse
it under the old id.

--accept-loss is for the day when so many members are lost or without authority that a group stands still for good. It
takes the amnesia away, and says once more what is lost. The host then votes at once: committed entries may be gone for
good, and one term may have two leaders.

Without --write, status 2 means that a repair is needed; with it, that the repair was not finished. Status 4 means
repaired, with amnesia.

JSON: dir, planned, needed, done, refused, findings (as in verify), steps [{action (create, write, rename, remove), file, to,
bytes}], losses [{group, through, lost [{group, first, last}], state_lost}], loss_unknown, fence {found, generation, dirty, amnesia, closed}.

` + logExitHelp(exitOK, exitDamaged, exitCannot, exitAmnesia, exitUsage, exitInterrupted)

func newWALRepair(a app) *cobra.Command {
	var asJSON bool
	var o wal.RepairOptions
	cmd := &cobra.Command{
		Use: "repair DIR", Short: "Say what a repair of a damaged log would cost; with --write, do it", Long: repairLong, Args: wantArgs(1, "one directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := found(a, args[0])
			if err != nil {
				return err
			}
			o.InspectOptions = opts
			m, err := inspect.Repair(cmd.Context(), o)
			if m == nil || err != nil && !o.Write {
				return cannot(err)
			}
			if err != nil {
				return errors.Join(cannot(err), answer(a, m, asJSON))
			}
			return answer(a, m, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Write, "write", false, "do the repair")
	flags.BoolVar(&o.AcceptLoss, "accept-loss", false, "forget that something is missing: the host votes at once (see above for what that may cost)")
	jsonFlag(cmd, &asJSON)
	return cmd
}
