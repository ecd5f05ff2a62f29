package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/vfs"
)

// A machine that is halted has a state that nothing may rely on. If this member has a snapshot, the machine
// is made again from it in this life: what was applied behind the snapshot is applied again, the suspect
// commands one at a time, and those that the group skips not at all. A machine without a snapshot cannot be
// emptied, and one that keeps its state on a disk may have kept a part of a command: both begin again at the
// next start.
//
// It is done when it leads further: to learn which command of a batch it was, and to pass one by. It begins
// when a turn has answered the callers of the batch: commands that are applied again have none.
//
// Invariant: the machine works again only with everything that it had before it halted (rebuildTo), also if
// the first attempt has failed in the middle.

// rebuildPurpose is for which commands a machine is made again, and the entry that skips the only one; 0:
// to learn which of them it is.
type rebuildPurpose struct{ first, last, by uint64 }

// rebuild makes a halted machine again, if that leads further. It is called by a lane, and reports whether
// the machine works.
func (q *applyQueue) rebuild() (works bool) {
	h := q.halted()
	if h == nil || h.Final {
		return false
	}
	purpose := rebuildPurpose{first: h.First, last: h.Last}
	if h.First == h.Last {
		if purpose.by = q.group.machine.skips.Of(h.First); purpose.by == 0 {
			return false
		}
		if h.Skipped == 0 {
			next := *h
			next.Skipped = purpose.by
			q.halting.restate(&next)
		}
	}
	if q.rebuilt == purpose {
		return false // it has not helped
	}
	q.rebuilt = purpose
	p := q.group.snapshots.Latest()
	if !q.canRebuild(p) {
		return false
	}
	if err := q.rebuildFrom(p); err != nil {
		if again := (*outcome.HaltedError)(nil); errors.As(err, &again) {
			q.halt(again)
			return false
		}
		if vfs.IsShort(err) {
			q.rebuilt = rebuildPurpose{}
			q.group.host.storage.shortages.Later(func() { q.group.host.appliers.Enqueue(&q.seat) }, err)
			return false
		}
		q.group.host.env.logger.Warn("the halted state machine was not made again from a snapshot; start this host again", "group", q.group.id, "host", q.group.self, "snapshot", p.ID.String(), "err", err)
		return false
	}
	q.resume()
	return true
}

// canRebuild reports whether the machine can begin from a snapshot in this life.
func (q *applyQueue) canRebuild(p *snapshots.Published) bool {
	m, ok := q.machine.(*commandGroup)
	return p != nil && ok && m.options.Applied == nil && q.hook == nil && !q.group.snapshots.Installing.Load()
}

// rebuildFrom restores a snapshot and applies what was applied behind it.
func (q *applyQueue) rebuildFrom(p *snapshots.Published) (err error) {
	g := q.group
	q.calling.Lock()
	defer q.calling.Unlock()
	q.rebuildTo = max(q.rebuildTo, q.through.Load())
	to := q.rebuildTo
	store, err := g.snapshots.Store()
	if err != nil {
		return err
	}
	r, err := store.Open(p.ID)
	if err != nil {
		return err
	}
	q.rebuilding = true
	defer func() { q.rebuilding = false }()
	err = g.restoreFrom(context.Background(), p, r)
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	for at := q.through.Load(); at < to; at = q.through.Load() {
		entries, err := q.read(at+1, to+1, workqueue.MaxRoundBytes)
		if err != nil {
			return fmt.Errorf("millrace: read entries %d to %d of group %d, which must be applied again: %w", at+1, to, g.id, err)
		}
		if err := q.apply(entries); err != nil {
			return err
		}
	}
	return nil
}
