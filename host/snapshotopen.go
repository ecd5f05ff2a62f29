package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/wal"
)

// rejectManifest says why a snapshot is not one of a group on this host, or returns nil.
func (h *Host) rejectManifest(group uint64, m *snapshot.Manifest) error {
	return cmp.Or(h.trust.directory.Identity().RejectManifest(group, m, false), entry.RejectConf(m))
}

// openSnapshot restores the newest snapshot that fits, if there is one, and returns its index, or 0.
func (g *Group) openSnapshot(ctx context.Context) (index uint64, err error) {
	s, log := &g.snapshots, g.writes.storage.log
	index, unfit, err := s.Open(snapshots.Opening{
		Log: log,
		Reject: func(m *snapshot.Manifest) error {
			isFormer := identity.IsFormer(g.host.env.fs, g.host.config.Dir, g.self, g.id, m)
			return cmp.Or(g.host.trust.directory.Identity().RejectManifest(g.id, m, isFormer), entry.RejectConf(m))
		},
		Restore: func(store *snapshot.Store, m snapshot.Manifest) (damage, err error) {
			return g.openFrom(ctx, store, m)
		},
		Uninstalled: g.host.bulk.uninstalled[g.id],
	})
	switch {
	case err != nil || unfit == nil:
		return index, err
	case s.Machine == nil:
		return 0, fmt.Errorf("%w: the log of group %d in %s begins at entry %d, behind a snapshot; open the group with a machine that has the methods Snapshot and Restore", outcome.ErrNoSnapshots, g.id, g.host.config.Dir, log.FirstIndex())
	}
	return 0, fmt.Errorf("millrace: the log of group %d begins at entry %d, and no snapshot in %s has what is before it (%w); restore the directory from a backup, or replace the directory (Config.Joins, ReplaceMember): a member cannot be made from a part of a log", g.id, log.FirstIndex(), s.Dir, errors.Join(unfit...))
}

