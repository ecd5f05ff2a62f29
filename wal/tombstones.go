package wal

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/wal/record"
)

// A deleted group leaves a tombstone, because the id of a group is never reused: a late message of the
// group must not found it again, with a member that has forgotten its votes. The tombstone is the group's
// newest deletion record. It is needed for as long as the log exists, so the cleaner writes it again when
// its segment is to go, like a hard state.
//
// A tombstone takes 48 bytes on disk and about 48 in memory. maxTombstones bounds both.
//
// Logs of version 3 that were written before deletions were final may hold records of a group behind its
// deletion. A recovery takes the tombstone back then (table.revive), so it reads them as they were meant.
//
// Rejected: a file of deleted ids beside the log (a second thing to make durable in the right order), and a
// record that names many ids (a recovery would have to hold the newest of them apart from the others).

// maxTombstones is how many groups a log can delete: 48 MiB of disk, which is less than a segment.
const maxTombstones = 1 << 20

// tombstones are the deleted groups of a log.
type tombstones struct {
	at map[uint64]uint64   // from a group to the segment of its newest deletion record
	in map[uint64][]uint64 // from a segment to the groups whose newest deletion record it has, in the order of these
}

func newTombstones() tombstones {
	return tombstones{at: map[uint64]uint64{}, in: map[uint64][]uint64{}}
}

// put notes that a segment has the newest deletion record of a group. It returns the segment that had it
// before, or 0.
func (d *tombstones) put(id, segment uint64) (before uint64) {
	before = d.remove(id)
	d.at[id] = segment
	d.in[segment] = append(d.in[segment], id)
	return before
}

// remove forgets that a group was deleted. It returns the segment of its newest deletion record, or 0.
func (d *tombstones) remove(id uint64) (segment uint64) {
	segment, deleted := d.at[id]
	if !deleted {
		return 0
	}
	delete(d.at, id)
	ids := d.in[segment]
	if ids[0] == id { // the cleaner takes them in order
		ids = ids[1:]
	} else {
		k := slices.Index(ids, id)
		ids = slices.Delete(ids, k, k+1)
	}
	if d.in[segment] = ids; len(ids) == 0 {
		delete(d.in, segment)
	}
	return segment
}

// bury takes a group out of the table for good: it was deleted, and a segment has the record of that. The
// group was forgotten before. The caller holds Log.mu, or no reader has the log yet.
func (t *table) bury(id, segment uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.groups[id]; g != nil {
		g.deleted = true
		delete(t.groups, id)
		last := t.list[len(t.list)-1]
		t.list[g.slot], last.slot = last, g.slot
		t.list[len(t.list)-1] = nil
		t.list = t.list[:len(t.list)-1]
	}
	t.indexes.state(t.dead.put(id, segment), segment, record.Bytes(0))
	t.stats.deleted.Store(uint64(len(t.dead.at)))
}

// revive begins a deleted group again, which only older logs do. No reader has the log yet.
func (t *table) revive(id uint64) *Group {
	t.mu.Lock()
	t.indexes.state(t.dead.remove(id), 0, record.Bytes(0))
	t.stats.deleted.Store(uint64(len(t.dead.at)))
	t.mu.Unlock()
	return t.group(id)
}

// buriedIn returns up to n groups whose newest deletion record is in a segment.
func (t *table) buriedIn(segment uint64, n int) []uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	ids := t.dead.in[segment]
	return slices.Clone(ids[:min(n, len(ids))])
}

// deletedIDs returns the deleted groups in order.
func (t *table) deletedIDs() []uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Sorted(maps.Keys(t.dead.at))
}

// sweepTombstones writes the next tombstones of the swept segment again. It reports whether there were any.
func (l *Log) sweepTombstones() (found bool, err error) {
	ids := l.table.buriedIn(l.cleaner.sweep.segment, sweepGroups)
	if len(ids) == 0 {
		return false, nil
	}
	sizes := func() []int64 { return slices.Repeat([]int64{record.Bytes(0)}, len(ids)) }
	at := make([]uint64, 0, len(ids))
	return true, l.appendRecords(sizes, func() error {
		for _, id := range ids {
			segment, err := l.putDeletion(id, oneRecord())
			if err != nil {
				return err
			}
			at = append(at, segment)
		}
		return nil
	}, func() {
		for i, id := range ids {
			l.table.bury(id, at[i])
		}
	})
}

// putDeletion writes a deletion, and returns the segment of its record.
func (l *Log) putDeletion(group uint64, b *edges) (segment uint64, err error) {
	s, err := l.put(record.Header{Kind: record.KindDeletion, Edge: b.next(), Group: group}, nil)
	return s.segment, err
}

// Deleted returns the ids of the groups that were deleted, in order. Their ids are never reused: Append
// refuses a write to one of them with ErrDeleted.
func (l *Log) Deleted() []uint64 { return l.table.deletedIDs() }

// Deleted reports whether the group was deleted, durably or not. It is then empty for good.
func (g *Group) Deleted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.deleted
}
