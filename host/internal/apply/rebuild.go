package apply

import (
	"errors"
	"fmt"

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
type rebuildPurpose struct {
	at string
	by uint64
}

// rebuild makes a halted machine again, if that leads further. It is called by a lane, and reports whether
// the machine works.
func (q *Queue) rebuild() (works bool) {
	h := q.Halted()
	if h == nil || h.Final || h.WrongVersion {
		return false
	}
	if h.Held > 0 {
		return q.endHold(h)
	}
	purpose := rebuildPurpose{at: h.At()}
	if _, known := h.Command(); known || h.Undivided {
		if purpose.by = q.Skips.within(h, q.passed); purpose.by == 0 {
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
	restore, name := q.member.Snapshot()
	if restore == nil || !q.canRebuild() {
		return false
	}
	if had := q.Position(); had.Index > q.rebuildTo && !q.holds(had) {
		q.rebuilt = rebuildPurpose{} // a volatile machine has had what the log has not yet
		q.unanswered.Store(had.Index)
		q.member.Want()
		return false
	}
	if err := q.rebuildFrom(restore); err != nil {
		if again := (*outcome.HaltedError)(nil); errors.As(err, &again) {
			q.halt(again)
			return false
		}
		if vfs.IsShort(err) {
			q.rebuilt = rebuildPurpose{}
			q.retry(err)
			return false
		}
		q.Logger.Warn("the halted state machine was not made again from a snapshot; start this host again", "group", q.Group, "host", q.Self, "snapshot", name, "err", err)
		return false
	}
	q.resume()
	return true
}

// canRebuild reports whether the machine can begin from a snapshot in this life.
func (q *Queue) canRebuild() bool {
	_, ok := q.Machine.(*Commands)
	return ok && !q.isOnDisk() && q.Hook == nil
}

// rebuildFrom restores a snapshot and applies what was applied behind it.
func (q *Queue) rebuildFrom(restore func() error) (err error) {
	q.calling.Lock()
	defer q.calling.Unlock()
	q.rebuildTo = max(q.rebuildTo, q.through.Load())
	to := q.rebuildTo
	q.rebuilding = true
	defer func() { q.rebuilding = false }()
	defer q.giveBack() // if the machine ends its goroutine
	if err := restore(); err != nil {
		return err
	}
	for at := q.through.Load(); at < to; at = q.through.Load() {
		entries, err := q.read(at+1, to+1, workqueue.MaxRoundBytes)
		if err != nil {
			return fmt.Errorf("millrace: read entries %d to %d of group %d, which must be applied again: %w", at+1, to, q.Group, err)
		}
		err = q.apply(entries)
		if q.giveBack(); err != nil {
			return err
		}
	}
	return nil
}
