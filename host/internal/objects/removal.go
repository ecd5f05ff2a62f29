package objects

import (
	"slices"

	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/object"
)

// Files go when no member counts on them any more: behind the log, never before it.

// drop removes the files of a set that is not there any more, unless they stay for the log: a fetch may end
// after the set.
func (k *Keeper) drop(id object.ID) {
	if k.Told != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	_, is := k.table.Get(id)
	if is || k.orphans[id] || slices.ContainsFunc(k.ended, func(g object.Gone) bool { return g.ID == id }) {
		return
	}
	k.condemn = append(k.condemn, id)
	k.remove()
}

// setGoes says when the next files may be removed. The caller holds mu.
func (k *Keeper) setGoes() {
	k.goes.Store(0)
	if len(k.ended) > 0 {
		k.goes.Store(k.ended[0].Index + 1)
		k.wiring.Want()
	}
}

// judge decides about the files that were here at the start and are in no table, when everything
// that the log had then is applied. The caller holds mu.
func (k *Keeper) judge() {
	switch {
	case len(k.orphans) == 0:
		return
	case k.wiring.WithoutAuthority(): // its log may lack what it had acknowledged
		k.judgeLater = true
		return
	case k.judgeLater:
		k.judgeLater, k.judgeAt = false, k.wiring.LastIndex()
		return
	case k.wiring.Applied() < min(k.judgeAt, k.wiring.LastIndex()):
		return // (what is not committed may have left the log since the start)
	}
	for id := range k.orphans {
		if _, known := k.table.Get(id); !known && !slices.ContainsFunc(k.ended, func(g object.Gone) bool { return g.ID == id }) {
			k.condemn = append(k.condemn, id)
		}
	}
	slices.SortFunc(k.condemn, func(a, b object.ID) int { return slices.Compare(a[:], b[:]) })
	k.orphans = nil
	k.remove()
}

// Regained is called when the group has authority again: its log has what it had lost. It may be that nothing
// more will be applied for long. k may be nil.
func (k *Keeper) Regained() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.judge() // says when,
	k.judge() // and that may be now
}

// removeEnded removes the files of the sets that went before the log of this host begins. It is part of a
// turn.
func (k *Keeper) removeEnded() {
	at, first := k.goes.Load(), k.wiring.FirstIndex()
	if at == 0 || at > first {
		return
	}
	k.mu.Lock()
	n := 0
	for n < len(k.ended) && k.ended[n].Index < first {
		k.condemn = append(k.condemn, k.ended[n].ID)
		n++
	}
	k.ended = slices.Delete(k.ended, 0, n)
	k.setGoes()
	k.mu.Unlock()
	k.remove()
}

// removePiece removes the files of one set, on a snapshot lane. What cannot be removed now, as it is read or
// sent, is tried again at a later turn.
func (k *Keeper) removePiece() (more bool) {
	k.mu.Lock()
	if len(k.condemn) == 0 {
		k.mu.Unlock()
		return false
	}
	id := k.condemn[0]
	k.condemn, k.removed = slices.Delete(k.condemn, 0, 1), id
	k.mu.Unlock()
	err := k.files.Remove(id)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.removed = object.ID{}
	if _, is := k.table.Get(id); err != nil && !is { // otherwise it was opened meanwhile, and what is left is needed
		k.Logger.Debug("an object is not removed yet", "group", k.Group, "host", k.Self, "object", id.String(), "err", err)
		k.inUse = append(k.inUse, id)
		k.wake()
	}
	return len(k.condemn) > 0
}

// removeAgain tries once in a heartbeat interval to remove what was in use. It returns the tick at which to
// try next. It is part of a turn.
func (k *Keeper) removeAgain() (due int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h, now := &k.holders, k.wiring.Now()
	switch {
	case len(k.inUse) == 0:
		return turn.Never
	case now >= h.removeAt:
		k.condemn, k.inUse = append(k.condemn, k.inUse...), nil
		h.removeAt = now + k.Heartbeat
		k.remove()
	}
	return h.removeAt
}
