package wal

import (
	"slices"
	"testing"
)

// The list of typed entries has exactly the entries of the log: a truncation removes those at and above an
// index, a compaction those through one.
func TestTypedEntriesFollowTheLog(t *testing.T) {
	for i := range uint64(12) {
		kept, rest := typed{}, typed{}
		for _, index := range []uint64{8, 2, 4, 3} {
			kept.put(index, 1)
			rest.put(index, 1)
		}
		kept.truncate(i)
		rest.compact(i)
		var below, above []uint64
		for _, index := range []uint64{2, 3, 4, 8} {
			if index < i {
				below = append(below, index)
			}
			if index > i {
				above = append(above, index)
			}
		}
		if !slices.Equal(kept.indexes, below) || !slices.Equal(rest.indexes, above) {
			t.Errorf("truncated at %d: %v, want %v; compacted through %d: %v, want %v", i, kept.indexes, below, i, rest.indexes, above)
		}
	}
}
