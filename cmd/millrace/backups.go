package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/host/admin"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
	"github.com/spf13/cobra"
)

// Backups in a directory: one at a time, or every so often.
//
// An archive gets its name after it was read back and verified. Only then are old ones removed, and never the
// one just made. So once a backup was made the directory has a good one, whatever fails later.
//
// A draft and a lock are in a directory of the group (.group-1). A second program for the same group is
// refused, and what a killed one has left can be removed.

const (
	// firstRetry is the time before the first retry of a backup that failed. It doubles up to --every.
	firstRetry = 10 * time.Second
	// backupStall is how long a backup may write nothing. A host without a quorum writes nothing.
	backupStall = 2 * time.Minute
	// minEvery and maxEvery bound --every. The name of a backup has seconds.
	minEvery, maxEvery = time.Second, 366 * 24 * time.Hour
	// maxKeep bounds --keep.
	maxKeep = 100_000

	backupTime = "20060102T150405Z"
)

// backups are those of a group in a directory.
type backups struct {
	of    saving
	to    string        // the directory, or "-"
	keep  int           // 0: all
	every time.Duration // 0: once

	now   func() time.Time
	wait  func(ctx context.Context, d time.Duration) error
	stall time.Duration
	save  func(of saving, ctx context.Context) (*saved, error) // nil: ask the host
}

func newSave(a app) *cobra.Command {
	var asJSON bool
	var of saving
	b := backups{now: time.Now, wait: waitFor, stall: backupStall}
	cmd := &cobra.Command{
		Use: "save DIR FILE | save DIR --to BACKUPS", Short: "Write a snapshot of a host to a file, once or on a schedule", Long: saveLong,
		Args: func(cmd *cobra.Command, args []string) error {
			to := cmd.Flags().Changed("to")
			switch {
			case to && len(args) == 2:
				return errors.New("both FILE and --to are given, want one of the two")
			case to:
				return wantArgs(1, "one directory")(cmd, args)
			}
			return wantArgs(2, "a directory and a file, or a directory and --to")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			of.dir, b.of = args[0], of
			b.of.dir = args[0]
			if err := b.check(cmd.Flags().Changed("to")); err != nil {
				return usageError{err}
			}
			switch {
			case b.to == "-":
				return b.stream(cmd.Context(), a)
			case b.to != "":
				return b.run(cmd.Context(), a, asJSON)
			}
			b.of.file = args[1]
			done, err := b.of.save(cmd.Context())
			if err != nil {
				return archiveStatus(err)
			}
			return answer(a, done, asJSON)
		},
	}
	cmd.Flags().Uint64Var(&of.group, "group", 1, "the group to save")
	cmd.Flags().BoolVar(&of.only, "snapshot-only", false, "stopped host: save the snapshot even if the log has entries behind it")
	cmd.Flags().BoolVar(&of.local, "local", false, "running host: save what it has applied, also if it reaches no quorum")
	cmd.Flags().StringVar(&b.to, "to", "", "a directory for backups, or - for standard output")
	cmd.Flags().IntVar(&b.keep, "keep", 0, "how many backups of the group stay in the directory of --to; 0: all")
	cmd.Flags().DurationVar(&b.every, "every", 0, "time between backups, until SIGTERM; 0: one backup")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// check refuses flags that are wrong, or that do not go together.
func (b *backups) check(to bool) error {
	switch {
	case to && b.to == "":
		return errors.New("--to is empty, want a directory, or - for standard output")
	case (b.every != 0 || b.keep != 0) && (b.to == "" || b.to == "-"):
		return errors.New("--every and --keep are for backups in a directory: name it with --to")
	case b.every != 0 && (b.every < minEvery || b.every > maxEvery):
		return fmt.Errorf("--every is %v, want %v to %v", b.every, minEvery, maxEvery)
	case b.keep < 0 || b.keep > maxKeep:
		return fmt.Errorf("--keep is %d, want 0 to %d", b.keep, maxKeep)
	case b.every != 0 && b.of.only:
		return errors.New("--snapshot-only is for a stopped host, and --every asks a running one")
	}
	return nil
}

// stream writes an archive to standard output, and the answer to standard error.
func (b *backups) stream(ctx context.Context, a app) error {
	of := b.of
	of.file = "standard output"
	of.into = func(write func(io.Writer) (int64, error)) (int64, error) {
		out := bufio.NewWriterSize(a.stdout, 1<<20)
		n, err := write(out)
		return n, errors.Join(err, out.Flush())
	}
	done, err := of.save(ctx)
	if err != nil {
		return archiveStatus(err)
	}
	return done.WriteText(a.stderr)
}

// run makes one backup, or one every so often until ctx ends.
func (b *backups) run(ctx context.Context, a app, asJSON bool) (err error) {
	work := filepath.Join(b.to, fmt.Sprintf(".group-%d", b.of.group))
	if _, err := os.Stat(b.to); err != nil { // it may be a volume that is not mounted, so it is not made
		return cannot(fmt.Errorf("--to: %w; make the directory first", err))
	}
	if err := os.Mkdir(work, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return cannot(err)
	}
	lock, err := vfs.OS().Lock(filepath.Join(work, "LOCK"))
	if errors.Is(err, vfs.ErrLocked) {
		return cannot(fmt.Errorf("another program makes backups of group %d in %s: %w", b.of.group, b.to, err))
	}
	if err != nil {
		return cannot(err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if b.every == 0 {
		done, err := b.once(ctx, work)
		if done == nil {
			return archiveStatus(err)
		}
		return errors.Join(answer(a, done, asJSON), cannot(err))
	}
	wait, err := b.due()
	if err != nil {
		return cannot(err)
	}
	for retry := firstRetry; ; {
		if b.wait(ctx, wait) != nil {
			return nil // SIGTERM ends a schedule in good order
		}
		done, err := b.once(ctx, work)
		if ctx.Err() != nil && done == nil {
			return nil
		}
		if done != nil {
			if failed := answer(a, done, asJSON); failed != nil {
				return failed // no one reads the answers
			}
			wait, retry = b.every, firstRetry
		}
		if err != nil {
			if done == nil {
				wait = min(retry, b.every)
				retry = min(2*retry, maxEvery)
			}
			fmt.Fprintf(a.stderr, "millrace: %s; the next try is in %v\n", sentence(err), wait)
		}
	}
}

// due returns how long the first backup has time: --every after the newest one.
func (b *backups) due() (time.Duration, error) {
	all, err := b.list()
	if err != nil || len(all) == 0 {
		return 0, err
	}
	since := b.now().Sub(all[len(all)-1].at)
	if since < 0 { // of a clock that was wrong
		return 0, nil
	}
	return max(b.every-since, 0), nil
}

// once makes a backup, and removes old ones. Without an answer there is no new backup.
func (b *backups) once(ctx context.Context, work string) (_ *saved, err error) {
	draft := filepath.Join(work, "draft")
	if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("what a killed backup has left: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(b.stall, func() {
		cancel(fmt.Errorf("the host has sent nothing of the backup for %v; it needs a quorum (or --local)", b.stall))
	})
	defer stalled.Stop()
	of := b.of
	of.into = func(write func(io.Writer) (int64, error)) (int64, error) {
		return writeDraft(draft, func(w io.Writer) (int64, error) { return write(&rearming{w, stalled, b.stall}) })
	}
	save := b.save
	if save == nil {
		save = saving.save
		if b.every != 0 {
			save = saving.saveScheduled
		}
	}
	done, err := save(of, ctx)
	stalled.Stop()
	if err != nil {
		return nil, fmt.Errorf("no backup: %w", err)
	}
	if err := verifyArchive(ctx, draft); err != nil {
		return nil, errors.Join(fmt.Errorf("no backup: what was written to %s is read back wrong: %w", draft, err), os.Remove(draft))
	}
	name := backup{group: of.group, at: b.now().UTC(), index: done.Index}.name()
	done.File = filepath.Join(b.to, name)
	if _, err := os.Lstat(done.File); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("no backup: %s is there already", done.File), err, os.Remove(draft))
	}
	if err := publish(draft, done.File); err != nil {
		return nil, fmt.Errorf("no backup: %w", err)
	}
	if err := b.prune(name); err != nil {
		return done, fmt.Errorf("the backup is made, and an old one cannot be removed: %w", err)
	}
	return done, nil
}