// openFrom restores a snapshot when the group is opened. damage says that it cannot be read; err that the
// group cannot be opened with it.
func (g *Group) openFrom(ctx context.Context, store *snapshot.Store, m snapshot.Manifest) (damage, err error) {
	r, err := store.Open(m.ID())
	if err != nil {
		return err, nil
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	p := snapshots.NewPublished(m, 0)
	if err := g.restoreFrom(ctx, p, r); err != nil {
		if snapshots.IsDamage(err) {
			return err, nil
		}
		return nil, err
	}
	block, err := entry.DecodeBlock(m.Host)
	if err != nil {
		return nil, err
	}
	if len(block.Found) == 0 {
		err = g.rejectRestored(m.Conf.Voters)
	} else {
		err = g.adoptFounding(&block)
	}
	if err != nil {
		return nil, err
	}
	g.writes.storage.Conf = m.Conf
	g.snapshots.Begin(p, g.writes.storage.log.FirstIndex(), block.PerEntry)
	return nil, nil
}

// restoreFrom makes the state of the machine, the sessions, the sums, the log time and the cursors of the
// apply lane those of a snapshot, or leaves all of them as they are and returns an error: isDamage says that
// the snapshot cannot be read. The machine must not be called meanwhile: it is called when the group is
// opened, or by apply.Queue.StartDrained. A machine that holds a later state on its disk keeps it.
func (g *Group) restoreFrom(ctx context.Context, p *snapshots.Published, r *snapshot.Reader) error {
	fail := func(err error) error {
		return fmt.Errorf("millrace: snapshot %v of group %d cannot be restored: %w", p.ID, g.id, err)
	}
	block, err := entry.DecodeBlock(p.Manifest.Host)
	if err != nil {
		return fail(err)
	}
	m, commands := g.machine.apply.Machine.(*apply.Commands)
	if commands != block.HasSums {
		return fail(fmt.Errorf("it was taken of a machine with sessions: %t, and this one has them: %t; open the group with the machine that it was founded with", block.HasSums, commands))
	}
	var table *session.Table
	if commands {
		form, err := snapshots.ReadForm(p, r, snapshots.SessionsStream, m.MaxForm())
		if err != nil {
			return fail(fmt.Errorf("its sessions: %w (CommandOptions.Sessions)", err))
		}
		if table, err = m.ReadTable(form); err != nil {
			return fail(err)
		}
	}
	published, err := readPublications(p, r, block.Last)
	if err != nil {
		return fail(err)
	}
	restoreSection, err := g.snapshots.ReadSection(p, r)
	if err != nil {
		return fail(err)
	}
	isAble := g.machine.apply.Program().Can(block.At.Version) // or the machine does not see the state, and is halted
	if isAble && (!commands || m.Lacks(block.Last)) {
		if err := snapshots.Restore(ctx, g.snapshots.Machine, &p.Manifest, r); err != nil {
			return fail(err)
		}
		if commands {
			if err := m.CheckRestored(block.Last); err != nil {
				return fail(err)
			}
		}
	}
	if commands {
		restoreSection()
		m.Restored(table, block.Last, block.Sums, published)
	}
	g.machine.apply.Restored(raftpb.EntryID{Term: p.ID.Term, Index: p.ID.Index}, block.Skipped, block.At, block.Roster)
	g.reads.queue.Applied(p.ID.Index)
	return nil
}

// rejectRestored says why a group that was restored from an archive (package host/rescue) cannot be founded
// by the members that this one is opened with, or returns nil. What follows in the log says how far the
// founding is.
func (g *Group) rejectRestored(voters []uint64) error {
	if slices.Equal(voters, g.memberIDs()) {
		return nil
	}
	return fmt.Errorf("millrace: group %d was restored with members %v, Members of host %d is %v; open it with the members that it was restored with",
		g.id, voters, g.self, g.memberIDs())
}

// adoptFounding takes over the founding that a snapshot tells: its entries may be compacted. It is called
// when the group is opened, or in a turn.
func (g *Group) adoptFounding(b *entry.Block) error {
	bound, err := entry.DecodeFounding(b.Found)
	if err != nil {
		return err
	}
	if err := g.members.founding.RejectPromises(b.Found); err != nil {
		return err
	}
	g.members.founding.Restore(bound, entry.PromiseOf(b.Found))
	g.keepFound()
	g.adoptRoster(b.Roster)
	return nil
}

// adoptRoster takes over the roster of a snapshot, which has this member, if it is newer.
func (g *Group) adoptRoster(r *membership.Roster) {
	if now := g.roster(); now == nil || r.Version > now.Version {
		g.members.commits.SetRoster(r)
	}
}

// keepFound notes the entry found for snapshots, when founded is committed.
func (g *Group) keepFound() {
	bound := g.members.founding.Bound()
	if bound == nil {
		return
	}
	data := entry.EncodeFound(*bound)
	if promise := g.members.founding.Promise(); promise > 0 {
		data = entry.WithPromise(data, promise)
	}
	g.snapshots.found.Store(&data)
}

// finishInstalls finishes the installs that were interrupted, and removes the snapshots of groups that were
// removed. It is called before the lanes run.
func (h *Host) finishInstalls(ctx context.Context) (err error) {
	i := snapshots.Interrupted{
		FS: h.env.fs, HostDir: h.config.Dir, Self: h.config.ID, Reject: h.rejectManifest, Sync: h.storage.log.Sync,
		IsGone: func(group uint64) bool {
			_, removed := slices.BinarySearch(h.storage.log.Deleted(), group)
			return removed || h.config.Durability.Kind == wal.KindMemory
		},
		Log: func(group uint64) snapshots.Log { return h.storage.log.Group(group) },
		Mark: func(group uint64, hs raftpb.HardState, id snapshot.ID) error {
			return h.storage.log.Append([]wal.Write{{Group: group, HardState: hs, Snapshot: wal.Snapshot{Index: id.Index, Term: id.Term}}})
		},
		Info: h.env.logger.Info, Error: h.env.logger.Error,
	}
	h.bulk.uninstalled, err = i.Finish(ctx)
	return err
}
