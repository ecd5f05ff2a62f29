package rescue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// survivor is a directory that is given to a rescue. It is read and locked, and not changed.
type survivor struct {
	fs       vfs.FS
	dir      string
	locks    []io.Closer
	identity identity.Identity
	begun    *decision // a rescue of it has not ended; nothing else is read
	log      *wal.Inspection
	amnesia  bool
	groups   map[uint64]*survivingGroup
}

// survivingGroup is one group of it.
type survivingGroup struct {
	id        uint64
	log       *wal.Group
	base      wal.Snapshot // after which the log begins that is kept
	last      raftpb.EntryID
	term      uint64 // the highest that the member knows
	committed uint64
	snapshot  uint64             // the index of the newest one that is whole; 0: there is none
	roster    *membership.Roster // after the last entry; nil: the group was not founded
	former    []identity.FormerLife
	unfit     string // why it cannot be rescued with this directory; "" if it can
}

func (d *survivor) close() (err error) {
	if d.log != nil {
		err = d.log.Close()
	}
	for _, l := range slices.Backward(d.locks) {
		err = errors.Join(err, l.Close())
	}
	d.locks, d.log = nil, nil
	return err
}

// enter locks the directory and its log, and finds out whose it is.
func (d *survivor) enter() error {
	names, err := d.fs.ReadDir(d.dir)
	if err != nil {
		return fmt.Errorf("millrace: read %s: %w", d.dir, err)
	}
	if !slices.Contains(names, identity.File) && !slices.Contains(names, identity.RescuingFile) {
		return fmt.Errorf("millrace: %s is no directory of a host: it has no %s; give the directory that Millrace was opened with", d.dir, identity.File)
	}
	if err := identity.RejectRestoring(names, d.dir); err != nil {
		return err
	}
	for _, path := range []string{filepath.Join(d.dir, "LOCK"), filepath.Join(identity.LogDir(d.dir), "LOCK")} {
		held, err := vfs.LockToRead(d.fs, path) // which is as good as the other
		switch {
		case errors.Is(err, vfs.ErrLocked):
			return fmt.Errorf("millrace: a rescue needs hosts that are stopped: %w", err)
		case err != nil:
			return fmt.Errorf("millrace: lock %s: %w", d.dir, err)
		}
		d.locks = append(d.locks, held)
	}
	var begun decision
	found, err := identity.ReadFile(d.fs, filepath.Join(d.dir, identity.RescuingFile), &begun)
	switch {
	case err != nil:
		return err
	case found && begun.Version != rescuingVersion:
		return fmt.Errorf("millrace: %s has version %d, this program supports only version %d; continue with the program that wrote it", filepath.Join(d.dir, identity.RescuingFile), begun.Version, rescuingVersion)
	case found:
		d.begun = &begun
		return nil
	}
	d.identity, _, err = identity.Read(d.fs, d.dir)
	return err
}

// inspect reads the log, and in each group what a host would begin with.
func (d *survivor) inspect(ctx context.Context) (err error) {
	id, err := wal.ReadID(d.fs, identity.LogDir(d.dir))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("millrace: directory %s has no log, and without it there is nothing to rescue: %w", d.dir, err)
	}
	if err != nil {
		return fmt.Errorf("millrace: directory %s: %w", d.dir, err)
	}
	if err := d.identity.RejectLog(d.dir, id); err != nil {
		return err
	}
	if d.log, err = wal.Inspect(ctx, wal.InspectOptions{FS: d.fs, Dir: identity.LogDir(d.dir)}); err != nil {
		return fmt.Errorf("millrace: read the log of %s: %w", d.dir, err)
	}
	for _, f := range d.log.Findings {
		if f.Kind != wal.TornEnd && f.Kind != wal.Warned {
			return fmt.Errorf("millrace: the log of %s is damaged (%s: %s); repair it first (millrace wal repair --write %s), which says what is lost", d.dir, f.File, f.Reason, d.dir)
		}
	}
	d.amnesia, d.groups = d.log.Fence.Amnesia, map[uint64]*survivingGroup{}
	for i := range d.log.Groups {
		of := &d.log.Groups[i]
		if slices.Contains(d.log.Deleted, of.ID) || of.Last == 0 && of.Term == 0 {
			continue
		}
		g := &survivingGroup{id: of.ID, log: d.log.Group(of.ID), base: of.Snapshot, committed: of.Commit, term: of.Term}
		if err := d.inspectGroup(ctx, g, of); err != nil {
			return fmt.Errorf("millrace: group %d in %s: %w", of.ID, d.dir, err)
		}
		d.groups[of.ID] = g
	}
	return nil
}

