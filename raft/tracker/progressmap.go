package tracker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ProgressMap is the view of every member as the algebra of membership (raft/confchange) takes and gives it. The
// leader's own form is Peers, which is cheaper to walk; a change of members is rare enough to go there and back.
type ProgressMap map[uint64]*Progress

// String prints one member a line, in ascending order of id.
func (m ProgressMap) String() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%d: %s\n", id, m[id])
	}
	return b.String()
}

// Peers returns the view in the leader's form. It shares the windows of what is in flight with m.
func (m ProgressMap) Peers() Peers {
	peers := make(Peers, 0, len(m))
	for _, id := range slices.Sorted(maps.Keys(m)) {
		peers = append(peers, Peer{ID: id, Progress: *m[id]})
	}
	return peers
}

// Map returns the view in the form of the algebra. It shares the windows of what is in flight with p, nothing else.
func (p Peers) Map() ProgressMap {
	m := make(ProgressMap, len(p))
	for i := range p {
		progress := p[i].Progress
		m[p[i].ID] = &progress
	}
	return m
}

// ProgressTracker is a configuration, the view of each of its members, and the bounds that a new member's window gets:
// what a change of members starts from.
type ProgressTracker struct {
	Config
	Progress         ProgressMap
	MaxInflight      int
	MaxInflightBytes uint64
}

// MakeProgressTracker returns one without members, whose windows will hold at most maxInflight messages (> 0) and
// about maxBytes bytes (0: no byte bound).
func MakeProgressTracker(maxInflight int, maxBytes uint64) ProgressTracker {
	return ProgressTracker{MaxInflight: maxInflight, MaxInflightBytes: maxBytes}
}
