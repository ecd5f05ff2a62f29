package tracker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ProgressMap is a leader's view of every member in the form that raft/confchange reads and returns. The
// leader itself uses Members, which is cheaper to walk; membership changes are rare enough to convert in both
// directions.
type ProgressMap map[uint64]*Progress

// String writes one line for each member, in ascending order of id.
func (m ProgressMap) String() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%d: %s\n", id, m[id])
	}
	return b.String()
}

// Members returns the view in the leader's form. It shares the windows of in-flight appends with m.
func (m ProgressMap) Members() Members {
	members := make(Members, 0, len(m))
	for _, id := range slices.Sorted(maps.Keys(m)) {
		members = append(members, Member{ID: id, Progress: *m[id]})
	}
	return members
}

// Map returns the view in the form of raft/confchange. It shares the windows of in-flight appends with ms,
// and nothing else.
func (ms Members) Map() ProgressMap {
	m := make(ProgressMap, len(ms))
	for i := range ms {
		progress := ms[i].Progress
		m[ms[i].ID] = &progress
	}
	return m
}

// ProgressTracker is where a membership change starts: a configuration, the view of each of its members, and
// the limits of a new member's window.
type ProgressTracker struct {
	Config
	Progress         ProgressMap
	MaxInflight      int
	MaxInflightBytes uint64
}

// MakeProgressTracker returns a tracker without members, whose windows hold at most maxInflight messages (>
// 0) and about maxBytes bytes (0: no limit in bytes).
func MakeProgressTracker(maxInflight int, maxBytes uint64) ProgressTracker {
	return ProgressTracker{MaxInflight: maxInflight, MaxInflightBytes: maxBytes}
}
