package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
	"github.com/millrace/millrace/wal/inspect"
)

// statusError ends a command with an exit status of its own. Its message, if it has one, is printed.
type statusError struct {
	status int
	error
}

func (e statusError) Unwrap() error { return e.error }

// errAnswered is the error of a command that has said all in its answer.
var errAnswered = errors.New("")

const walLong = `wal looks into the log of a host: the directory that Millrace was opened with, or the folder log in it.

All but "repair --write" only read. They take no lock and can be used beside a host that runs: then the answer is that of
a moment, and what is just being written is not mistaken for damage. Whether a host runs is read from the kernel's table
of locks, where there is one; it does not show hosts in other containers.

Exit status of all of them: 0 whole, or the logs agree; 1 the logs differ where they may; 2 damaged, or the logs differ where
they must not; 3 it cannot be read, or what was asked cannot be done; 4 whole, but with amnesia: its host does not start; 130
interrupted.`

func newWAL(w world) *cobra.Command {
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
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return cannot(fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath()))
	})
	cmd.AddCommand(newWALVerify(w), newWALStat(w), newWALDump(w), newWALDiff(w), newWALRepair(w))
	for _, sub := range append(cmd.Commands(), cmd) {
		check := sub.Args
		sub.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return cannot(fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath()))
			}
			return nil
		}
		sub.Flags().SortFlags = false
	}
	return cmd
}

// cannot marks an error as the reader's or the user's: the question has no answer.
func cannot(err error) error {
	if err == nil || errors.Is(err, errInterrupted) {
		return err
	}
	return statusError{inspect.ExitCannot, err}
}

// found returns the options for the log that dir means.
func found(w world, dir string) (wal.InspectOptions, error) {
	inner, err := inspect.Find(vfs.OS(), dir)
	return wal.InspectOptions{Dir: inner, Progress: scanProgress(w)}, cannot(err)
}

// scanProgress draws how much is read, on a terminal.
func scanProgress(w world) func(done, total int64) {
	if w.stderr == nil || !term.IsTerminal(int(w.stderr.Fd())) {
		return nil
	}
	began, drawn := time.Now(), time.Time{}
	return func(done, total int64) {
		if now := time.Now(); done < total && now.Sub(began) > time.Second && now.Sub(drawn) > 200*time.Millisecond {
			drawn = now
			fmt.Fprintf(w.stderr, "\r\x1b[Kread %d of %d MiB", done>>20, total>>20)
		}
		if done >= total && !drawn.IsZero() {
			fmt.Fprint(w.stderr, "\r\x1b[K")
			drawn = time.Time{}
		}
	}
}

// answer prints an answer and turns it into an exit status.
func answer(w world, a inspect.Answer, asJSON bool) error {
	var err error
	if asJSON {
		err = inspect.WriteJSON(w.stdout, a)
	} else {
		err = a.WriteText(w.stdout)
	}
	if err != nil || a.Exit() == inspect.ExitWhole {
		return cannot(err)
	}
	return statusError{a.Exit(), errAnswered}
}

func jsonFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "print JSON instead of text")
}

const verifyLong = `verify reads all of a log and checks every rule of the format (R1 to R11 in wal/record/format.go). What the next start would
object to is found, and the other way round; but verify goes on after the first, and says of each

  where      file and offset           means    whether something was lost, and whether it was below the durable watermark
  what       the rule that is broken   gone     entries, by group and index, and terms and votes, as far as can be told

A torn end is what a crash leaves: a write that was not durable yet. That is no loss, and verify exits with 0. A flipped bit in
the last batch of a log that was not closed looks the same, so verify says "probably". A warning is no loss: something that the
next start mends, or a block that the disk cannot read and no record needs. A log with amnesia may lack what it said it has; verify names what is known to be missing, and exits with 4.

JSON: dir, state (whole, torn, corrupt, unreadable), in_use, holder_pid, owner, passes, checked {bytes, segments, records,
records_by_kind, links, groups}, findings [{kind, rule, file, offset, bytes, durable, reason, lost [{group, first, last}],
lost_states [group], meaning}], fence {found, generation, dirty, amnesia, closed}, missing [{group, first, through, term, state}],
unknown_files [{name, bytes}].`

func newWALVerify(w world) *cobra.Command {
	return newWALQuestion(w, "verify", "Check every rule of the format", verifyLong, func(ctx context.Context, o wal.InspectOptions) (inspect.Answer, error) {
		return inspect.Verify(ctx, o)
	})
}

