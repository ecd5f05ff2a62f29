package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/admin"
	"github.com/millrace/millrace/host/rescue"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
	"github.com/millrace/millrace/wal/inspect"
	"github.com/spf13/cobra"
)

var saveLong = `save writes a group to FILE, an archive: a backup that restore begins a new cluster with. DIR is the directory of a host.
FILE must not exist; it appears when it is whole and durable.

If the host runs and has an admin socket (Config.AdminSocket), save asks it for a new snapshot, which has everything that was
acknowledged before, and so needs a quorum; with --local it has what this host has applied. Without a socket the program has
to call Node.Export.

If the host is stopped, save writes its newest snapshot, and holds its lock meanwhile. The log is not in an archive. If DIR
has entries behind the snapshot, save refuses, because commands that were acknowledged may be among them; --snapshot-only
saves the snapshot nevertheless. Take one before you stop the program (Node.TakeSnapshot) to have everything.

With --to instead of FILE:
  --to -      the archive goes to standard output, for another program; it is whole only if the status is 0
  --to BACKUPS
              the archive gets a name in this directory, group-GROUP-TIME-INDEX.archive. It is read back and verified
              before it gets the name. Then all but the newest --keep backups of the group are removed
  --every D   do that every D until SIGTERM, which ends it with status 0. Only a running host is asked, and its lock is
              left alone. A backup that fails is told on standard error, and tried again after 10 seconds, then 20, and
              so on up to D; what was there stays. After a restart the next backup is due D after the newest one

A backup that did not end removes nothing, so one that was verified is always there. Run it beside one or two hosts.

JSON: file, group, cluster (a string), index, term, bytes, entries_behind (not in the archive; 0 if the host runs).

` + snapshotExitHelp(exitOK, exitDamaged, exitCannot, exitUsage, exitInterrupted)

var restoreLong = `restore makes DIR, which must be new, the directory of a host in a new cluster that begins with an archive. Run it for every
host of the new cluster, with the same archive and the same --members, then start the programs with these ids and addresses.
The new cluster and the old one refuse each other.

If restore fails, remove DIR before you try again. A machine that keeps its state on disk must begin empty.

JSON: dir, id, cluster, from_cluster, group, index, term, bytes.

` + snapshotExitHelp(exitOK, exitDamaged, exitCannot, exitUsage, exitInterrupted)

