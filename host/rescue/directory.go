package rescue

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/wal"
)

// How a rescue changes a directory. The incarnation of a directory is the id of its log, which is in FENCE
// and in every segment, so the log is written again, under a new id, beside the old one:
//
//	rescue/log      the new log, read back when it is complete. Until here, nothing of the old host is
//	                changed: a run that is interrupted leaves a directory that starts as before
//	RESCUING        what was decided: the new identity. From here on Open refuses the
//	                directory, and every run does what is left, in this order:
//	before-rescue…  gets the old log, and what the host has of groups that are left behind
//	RESCUING        now says that the old log is away
//	log             gets the new log
//	joined.json     of each group: it is older than this directory, and its snapshots are, too
//	peers.json      goes: it is about hosts of the old cluster
//	identity.json   is replaced: the new cluster and the new incarnation
//	RESCUING        goes. The directory is that of the new cluster
//
// So no start sees the old identity with the new log, nor the reverse. Each step may be repeated.
//
// Rejected: changing the id in the segments where they are, which a crash could leave half done in the only
// copy. A new directory beside the old one, which then would have to be moved, and both would start.

const (
	rescuingVersion = 1
	rescueDir       = "rescue"
	keptPrefix      = "before-rescue-"
)

// decision is the content of identity.RescuingFile.
type decision struct {
	Version int `json:"version"`
	// Away says that the old log is not in its place any more.
	Away     bool                  `json:"away"`
	Identity identity.Identity     `json:"identity"`
	Former   uint64                `json:"former_cluster"`
	Was      transport.Incarnation `json:"was"`
	Left     []uint64              `json:"left"`
	Kept     string                `json:"kept"` // a name in the directory
}

// write rescues a directory.
func (w *rescue) write(ctx context.Context, d *survivor) error {
	to := decision{Version: rescuingVersion, Former: d.identity.Cluster, Was: d.identity.Incarnation, Left: w.done.Left,
		Kept: keptPrefix + hex.EncodeToString(d.identity.Incarnation[:])}
	cluster, err := w.drawCluster(d.identity.Cluster)
	if err != nil {
		return err
	}
	to.Identity = identity.Identity{Version: identity.Version, Cluster: cluster, ID: d.identity.ID}
	if err := identity.RemoveTree(w.options.FS, filepath.Join(d.dir, rescueDir)); err != nil {
		return err
	}
	if to.Identity.Incarnation, err = w.copyLog(ctx, d, cluster); err != nil {
		return err
	}
	if err := d.log.Close(); err != nil {
		return err
	}
	d.log = nil
	if err := identity.WriteFile(w.options.FS, d.dir, identity.RescuingFile, to); err != nil {
		return err
	}
	return w.finish(ctx, d.dir, to)
}

// proceed finishes a rescue that was interrupted.
func (w *rescue) proceed(ctx context.Context, d *survivor) (*Report, error) {
	to := d.begun
	w.done.Dir, w.done.Host, w.done.Former, w.done.Left, w.done.Continues = d.dir, to.Identity.ID, to.Former, to.Left, true
	if !w.asked.Write {
		return &w.done, nil
	}
	return &w.done, w.finish(ctx, d.dir, *to)
}

// copyLog writes the new log, and returns its id.
func (w *rescue) copyLog(ctx context.Context, d *survivor, cluster uint64) (id transport.Incarnation, err error) {
	dir := identity.LogDir(filepath.Join(d.dir, rescueDir))
	if err := w.options.FS.MkdirAll(dir); err != nil {
		return id, fmt.Errorf("millrace: make directory %s: %w", dir, err)
	}
	log, err := host.OpenWAL(host.LogConfig{
		FS: w.options.FS, Dir: dir, Owner: d.identity.ID, Scheduler: w.options.Env.Scheduler, Clock: w.options.Env.Clock, Secrets: w.options.Env.Secrets,
		CacheBytes: -1, Logger: w.options.Logger, Events: func(wal.Event) {},
	})
	if err != nil {
		return id, err
	}
	id = log.ID()
	for i := range w.done.Groups {
		if err := d.groups[w.done.Groups[i].Group].copyTo(ctx, log, entry.Rescued{Cluster: cluster, Former: d.identity.Cluster, ID: d.identity.ID, Incarnation: id}); err != nil {
			return id, errors.Join(fmt.Errorf("millrace: copy group %d to %s: %w", w.done.Groups[i].Group, dir, err), log.Close())
		}
	}
	for _, group := range d.log.Deleted {
		if err := log.DeleteGroup(group); err != nil {
			return id, errors.Join(err, log.Close())
		}
	}
	if err := errors.Join(log.Sync(), log.Close()); err != nil {
		return id, fmt.Errorf("millrace: write %s: %w", dir, err)
	}
	return id, w.readBack(ctx, dir)
}