// newWALQuestion makes a command that asks one thing of one log.
func newWALQuestion(w world, name, short, long string, ask func(context.Context, wal.InspectOptions) (inspect.Answer, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: name + " DIR", Short: short, Long: long, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := found(w, args[0])
			if err != nil {
				return err
			}
			a, err := ask(cmd.Context(), opts)
			if err != nil {
				return cannot(err)
			}
			return answer(w, a, asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

const statLong = `stat says what is in a log: of the whole, of each segment and of each group. Needed are the records that the next start
would build its state from; the rest is dead, and goes when segments are cleaned. The commit index is the one written
down, which may be older than the one a running host knows.

JSON: dir, state, in_use, holder_pid, owner, bytes, used_bytes, live_bytes, dead_bytes, index_bytes, records {kind: number}, fence
{found, generation, dirty, amnesia, closed}, segments [{id, name, bytes, version, owner, end, durable, records {count, bytes},
live_bytes}], groups [{id, first, last, snapshot {index, term}, has_hard_state, term, vote, commit, terms [{term, first,
last}], records, live_bytes, index_bytes}], spares and unknown_files [{name, bytes}].`

func newWALStat(w world) *cobra.Command {
	return newWALQuestion(w, "stat", "What is in a log, by segment and by group", statLong, func(ctx context.Context, o wal.InspectOptions) (inspect.Answer, error) {
		return inspect.Stat(ctx, o)
	})
}

const dumpLong = `dump prints records in the order in which they were written, one a line, with little memory. Where the records of a
segment end in something that is neither zeros nor the end of the file, a line says so, and it goes on with the next segment; what
that means is for verify to say.

A write of a group counts as a whole or not at all. The sign before the kind shows its records: = is all of a write, / the
first of several, \ the last. A void record says that the write before it has no end, and counts for nothing.

JSON, one object a line: file, offset, bytes, kind (entry, hard state, link, mark, truncation, base, reset, moved entry, front,
void; "" where there is no record), group, index, term, type, durable, length, and where they apply begins, ends (true for the
first and the last record of a write), vote, commit, data, flaw, rule.`

func newWALDump(w world) *cobra.Command {
	var o inspect.DumpOptions
	cmd := &cobra.Command{
		Use: "dump DIR", Short: "Print the records of a log", Long: dumpLong, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Validate(); err != nil {
				return cannot(err)
			}
			opts, err := found(w, args[0])
			if err != nil {
				return err
			}
			o.InspectOptions = opts
			o.ByGroup = cmd.Flags().Changed("group")
			return cannot(inspect.Dump(cmd.Context(), o, w.stdout))
		},
	}
	flags := cmd.Flags()
	flags.Var(number{&o.Group}, "group", "only records of this group")
	flags.Var(number{&o.From}, "from", "only records with an index from this one on")
	flags.Var(number{&o.To}, "to", "only records with an index up to this one")
	flags.StringVar(&o.Data, "data", "none", "show the data of entries: hex, text or none")
	flags.Int64Var(&o.Limit, "limit", 0, "stop after so many lines; 0 is no limit")
	jsonFlag(cmd, &o.JSON)
	return cmd
}

// number is a flag for an id or an index; its mistakes are told in words.
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
		return fmt.Errorf("%q is not a whole number from 0 on", s)
	}
	*n.to = v
	return nil
}

const diffLong = `diff compares the logs of two hosts, group by group: what both hold, where they part, and what only one has. What
is committed must be the same everywhere, and entries with the same index and term are the same. So

  same, prefix   they agree as far as both go                                                         exit status 0
  apart          they have no index in common, so nothing was compared                                             1
  tail           they part above the smaller commit index: allowed, and the leader will mend it                    1
  missing        only one has the group                                                                            1
  violation      they part at or below it, or have other data under the same term: a violation of safety           2
  damaged        one cannot be read where it would have to be compared                                             3

Commit indexes are those written down, which are older than what was known: a violation that is found is one, but one may
be overlooked. For logs of hosts that run, the answer mixes two moments.

JSON: a and b {dir, owner, state, in_use}, worst, groups [{group, a and b (as in stat), common, only_a and only_b {first, last},
parted_at, term_a, term_b, verdict, meaning}].`

func newWALDiff(w world) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "diff DIR DIR", Short: "Compare the logs of two hosts", Long: diffLong, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := found(w, args[0])
			if err != nil {
				return err
			}
			b, err := found(w, args[1])
			if err != nil {
				return err
			}
			c, err := inspect.Diff(cmd.Context(), a, b)
			if err != nil {
				return cannot(err)
			}
			return answer(w, c, asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

const repairLong = `repair makes a damaged log one that a host starts with, by giving up everything from the first damage on. Without --write
it prints what it would do and what that would cost, and changes nothing.

With --write it first notes, durably, that the log has amnesia: it may lack what it said it has, and its host must not vote.
What is missing is noted too (LOSS). Damaged segments are kept beside the log as NAME.N.damaged, whole ones that stood behind
them as NAME.N.behind; remove them when the cluster is well. A log that a host has open is refused. A repair that was interrupted
can be repeated.

A host does not start with amnesia, and this version cannot fetch from peers what is missing. The group goes on without the
host while a majority of its members runs; an empty directory is no way back, as peers refuse it under the old id, and new ids
cannot join. The only way on is --accept-loss, which takes the amnesia away, and says once more what is lost. The host then votes at once.
If another member fails before this one has caught up, committed entries may be gone for good, or one term may have two
leaders; so do it while all other members run and have a leader.

Exit status: 0 whole, or the loss is accepted; 2 a repair is needed (without --write), or was not finished; 3 it cannot be
repaired; 4 repaired, with amnesia.

JSON: dir, planned, needed, done, refused, findings (as in verify), steps [{action (create, write, rename, remove), file, to,
bytes}], losses [{group, through, lost [{group, first, last}], state_lost}], loss_unknown, fence {found, generation, dirty, amnesia, closed}.`

func newWALRepair(w world) *cobra.Command {
	var asJSON bool
	var o wal.RepairOptions
	cmd := &cobra.Command{
		Use: "repair DIR", Short: "Say what a repair of a damaged log would cost, and do it if told to", Long: repairLong, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := found(w, args[0])
			if err != nil {
				return err
			}
			o.InspectOptions = opts
			m, err := inspect.Repair(cmd.Context(), o)
			if m == nil || err != nil && !o.Write {
				return cannot(err)
			}
			if err != nil {
				return errors.Join(cannot(err), answer(w, m, asJSON))
			}
			return answer(w, m, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Write, "write", false, "do it")
	flags.BoolVar(&o.AcceptLoss, "accept-loss", false, "forget that something is missing: the host votes at once (see above for what that may cost)")
	jsonFlag(cmd, &asJSON)
	return cmd
}
