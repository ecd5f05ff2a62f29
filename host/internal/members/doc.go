// Package members says who counts in a group: the roster in force, and the entries that will change it. It
// also has the members that are refused, a removal of this member, and the keys of hosts. Package host
// steps, sends and stops groups (host/members.go, host/rosters.go, host/refusals.go, host/rosterquery.go,
// host/keys.go).
//
// Rosters, Removal and Keys have locks of their own, which are held for a few instructions. Noted belongs to
// the turn. The rest has no state.
//
// Reading order: rosters.go, note.go, refusal.go (whose messages count), removal.go, keys.go, record.go
// (what hosts tell each other).
package members
