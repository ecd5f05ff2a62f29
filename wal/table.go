package wal

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/wal/record"
)

// table is what the readers of a log share: its groups and segments, with the index, the cache and the open
// files that lead to their entries. A scan fills one (scan.go). Open hands it over to the log, an inspection
// reads from it.
type table struct {
	dir        directory
	indexBytes int64     // Options.IndexBytes
	maxDead    int       // maxTombstones
	stats      *counters // the log's
	cold       coldFiles // of cold segments

	closed atomic.Bool // set once, by Log.Close

	// Owned by the appender, under Log.mu. No lock is needed before there is a log.
	indexes indexes
	cache   ring

	// mu guards the maps below, for moments only.
	mu       lock.RWMutex
	groups   map[uint64]*Group
	list     []*Group // the same groups, in the order in which they came except for deletions
	dead     tombstones
	segments map[uint64]*segment
}

// newTable returns the table of an empty log. Options have their defaults.
func newTable(opts Options) *table {
	return &table{
		dir: opts.directory(), indexBytes: opts.IndexBytes, stats: &counters{}, cold: coldFiles{fs: opts.FS},
		indexes: newIndexes(opts.SegmentBytes), cache: newRing(opts.CacheBytes),
		groups: map[uint64]*Group{}, segments: map[uint64]*segment{}, dead: newTombstones(), maxDead: maxTombstones,
	}
}

// group returns the reading end of a group's log, which is empty if the group was never written to, or was
// deleted.
func (t *table) group(id uint64) *Group {
	if g := t.known(id); g != nil {
		return g
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead.at[id] != 0 {
		return &Group{table: t, id: id, deleted: true, index: index{grow: -1}}
	}
	if t.groups[id] == nil {
		t.groups[id] = &Group{table: t, id: id, slot: len(t.list), index: index{grow: -1}}
		t.list = append(t.list, t.groups[id])
	}
	return t.groups[id]
}

// known returns a group that was asked for or written to before, or nil.
func (t *table) known(id uint64) *Group {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.groups[id]
}

// someGroups returns all known groups, in an order that does not depend on chance.
func (t *table) someGroups() []*Group {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Clone(t.list)
}

// ids returns the ids of all known groups, in no particular order.
func (t *table) ids() []uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	ids := make([]uint64, 0, len(t.groups))
	for id := range maps.Keys(t.groups) {
		ids = append(ids, id)
	}
	return ids
}

// allGroups returns all known groups, in order of their ids.
func (t *table) allGroups() []*Group {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.SortedFunc(maps.Values(t.groups), func(a, b *Group) int { return cmp.Compare(a.id, b.id) })
}

// segment returns a segment that holds records, or nil.
func (t *table) segment(id uint64) *segment {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.segments[id]
}

func (t *table) addSegment(s *segment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.segments[s.id] = s
	t.stats.segments.Store(uint64(len(t.segments)))
}

// dropSegment takes a segment out of the table. Its file stays as it is.
func (t *table) dropSegment(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.segments, id)
	t.stats.segments.Store(uint64(len(t.segments)))
}

func (t *table) segmentPath(id uint64) string {
	return filepath.Join(t.dir.path, record.SegmentName(id))
}

// closeSegments closes the files of all segments, once their readers are done.
func (t *table) closeSegments() (errs []error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, s := range t.segments {
		errs = append(errs, s.close())
	}
	return errs
}
