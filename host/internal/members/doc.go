// Package members says who counts in a group: the roster in force, and the entries that will change it. It
// also has the members that are refused, a removal of this member, the keys of hosts, and which groups may
// vote after an amnesia. Package host steps, sends and stops groups (host/memberview.go, host/rosters.go,
// host/keys.go, host/authority.go).
//
// Group, Rosters, Removal, Keys and Authority have locks of their own, which are held for a few instructions.
// Noted belongs to the turn. The rest has no state.
//
// Reading order: group.go (the members of one group), rosters.go, note.go, commit.go, refusal.go (whose
// messages count). Then removal.go, query.go (later rosters), keys.go, authority.go, record.go (what hosts
// tell each other). commit.go leads from the log to the roster in force.
package members