// inspectGroup reads one group. What it cannot be rescued with is noted in unfit.
func (d *survivor) inspectGroup(ctx context.Context, g *survivingGroup, of *wal.GroupInfo) error {
	g.last = raftpb.EntryID{Index: of.Last}
	term, err := g.log.Term(of.Last)
	if err != nil {
		return err
	}
	g.last.Term = term
	text, _, err := identity.ReadJoined(d.fs, d.dir, g.id)
	if err != nil {
		return err
	}
	g.former = text.Rescued
	var found entry.Binding
	if err := d.inspectSnapshots(ctx, g, &found); err != nil || g.unfit != "" {
		return err
	}
	if err := g.follow(found); err != nil {
		return err
	}
	g.term = max(g.term, g.last.Term)
	if g.roster == nil {
		g.unfit = "the group was not founded, as far as this directory knows, so no command is in it; found it again with empty directories"
		return nil
	}
	switch m, is := g.roster.Member(d.identity.ID); {
	case !is:
		g.unfit = fmt.Sprintf("host %d is no member of the group after the last entry of its own log: it was removed, or not added yet", d.identity.ID)
	case m.Incarnation != d.identity.Incarnation:
		g.unfit = fmt.Sprintf("the group has bound host %d to directory %v, and this is directory %v: it was replaced", d.identity.ID, m.Incarnation, d.identity.Incarnation)
	}
	return nil
}

// inspectSnapshots finds the newest snapshot that is whole and fits to the log. One that is newer than the
// log was received and not yet installed: the log that is kept begins behind it.
func (d *survivor) inspectSnapshots(ctx context.Context, g *survivingGroup, found *entry.Binding) error {
	all, err := snapshot.Find(ctx, d.fs, identity.SnapshotsDir(d.dir, g.id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, snapshot.ErrNotFound) {
		return err
	}
	var unfit []error
	for i := len(all) - 1; i >= 0; i-- {
		f := &all[i]
		if f.State != snapshot.Published {
			if f.Damage != nil {
				unfit = append(unfit, f.Damage)
			}
			continue
		}
		m := f.Manifest
		is := slices.ContainsFunc(g.former, func(life identity.FormerLife) bool { return life.IsOf(m, d.identity.ID) })
		if err := cmp.Or(d.identity.RejectManifest(g.id, m, is), entry.RejectConf(m)); err != nil {
			unfit = append(unfit, err)
			continue
		}
		if term, err := g.log.Term(m.Index); m.Index <= g.last.Index && (err != nil || term != m.Term) {
			continue // it ends before the log begins, or is of another log
		}
		if err := f.Verify(ctx); err != nil {
			return err
		}
		if f.State != snapshot.Published {
			unfit = append(unfit, f.Damage)
			continue
		}
		return g.begin(m, found)
	}
	if g.base.Index > 0 {
		g.unfit = fmt.Sprintf("its log begins behind entry %d, and no snapshot has what is before it (%v); rescue another directory, or restore a backup", g.base.Index, errors.Join(append(unfit, errors.New("there is no other"))...))
	}
	return nil
}

// begin makes a snapshot what the group begins with.
func (g *survivingGroup) begin(m *snapshot.Manifest, found *entry.Binding) error {
	block, err := entry.DecodeBlock(m.Host)
	if err != nil {
		return err
	}
	g.snapshot, g.roster = m.Index, block.Roster
	if len(block.Found) > 0 {
		if *found, err = entry.DecodeFounding(block.Found); err != nil {
			return err
		}
	}
	if m.Index > g.last.Index {
		g.base, g.last = wal.Snapshot{Index: m.Index, Term: m.Term}, raftpb.EntryID{Index: m.Index, Term: m.Term}
	}
	g.committed = max(g.committed, m.Index)
	return nil
}

// follow makes roster that after the last entry of the log.
func (g *survivingGroup) follow(found entry.Binding) error {
	if g.base.Index >= g.log.LastIndex() && g.base.Index > 0 {
		return nil // the snapshot is all
	}
	for _, i := range g.log.Typed(max(g.snapshot+1, g.log.FirstIndex()), g.log.LastIndex()+1) {
		page, err := g.log.Entries(i, i+1, 1)
		if err != nil {
			return err
		}
		switch e := &page[0]; {
		case e.Type == raftpb.EntryHost && !entry.IsMemberEntry(e.Type, e.Data):
			b, err := entry.DecodeFounding(e.Data)
			switch {
			case err != nil:
				return err
			case b != nil:
				found = b
			case g.roster == nil && found != nil:
				g.roster = found.Roster()
			}
		case g.roster != nil:
			if next, _, err := entry.RosterAfter(g.roster, e); err == nil {
				g.roster = next
			}
		}
	}
	return nil
}

// doubtful returns the first of the entries that no directory knows as committed.
func (g *survivingGroup) doubtful(committed uint64) (list []Entry, err error) {
	for i := max(committed+1, g.log.FirstIndex()); i <= g.log.LastIndex() && i <= g.last.Index && len(list) < maxDoubtful; {
		page, err := g.log.Entries(i, g.log.LastIndex()+1, 1<<20)
		if err != nil {
			return nil, err
		}
		for k := range page {
			if e := &page[k]; len(list) < maxDoubtful {
				list = append(list, Entry{Index: e.Index, Term: e.Term, Type: e.Type.String(), Bytes: len(e.Data)})
			}
		}
		i += uint64(len(page))
	}
	return list, nil
}
