// Package members says who counts in a group: the roster in force, and the entries that will change it. It
// also has the members that are refused, a removal of this member, the keys of hosts, and which groups may
// vote after an amnesia. Package host steps, sends and stops groups (host/members.go, host/rosters.go,
// host/refusals.go, host/rosterquery.go, host/keys.go, host/authority.go).
//
// Rosters, Removal, Keys and Authority have locks of their own, which are held for a few instructions. Noted
// belongs to the turn. The rest has no state.
//
// Reading order: rosters.go, note.go, refusal.go (whose messages count), removal.go, keys.go, authority.go,
// record.go (what hosts tell each other).
package members