func newRestore(a app) *cobra.Command {
	var asJSON bool
	var id, cluster uint64
	var members string
	cmd := &cobra.Command{
		Use: "restore FILE DIR", Short: "Begin a new cluster with an archive", Long: restoreLong, Args: wantArgs(2, "a file and a directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			peers, err := parseMembers(members)
			if err != nil {
				return usageError{err}
			}
			done, err := restore(cmd.Context(), args[0], host.Config{ID: id, Cluster: cluster, Dir: args[1], Members: peers})
			if err != nil {
				return archiveStatus(err)
			}
			return answer(a, done, asJSON)
		},
	}
	cmd.Flags().Uint64Var(&id, "id", 0, "id of the host of DIR, one of --members")
	cmd.Flags().StringVar(&members, "members", "", "members of the new cluster: ID=HOST:PORT,...")
	cmd.Flags().Uint64Var(&cluster, "cluster", 0, "number of the new cluster (default: derived from archive and members)")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// archiveStatus gives an error its exit status: content that is wrong is damage.
func archiveStatus(err error) error {
	var archive *snapshot.ArchiveError
	var damage *snapshot.DamageError
	if errors.As(err, &archive) || errors.As(err, &damage) {
		return statusError{exitDamaged, err}
	}
	return cannot(err)
}

// parseMembers reads ID=ADDRESS,...
func parseMembers(text string) (map[uint64]string, error) {
	members := map[uint64]string{}
	for one := range strings.SplitSeq(text, ",") {
		number, addr, ok := strings.Cut(one, "=")
		id, err := strconv.ParseUint(number, 10, 64)
		if !ok || err != nil || addr == "" {
			return nil, fmt.Errorf("--members: %q is no member, want ID=HOST:PORT, and commas between them", one)
		}
		if _, twice := members[id]; twice {
			return nil, fmt.Errorf("--members: %d is there twice", id)
		}
		members[id] = addr
	}
	return members, nil
}

// saved is the answer of save. The names of its JSON form stay as they are.
type saved struct {
	File    string `json:"file"`
	Group   uint64 `json:"group"`
	Cluster uint64 `json:"cluster,string"`
	Index   uint64 `json:"index"`
	Term    uint64 `json:"term"`
	Bytes   int64  `json:"bytes"`
	Behind  uint64 `json:"entries_behind"`
}

// Exit implements inspect.Answer.
func (s *saved) Exit() int { return exitOK }

// WriteText implements inspect.Answer.
func (s *saved) WriteText(w io.Writer) error {
	text := fmt.Sprintf("saved       %s\n            group %d of cluster %d, entries through %d of term %d, %d bytes\n", s.File, s.Group, s.Cluster, s.Index, s.Term, s.Bytes)
	if s.Behind > 0 {
		text += fmt.Sprintf("            %d later entries of the log are not in it\n", s.Behind)
	}
	_, err := io.WriteString(w, text)
	return err
}

// saving is what save was asked for.
type saving struct {
	dir, file   string
	group       uint64
	only, local bool
	// into makes an archive of what write writes, in place of file.
	into func(write func(io.Writer) (int64, error)) (int64, error)
}

// archive makes the archive.
func (s saving) archive(write func(io.Writer) (int64, error)) (int64, error) {
	if s.into != nil {
		return s.into(write)
	}
	return writeFile(s.file, write)
}

func (s saving) save(ctx context.Context) (_ *saved, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	switch _, err := os.Stat(filepath.Join(s.dir, "identity.json")); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s is no directory of a host: %w", s.dir, err)
	case err != nil:
		return nil, err
	}
	lock, err := vfs.LockToRead(vfs.OS(), filepath.Join(s.dir, "LOCK"))
	switch {
	case err == nil:
		defer func() { err = errors.Join(err, lock.Close()) }()
		return s.saveStopped(ctx)
	case !errors.Is(err, vfs.ErrLocked):
		return nil, fmt.Errorf("the directory cannot be locked, so it is not known whether its host runs: %w", err)
	}
	socket := filepath.Join(s.dir, admin.SocketName)
	if _, missing := os.Lstat(socket); missing != nil {
		return nil, fmt.Errorf("%w; stop the host, or make the backup in its program with Node.Export, or set Config.AdminSocket there, so that save can ask it", err)
	}
	return s.saveRunning(ctx, socket)
}

// saveRunning asks a running host.
func (s saving) saveRunning(ctx context.Context, socket string) (_ *saved, err error) {
	if s.only {
		return nil, errors.New("the host runs, so its archive has everything that it has applied; --snapshot-only is for a stopped host, --local for a host without a quorum")
	}
	c, err := admin.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	status, err := c.Status(ctx, s.group)
	if err != nil {
		return nil, err
	}
	var info admin.Snapshot
	n, err := s.archive(func(w io.Writer) (n int64, err error) {
		counted := &counter{w: w}
		info, err = c.Export(ctx, s.group, s.local, counted)
		return counted.n, err
	})
	return &saved{File: s.file, Group: s.group, Cluster: status.Cluster, Index: info.Index, Term: info.Term, Bytes: n}, err
}

// counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (n int, err error) {
	n, err = c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// saveStopped writes the newest snapshot of a stopped host. Its directory is locked.
func (s saving) saveStopped(ctx context.Context) (_ *saved, err error) {
	if s.local {
		return nil, fmt.Errorf("the host of %s is stopped, and --local is for one that runs", s.dir)
	}
	dir, group := s.dir, s.group
	snapshots := filepath.Join(dir, "groups", strconv.FormatUint(group, 10), "snapshots")
	store, err := snapshot.ReadStore(vfs.OS(), snapshots)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("group %d has no snapshot: %w", group, err)
	}
	if err != nil {
		return nil, err
	}
	id, ok := store.Latest()
	if damaged := store.Damaged(); len(damaged) > 0 && !ok {
		return nil, damaged[0]
	}
	if !ok {
		return nil, fmt.Errorf("in %s: %w; take one with Node.TakeSnapshot", snapshots, snapshot.ErrNotFound)
	}
	last, err := lastEntry(ctx, filepath.Join(dir, "log"), group)
	if err != nil {
		return nil, err
	}
	behind := max(last, id.Index) - id.Index
	if behind > 0 && !s.only {
		return nil, fmt.Errorf("the newest snapshot of group %d is of entry %d, and the log in %s goes on to entry %d; %d entries would not be in the archive; call Node.TakeSnapshot before the host is stopped, or save without them (--snapshot-only)", group, id.Index, dir, last, behind)
	}
	r, err := store.Open(id)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	n, err := s.archive(func(w io.Writer) (int64, error) { return r.WriteArchive(ctx, w) })
	m := r.Manifest()
	return &saved{File: s.file, Group: group, Cluster: m.Cluster, Index: m.Index, Term: m.Term, Bytes: n, Behind: behind}, err
}