// copyTo writes a group with its entry rescued, which is committed with all before it.
func (g *survivingGroup) copyTo(ctx context.Context, log host.Log, r entry.Rescued) error {
	const pageBytes = 1 << 20
	put := func(write wal.Write) error {
		write.Group = g.id
		if err := log.Append([]wal.Write{write}); err != nil {
			return err
		}
		return log.Sync()
	}
	if g.base.Index > 0 {
		if err := put(wal.Write{HardState: raftpb.HardState{Term: g.base.Term, Commit: g.base.Index}, Snapshot: g.base}); err != nil {
			return err
		}
	}
	for i := g.base.Index + 1; i <= g.last.Index; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		page, err := g.log.Entries(i, g.last.Index+1, pageBytes)
		if err == nil {
			err = put(wal.Write{Entries: page})
		}
		if err != nil {
			return err
		}
		i += uint64(len(page))
	}
	at := raftpb.EntryID{Term: g.term + 1, Index: g.last.Index + 1}
	return put(wal.Write{
		HardState: raftpb.HardState{Term: at.Term, Commit: at.Index},
		Entries:   []raftpb.Entry{{Type: raftpb.EntryHost, Term: at.Term, Index: at.Index, Data: r.Encode()}},
	})
}

// readBack compares the new log with what it must have. Nothing of the old one has gone yet.
func (w *rescue) readBack(ctx context.Context, dir string) error {
	in, err := wal.Inspect(ctx, wal.InspectOptions{FS: w.options.FS, Dir: dir})
	if err != nil {
		return err
	}
	have := map[uint64]wal.GroupInfo{}
	for _, g := range in.Groups {
		have[g.ID] = g
	}
	for i := range w.done.Groups {
		g := &w.done.Groups[i]
		if of := have[g.Group]; of.Last != g.Index || of.Commit != g.Index || len(in.Findings) > 0 {
			return errors.Join(fmt.Errorf("millrace: the new log %s does not read back: group %d ends with entry %d, want %d, and there are %d findings; the directory is as it was", dir, g.Group, of.Last, g.Index, len(in.Findings)), in.Close())
		}
	}
	return in.Close()
}

// finish does what is left of a rescue when it is decided. The directory and its log are locked.
func (w *rescue) finish(ctx context.Context, dir string, to decision) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w (the rescue of %s has begun and is not complete: run it again)", err, dir)
		}
	}()
	fsys, kept := w.options.FS, filepath.Join(dir, to.Kept)
	if !to.Away {
		if err := moveTree(fsys, identity.LogDir(dir), identity.LogDir(kept)); err != nil {
			return err
		}
		for _, group := range to.Left {
			if err := moveTree(fsys, identity.GroupDir(dir, group), identity.GroupDir(kept, group)); err != nil {
				return err
			}
		}
		to.Away = true
		if err := identity.WriteFile(fsys, dir, identity.RescuingFile, to); err != nil {
			return err
		}
	}
	if err := moveTree(fsys, identity.LogDir(filepath.Join(dir, rescueDir)), identity.LogDir(dir)); err != nil {
		return err
	}
	if err := identity.RemoveTree(fsys, filepath.Join(dir, rescueDir)); err != nil {
		return err
	}
	if err := w.markGroups(ctx, dir, to); err != nil {
		return err
	}
	if err := identity.RemoveFile(fsys, dir, identity.PeersFile); err != nil {
		return fmt.Errorf("millrace: remove %s in %s: %w", identity.PeersFile, dir, err)
	}
	if err := identity.WriteFile(fsys, dir, identity.File, to.Identity); err != nil {
		return err
	}
	if err := identity.RemoveFile(fsys, dir, identity.RescuingFile); err != nil {
		return fmt.Errorf("millrace: remove %s in %s: %w", identity.RescuingFile, dir, err)
	}
	w.done.Done, w.done.Cluster, w.done.Incarnation, w.done.Kept = true, to.Identity.Cluster, to.Identity.Incarnation, kept
	return nil
}

// markGroups writes joined.json of all groups in the new log, each of which ends with its entry rescued.
func (w *rescue) markGroups(ctx context.Context, dir string, to decision) (err error) {
	in, err := wal.Inspect(ctx, wal.InspectOptions{FS: w.options.FS, Dir: identity.LogDir(dir)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	for i := range in.Groups {
		of := &in.Groups[i]
		if of.Last == 0 {
			continue // it was deleted
		}
		text, _, err := identity.ReadJoined(w.options.FS, dir, of.ID)
		if err != nil {
			return err
		}
		life := identity.FormerLife{Cluster: to.Former, Incarnation: to.Was, Index: of.Last - 1}
		if !slices.Contains(text.Rescued, life) {
			text.Rescued = append(text.Rescued, life)
		}
		text.Version, text.Rescued = identity.JoinedVersion, text.Rescued[max(0, len(text.Rescued)-identity.MaxFormer):]
		if err := identity.WriteJoined(w.options.FS, dir, of.ID, text); err != nil {
			return err
		}
		if w.done.Continues {
			w.done.Groups = append(w.done.Groups, Group{Group: of.ID, Last: of.Last - 1, Index: of.Last})
		}
	}
	return nil
}
