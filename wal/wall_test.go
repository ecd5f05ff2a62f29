package wal

import "testing"

// A run does not span a place where a segment is missing or damaged, however coarse the index is: a reader
// that walks along the run could not get across.
func TestRunsEndAtAWall(t *testing.T) {
	all := newIndexes(4096)
	all.indexStride = maxIndexStride
	all.wall(5)
	all.wall(9)
	for _, tc := range []struct {
		segment, last uint32
		want          bool
	}{
		{3, 4, true}, {4, 5, false}, {4, 6, false}, {5, 5, true}, {5, 8, true}, {5, 9, false}, {8, 9, false}, {9, 12, true}, {3, 12, false},
	} {
		m := run{segment: tc.segment, off: 64}
		if have := all.within(&m, tc.last, 128); have != tc.want {
			t.Errorf("with segments 5 and 9 after a gap, may a run span %d to %d: %v, want %v", tc.segment, tc.last, have, tc.want)
		}
	}
}
