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

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
	"github.com/millrace/millrace/wal/inspect"
)

var saveLong = `save writes the newest snapshot of a group to FILE, an archive: a backup that restore begins a new cluster with. DIR is the
directory of a host that is stopped; save holds its lock meanwhile. A running program makes a backup with Node.Export.

The log is not in an archive. If DIR has entries behind the snapshot, save refuses, because commands that were acknowledged
may be among them; --snapshot-only saves the snapshot nevertheless. Take a snapshot before you stop the program
(Node.TakeSnapshot) to have everything. FILE must not exist; it appears when it is whole and durable.

JSON: file, group, cluster, index, term, bytes, entries_behind (not in the archive).

` + snapshotExitHelp(exitOK, exitDamaged, exitCannot, exitUsage, exitInterrupted)

var restoreLong = `restore makes DIR, which must be new, the directory of a host in a new cluster that begins with an archive. Run it for every
host of the new cluster, with the same archive and the same --members, then start the programs with these ids and addresses.
The new cluster and the old one refuse each other.

If restore fails, remove DIR before you try again. A machine that keeps its state on disk must begin empty.

JSON: dir, id, cluster, from_cluster, group, index, term, bytes.

` + snapshotExitHelp(exitOK, exitDamaged, exitCannot, exitUsage, exitInterrupted)

func newSave(a app) *cobra.Command {
	var asJSON, only bool
	var group uint64
	cmd := &cobra.Command{
		Use: "save DIR FILE", Short: "Write the newest snapshot of a stopped host to a file", Long: saveLong, Args: wantArgs(2, "a directory and a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			done, err := save(cmd.Context(), args[0], args[1], group, only)
			if err != nil {
				return archiveStatus(err)
			}
			return answer(a, done, asJSON)
		},
	}
	cmd.Flags().Uint64Var(&group, "group", 1, "the group to save")
	cmd.Flags().BoolVar(&only, "snapshot-only", false, "save the snapshot even if the log has entries behind it")
	jsonFlag(cmd, &asJSON)
	return cmd
}

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
			done, err := restore(cmd.Context(), args[0], host.Config{ID: id, Cluster: cluster, Dir: args[1], Peers: peers})
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
	Cluster uint64 `json:"cluster"`
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

func save(ctx context.Context, dir, file string, group uint64, only bool) (_ *saved, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	fsys := vfs.OS()
	if _, err := os.Stat(filepath.Join(dir, "identity.json")); err != nil {
		return nil, fmt.Errorf("%s is no directory of a host: %w", dir, err)
	}
	lock, err := fsys.Lock(filepath.Join(dir, "LOCK"))
	if err != nil {
		return nil, fmt.Errorf("%w; stop the host, or make the backup in its program with Node.Export", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	snapshots := filepath.Join(dir, "groups", strconv.FormatUint(group, 10), "snapshots")
	if _, err := os.Stat(snapshots); err != nil {
		return nil, fmt.Errorf("group %d has no snapshot: %w", group, err)
	}
	store, err := snapshot.OpenStore(fsys, snapshots)
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
	if behind > 0 && !only {
		return nil, fmt.Errorf("the newest snapshot of group %d is of entry %d, and the log in %s goes on to entry %d: the %d entries would not be in the archive; call Node.TakeSnapshot before the host is stopped, or save without them (--snapshot-only)", group, id.Index, dir, last, behind)
	}
	r, err := store.Open(id)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	n, err := writeArchive(ctx, r, file)
	m := r.Manifest()
	return &saved{File: file, Group: group, Cluster: m.Cluster, Index: m.Index, Term: m.Term, Bytes: n, Behind: behind}, err
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

// writeArchive makes file, durably and whole, or not at all.
func writeArchive(ctx context.Context, r *snapshot.Reader, file string) (n int64, err error) {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return 0, errors.Join(fmt.Errorf("%s is there already; name another file", file), err)
	}
	draft := file + ".tmp"
	f, err := os.OpenFile(draft, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	out := bufio.NewWriterSize(f, 1<<20)
	n, err = r.WriteArchive(ctx, out)
	if err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return n, errors.Join(err, os.Remove(draft))
	}
	if err := os.Rename(draft, file); err != nil {
		return n, errors.Join(err, os.Remove(draft))
	}
	return n, vfs.OS().SyncDir(filepath.Dir(file))
}

// restoredHost is the answer of restore. The names of its JSON form stay as they are.
type restoredHost struct {
	Dir         string `json:"dir"`
	ID          uint64 `json:"id"`
	Cluster     uint64 `json:"cluster"`
	FromCluster uint64 `json:"from_cluster"`
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
	done, err := host.RestoreArchives(ctx, c, []io.Reader{bufio.NewReaderSize(f, 1<<20)}, host.WithLogger(slog.New(slog.DiscardHandler)))
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