// lastEntry returns the index of the last entry of a group in a log.
func lastEntry(ctx context.Context, dir string, group uint64) (last uint64, err error) {
	in, err := wal.Inspect(ctx, wal.InspectOptions{FS: vfs.OS(), Dir: dir})
	if err != nil {
		return 0, err
	}
	for _, g := range in.Groups {
		if g.ID == group {
			last = g.Last
		}
	}
	return last, in.Close()
}

// writeFile makes file, durably and whole, or not at all.
func writeFile(file string, write func(io.Writer) (int64, error)) (n int64, err error) {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return 0, errors.Join(fmt.Errorf("%s is there already; name another file", file), err)
	}
	draft := file + ".tmp"
	n, err = writeDraft(draft, write)
	if errors.Is(err, fs.ErrExist) {
		return 0, fmt.Errorf("%s is there already: another save writes it, or one that was killed has left it; if none runs, remove it", draft)
	}
	if err != nil {
		return n, err
	}
	return n, publish(draft, file)
}

// writeDraft makes a new file, durably, or none.
func writeDraft(draft string, write func(io.Writer) (int64, error)) (n int64, err error) {
	f, err := os.OpenFile(draft, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	out := bufio.NewWriterSize(f, 1<<20)
	n, err = write(out)
	if err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return n, errors.Join(err, os.Remove(draft))
	}
	return n, nil
}

// publish gives a draft its name, durably.
func publish(draft, file string) error {
	if err := os.Rename(draft, file); err != nil {
		return errors.Join(err, os.Remove(draft))
	}
	return vfs.SyncDir(vfs.OS(), filepath.Dir(file))
}

// restoredHost is the answer of restore. The names of its JSON form stay as they are.
type restoredHost struct {
	Dir         string `json:"dir"`
	ID          uint64 `json:"id"`
	Cluster     uint64 `json:"cluster,string"`
	FromCluster uint64 `json:"from_cluster,string"`
	Group       uint64 `json:"group"`
	Index       uint64 `json:"index"`
	Term        uint64 `json:"term"`
	Bytes       int64  `json:"bytes"`
}

// Exit implements inspect.Answer.
func (r *restoredHost) Exit() int { return exitOK }

// WriteText implements inspect.Answer.
func (r *restoredHost) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "restored    %s\n            host %d of the new cluster %d: group %d of cluster %d, entries through %d of term %d, %d bytes\n",
		r.Dir, r.ID, r.Cluster, r.Group, r.FromCluster, r.Index, r.Term, r.Bytes)
	return err
}

func restore(ctx context.Context, file string, c host.Config) (_ *restoredHost, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// All of it is read before anything is written, so that a damaged archive leaves no directory.
	a, err := snapshot.OpenArchive(bufio.NewReaderSize(f, 1<<20))
	if err == nil {
		err = a.Verify(ctx)
	}
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	done, err := rescue.Restore(ctx, c, []io.Reader{bufio.NewReaderSize(f, 1<<20)}, rescue.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	g := done.Groups[0]
	return &restoredHost{c.Dir, c.ID, done.Cluster, g.FromCluster, g.Group, g.Index, g.Term, g.Bytes}, nil
}

// lookAtArchive is inspect or verify of an archive.
func lookAtArchive(ctx context.Context, file string, verify bool) (_ inspect.Answer, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	found := snapshot.Found{Dir: file, State: snapshot.Published}
	a, err := snapshot.OpenArchive(bufio.NewReaderSize(f, 1<<20))
	if err == nil {
		m := a.Manifest()
		found.Manifest, found.ID = &m, m.ID()
		if verify {
			err = a.Verify(ctx)
		}
	}
	d := describeSnapshot(&found)
	if wrong := (*snapshot.ArchiveError)(nil); errors.As(err, &wrong) {
		d.State, d.Damage = snapshot.Damaged, err.Error()
	} else if err != nil {
		return nil, err
	}
	return &snapshots{Dir: file, Verified: verify, Snapshots: []snapshotFound{d}}, nil
}
