package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
)

// A group begins, when it is opened, from the newest snapshot on its host's disk that fits, and applies the
// log behind it. A snapshot fits if it is of this cluster, this group and this host's directory, and the log
// still has everything behind it. If the newest is damaged, an older one does as well, or none if the log
// begins at entry 1. A machine that keeps its state on disk is restored only if it holds less than the
// snapshot.
//
// A snapshot that is newer than the log was received and not yet installed when the host stopped. When the
// host is opened, before any group is, such an install is finished: everything was on disk and checked when
// it was published. A group that is closed in between and opened again, in one life of its host, begins
// without it: only the append lane writes to the log.

// Log is the log of a group, as snapshots are compared with it.
type Log interface {
	FirstIndex() uint64
	LastIndex() uint64
	Term(index uint64) (uint64, error)
	HardState() raftpb.HardState
}

// Opening is what Open needs of a group that is being opened.
type Opening struct {
	Log Log
	// Reject says why a snapshot is not one of this group on this host, or returns nil.
	Reject func(*snapshot.Manifest) error
	// Restore begins from a snapshot. damage says that it cannot be read; err that the group cannot be
	// opened.
	Restore func(*snapshot.Store, snapshot.Manifest) (damage, err error)
	// Uninstalled is why a snapshot that was received could not be installed; it may be nil.
	Uninstalled error
}

// Open restores the newest snapshot that fits, if there is one, and returns its index. If the log begins
// behind entry 1 and none fits, it returns why each of them does not.
func (s *Group) Open(o Opening) (index uint64, unfit []error, err error) {
	ids, err := s.List()
	if err != nil {
		return 0, nil, err
	}
	first := o.Log.FirstIndex()
	var newer []snapshot.ID
	for _, id := range slices.Backward(ids) {
		store, err := s.Store()
		if err != nil {
			return 0, nil, err
		}
		m, err := store.Manifest(id)
		if err == nil {
			err = o.Reject(&m)
		}
		term, inLog := o.Log.Term(id.Index)
		switch {
		case err != nil:
			unfit = append(unfit, err)
			continue
		case id.Index > o.Log.LastIndex():
			newer = append(newer, id)
			continue
		case id.Index+1 < first:
			unfit = append(unfit, fmt.Errorf("snapshot %v ends before entry %d", id, first))
			continue
		case inLog != nil || term != id.Term:
			unfit = append(unfit, fmt.Errorf("snapshot %v ends with term %d, and the log has term %d there", id, id.Term, term))
			continue
		case s.Machine == nil:
			continue
		}
		damage, err := o.Restore(store, m)
		if err != nil {
			return 0, nil, err
		}
		if damage == nil {
			return id.Index, nil, s.Forget(newer)
		}
		s.owner.Error("a snapshot is damaged", "snapshot", id.String(), "err", damage)
		unfit = append(unfit, damage)
	}
	if first == 1 {
		return 0, nil, s.Forget(newer)
	}
	// What is newer stays: if the log was not durable (wal.Mode.Unsafe), the log has lost the mark of a
	// snapshot that was installed, and the snapshot is the only one.
	for _, id := range newer {
		unfit = append(unfit, fmt.Errorf("snapshot %v is newer than the log, which ends at entry %d, and was not installed when the host was opened", id, o.Log.LastIndex()))
	}
	if o.Uninstalled != nil {
		unfit = append(unfit, o.Uninstalled)
	}
	if unfit = append(unfit, s.Damaged()...); unfit == nil {
		unfit = append(unfit, errors.New("there is none"))
	}
	return 0, unfit, nil
}

// Interrupted is the installs of a host that its end has interrupted.
type Interrupted struct {
	FS      vfs.FS
	HostDir string
	Self    uint64
	// IsGone reports whether a group was removed, or its log is empty at each start: its snapshots are removed.
	IsGone func(group uint64) bool
	Log    func(group uint64) Log
	Reject func(group uint64, m *snapshot.Manifest) error
	// Mark writes the mark of a snapshot in the log of a group, and Sync makes the marks durable.
	Mark  func(group uint64, hs raftpb.HardState, id snapshot.ID) error
	Sync  func() error
	Info  func(text string, args ...any)
	Error func(text string, args ...any)
}

