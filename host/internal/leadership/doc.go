// Package leadership is what members of a group agree on about the leader. It has what hosts say of their
// load, and how often the leadership may be handed over for the sake of placement.
//
// Package host asks and answers (host/leadership.go), chooses (host/placing.go) and hands over
// (host/placed.go). Moves has a lock, which is held for a few instructions. The records have no state.
//
// Reading order: moves.go, record.go.
package leadership
