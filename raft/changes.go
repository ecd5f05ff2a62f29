package raft

import (
	"fmt"
	"slices"
	"sort"

	"github.com/millrace/millrace/raft/raftpb"
)

// changes is the list of the membership entries in the log that are not applied, by their indexes. A node
// with a committed change that it has not applied must not campaign (membership.go), and an election must not
// wait for a read of the log.
//
// Invariant: indexes is ascending, and holds every membership entry of the log that is not both applied and
// durable. The others are forgotten when entries are acknowledged as applied. So the list takes 8 bytes for
// each membership entry that the state machine has still to apply.
type changes struct {
	indexes []uint64
}

// add notes the membership entries among entries, which continue the log.
func (c *changes) add(entries []raftpb.Entry) {
	for i := range entries {
		if entries[i].Type.ChangesMembers() {
			c.indexes = append(c.indexes, entries[i].Index)
		}
	}
}

// truncate forgets index and everything after it.
func (c *changes) truncate(index uint64) { c.indexes = c.indexes[:c.position(index)] }

// forget forgets everything through index.
func (c *changes) forget(index uint64) {
	if n := c.position(index + 1); n > 0 {
		c.indexes = slices.Delete(c.indexes, 0, n)
	}
}

// next returns the first change at or after index, or noLimit if there is none.
func (c *changes) next(index uint64) uint64 {
	if at := c.position(index); at < len(c.indexes) {
		return c.indexes[at]
	}
	return noLimit
}

// position returns the position of the first change at or after index.
func (c *changes) position(index uint64) int {
	if n := len(c.indexes); n == 0 || c.indexes[n-1] < index {
		return n
	}
	return sort.Search(len(c.indexes), func(i int) bool { return c.indexes[i] >= index })
}

// changesPageBytes is how much of the log is read at a time in search of membership entries, when a node
// starts.
const changesPageBytes = 1 << 20

// findChanges reads the log after index once, when a node starts. Later every entry passes through memory.
func (l *raftLog) findChanges(index uint64) error {
	if s, knows := l.storage.(ChangesStorage); knows {
		lo, hi := max(index+1, l.first), l.unstable.offset
		indexes, err := s.Changes(lo, hi)
		if err == nil && (!slices.IsSorted(indexes) || len(indexes) > 0 && (indexes[0] < lo || indexes[len(indexes)-1] >= hi)) {
			err = fmt.Errorf("they must ascend and be in the range, have %v", indexes)
		}
		if err != nil {
			return fmt.Errorf("raft: ask storage for the membership entries in [%d,%d): %w", lo, hi, err)
		}
		l.changes.indexes = indexes
		return nil
	}
	for lo, end := max(index+1, l.first), l.unstable.offset; lo < end; {
		page, err := l.storage.Entries(lo, end, changesPageBytes)
		if page, err = checkRead(page, err, lo, end); err != nil {
			if pending(err) {
				return fmt.Errorf("raft: storage answered ErrEntriesPending to a read of entries [%d,%d) while the node starts; NewRawNode needs them at once: %w", lo, end, err)
			}
			return fmt.Errorf("raft: read entries [%d,%d), which are not applied, from storage: %w", lo, end, err)
		}
		l.changes.add(page)
		lo += uint64(len(page))
	}
	return nil
}

// ChangesStorage is a Storage that knows where the membership entries of its log are, so that NewRawNode need
// not read the log for them.
type ChangesStorage interface {
	Storage
	// Changes returns the indexes of the membership entries in [lo, hi), in ascending order.
	Changes(lo, hi uint64) ([]uint64, error)
}