// Finish finishes the installs that were interrupted, and removes the snapshots of groups that are gone.
// damaged says, by group, why the snapshot that was received cannot be installed. It is called before the
// lanes run.
func (i *Interrupted) Finish(ctx context.Context) (damaged map[uint64]error, err error) {
	damaged = map[uint64]error{}
	dir := identity.GroupsDir(i.HostDir)
	names, err := i.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return damaged, nil
	}
	if err != nil {
		return nil, fmt.Errorf("millrace: read %s: %w", dir, err)
	}
	wrote := false
	for _, name := range names {
		group, err := strconv.ParseUint(name, 10, 64)
		if err != nil || name != strconv.FormatUint(group, 10) {
			continue // not ours
		}
		if i.IsGone(group) {
			if err := RemoveAll(i.FS, i.HostDir, group); err != nil {
				return nil, err
			}
			continue
		}
		finished, err := i.finish(ctx, group, damaged)
		if err != nil {
			return nil, err
		}
		wrote = wrote || finished
	}
	if wrote {
		if err := i.Sync(); err != nil {
			return nil, fmt.Errorf("millrace: finish the installs of snapshots in %s: %w", i.HostDir, err)
		}
	}
	return damaged, nil
}

// finish finishes the install of one group, if there is one. A snapshot that does not fit or cannot be read
// stays: Open says what is wrong with it.
func (i *Interrupted) finish(ctx context.Context, group uint64, damaged map[uint64]error) (wrote bool, err error) {
	dir, log := identity.SnapshotsDir(i.HostDir, group), i.Log(group)
	names, err := i.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("millrace: read %s: %w", dir, err)
	}
	if !slices.ContainsFunc(names, func(name string) bool {
		id, err := snapshot.ParseID(name)
		return err == nil && leads(id, log)
	}) {
		return false, nil
	}
	store, err := snapshot.OpenStore(i.FS, dir)
	if err != nil {
		return false, fmt.Errorf("millrace: the snapshots of group %d in %s cannot be opened: %w", group, dir, err)
	}
	for _, id := range slices.Backward(store.List()) {
		m, err := store.Manifest(id)
		if err != nil || i.Reject(group, &m) != nil || !leads(id, log) {
			continue
		}
		if err := store.Verify(ctx, id); IsDamage(err) {
			i.Error("a snapshot that was received is damaged, and is not installed", "group", group, "host", i.Self, "snapshot", id.String(), "err", err)
			damaged[group] = err
			continue
		} else if err != nil {
			return false, fmt.Errorf("millrace: finish the install of snapshot %v of group %d: %w", id, group, err)
		}
		hs := log.HardState()
		if hs.Term < id.Term {
			hs.Term, hs.Vote = id.Term, 0
		}
		hs.Commit = max(hs.Commit, id.Index)
		if err := i.Mark(group, hs, id); err != nil {
			return false, fmt.Errorf("millrace: finish the install of snapshot %v of group %d: %w", id, group, err)
		}
		i.Info("the install of a snapshot is finished", "group", group, "host", i.Self, "snapshot", id.String())
		return true, nil
	}
	return false, nil
}

// leads reports whether a snapshot has something that the log lacks: it ends behind the log, or the log has
// an entry of an earlier term where it ends. That entry cannot be committed, and the state of a snapshot is.
// A member that applies what others have committed may take a snapshot before its own disk has the entries.
// After a power cut its log may have those that they have replaced.
func leads(id snapshot.ID, log Log) bool {
	if id.Index > log.LastIndex() {
		return true
	}
	term, err := log.Term(id.Index)
	return err == nil && term < id.Term
}

// RemoveAll removes the snapshots of a group that is gone.
func RemoveAll(fsys vfs.FS, hostDir string, group uint64) error {
	return identity.RemoveTree(fsys, filepath.Dir(identity.SnapshotsDir(hostDir, group)))
}
