package host

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/outcome"
)

// init makes an empty table, with the ids of the groups that were removed.
func (t *groupTable) init(removed []uint64) {
	t.open, t.removed = map[uint64]*Group{}, map[uint64]bool{}
	for _, id := range removed {
		t.removed[id] = true
	}
}

// get returns an open group, or nil: also for one that is removed without being open (toRemove).
func (t *groupTable) get(id uint64) *Group {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if g := t.open[id]; g != nil && g.writes.storage != nil {
		return g
	}
	return nil
}

// all returns the open groups, by id.
func (t *groupTable) all() []*Group {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]*Group, 0, len(t.open))
	for _, g := range t.open {
		if g != nil {
			all = append(all, g)
		}
	}
	slices.SortFunc(all, func(a, b *Group) int { return cmp.Compare(a.id, b.id) })
	return all
}

// reserve keeps an id for a group that is being opened.
func (t *groupTable) reserve(id uint64, most int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, taken := t.open[id]
	switch {
	case t.closed:
		return outcome.ErrStopped
	case taken && g != nil && g.isLeaving():
		return fmt.Errorf("millrace: group %d is being closed and is still waiting for %s; open it again when Close has returned nil", id, g.waitsFor())
	case taken:
		return fmt.Errorf("millrace: group %d is open on this host already", id)
	case t.removed[id]:
		return fmt.Errorf("%w: %d; give a new group a new id", outcome.ErrRemoved, id)
	case len(t.open) >= most:
		return fmt.Errorf("millrace: %d groups are open on this host, the most that Config.MaxGroups allows", most)
	}
	t.open[id] = nil
	return nil
}

func (t *groupTable) set(id uint64, g *Group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[id] = g
}

func (t *groupTable) drop(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, id)
}

// bury notes that a group was deleted from the log.
func (t *groupTable) bury(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removed[id] = true
}

// close makes reserve refuse, and returns the groups.
func (t *groupTable) close() []*Group {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	return t.all()
}

// Group returns an open group, or nil.
func (h *Host) Group(id uint64) *Group { return h.groups.get(id) }

// Groups returns the ids of the open groups, in ascending order.
func (h *Host) Groups() []uint64 {
	all := h.groups.all()
	ids := make([]uint64, len(all))
	for i, g := range all {
		ids[i] = g.id
	}
	return ids
}