// saveScheduled asks a running host, and leaves the lock of a stopped one alone: its start would be refused.
func (s saving) saveScheduled(ctx context.Context) (*saved, error) {
	return s.saveRunning(ctx, filepath.Join(s.dir, admin.SocketName))
}

// verifyArchive reads all of an archive.
func verifyArchive(ctx context.Context, file string) (err error) {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	a, err := snapshot.OpenArchive(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		return err
	}
	return a.Verify(ctx)
}

// prune removes the oldest backups of the group, and never the one just made.
func (b *backups) prune(made string) error {
	if b.keep == 0 {
		return nil
	}
	all, err := b.list()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(one backup) bool { return one.name() == made })
	for _, old := range all[:max(0, len(all)-(b.keep-1))] {
		if err := os.Remove(filepath.Join(b.to, old.name())); err != nil {
			return err
		}
	}
	return vfs.SyncDir(vfs.OS(), b.to)
}

// list returns the backups of the group, the oldest first. Other files are no backups.
func (b *backups) list() (all []backup, err error) {
	entries, err := os.ReadDir(b.to)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if one, ok := parseBackup(e.Name()); ok && one.group == b.of.group && e.Type().IsRegular() {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(x, y backup) int { return x.at.Compare(y.at) })
	return all, nil
}

// backup is what the name of a backup says.
type backup struct {
	group uint64
	at    time.Time
	index uint64
}

func (b backup) name() string {
	return fmt.Sprintf("group-%d-%s-%020d.archive", b.group, b.at.Format(backupTime), b.index)
}

var backupName = regexp.MustCompile(`^group-([1-9][0-9]*)-([0-9]{8}T[0-9]{6}Z)-([0-9]{20})\.archive$`)

func parseBackup(name string) (b backup, ok bool) {
	m := backupName.FindStringSubmatch(name)
	if m == nil {
		return b, false
	}
	var errs [3]error
	b.group, errs[0] = strconv.ParseUint(m[1], 10, 64)
	b.at, errs[1] = time.Parse(backupTime, m[2])
	b.index, errs[2] = strconv.ParseUint(m[3], 10, 64)
	return b, errors.Join(errs[:]...) == nil
}

// rearming is a writer that puts the end of a timer off.
type rearming struct {
	w     io.Writer
	timer *time.Timer
	d     time.Duration
}

func (r *rearming) Write(p []byte) (int, error) {
	r.timer.Reset(r.d)
	return r.w.Write(p)
}

func waitFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return ctx.Err()
	}
}
