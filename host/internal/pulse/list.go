package pulse

import (
	"cmp"
	"slices"
)

// receiverList is what one other host is told (Sender). Its methods are called with the lock of the sender
// held.
//
// A turn that puts a group into the list, or takes it out, costs a look into a map. The order of the groups
// is made once in a beat, if the list has changed: with 10,000 groups that start or stop, keeping a sorted
// list at each change moved 240 KB a change.
type receiverList struct {
	peer    uint64
	entries map[uint64]*entry // by group; those that were taken out stay until the next version
	live    int               // entries that were not taken out
	sorted  []*entry          // by group, as of the last version
	added   []*entry          // since
	changed bool              // since version
	version uint64            // of the list that was sent last
	acked   uint64            // the version that the peer has; 0: none
	heardAt int64             // when it last answered with that version, in ticks that were not missed
	lines   []Line            // of the list; a new slice for each version
}

// entry says that a group leads here.
type entry struct {
	group Leader // nil: it was taken out
	Line
	since uint64 // the first version that has it
	// excluded means that the peer has answered that its member does not follow. Then its answers say nothing
	// of the group until it is put into the list again.
	excluded bool
}

// Line is what a pulse says of a group.
type Line struct {
	Group, Term, Commit uint64
}

// MaxEntries bounds a list, and what is read of another host's. Groups beyond it send heartbeats of
// their own.
const MaxEntries = 16 << 10

// hasSpace reports whether a group is in the list or can be put into it. Groups that were taken out count
// until the next version.
func (to *receiverList) hasSpace(group uint64) bool {
	return to.entries[group] != nil || len(to.entries) < MaxEntries
}

// add adds a group to the next version.
func (to *receiverList) add(g Leader, line Line) {
	e := to.entries[g.ID()]
	if e == nil {
		e = &entry{}
		to.entries[g.ID()] = e
		to.added = append(to.added, e)
	}
	if e.group == nil {
		to.live++
	}
	*e = entry{group: g, Line: line, since: to.version + 1}
	to.changed = true
}

// drop takes a group out of the next version.
func (to *receiverList) drop(g Leader) {
	if e := to.entries[g.ID()]; e != nil && e.group == g {
		e.group = nil
		to.live--
		to.changed = true
	}
}

// next returns what the next version says: the groups whose shards work. Those whose shards hang are in no
// version before the one after it, so that no answer counts for them.
func (to *receiverList) next(hangs func(Leader) bool) []Line {
	to.sort()
	lines := make([]Line, 0, len(to.sorted))
	for _, e := range to.sorted {
		if hangs(e.group) {
			e.since = to.version + 2
			continue
		}
		lines = append(lines, e.Line)
	}
	return lines
}

// sort merges what was added since the last version into the order, and forgets what was taken out.
func (to *receiverList) sort() {
	if to.live == len(to.sorted) && len(to.added) == 0 {
		return
	}
	byGroup := func(a, b *entry) int { return cmp.Compare(a.Line.Group, b.Line.Group) }
	slices.SortFunc(to.added, byGroup)
	merged := make([]*entry, 0, to.live)
	for old, fresh := to.sorted, to.added; len(old)+len(fresh) > 0; {
		from := &old
		if len(old) == 0 || len(fresh) > 0 && byGroup(fresh[0], old[0]) < 0 {
			from = &fresh
		}
		e := (*from)[0]
		*from = (*from)[1:]
		if e.group == nil {
			delete(to.entries, e.Group)
			continue
		}
		merged = append(merged, e)
	}
	to.sorted, to.added = merged, nil
}
