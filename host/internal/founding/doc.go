// Package founding says how a group begins: which directories its members are bound to, and from when on it
// takes commands. Group reads and notes the entries of the founding, proposes them while this member leads,
// and campaigns first. Package host is its Wiring (host/founding.go): it steps the core, asks other hosts,
// and puts rosters in force.
//
// A turn owns a Group. It has no lock: what others read is published atomically.
//
// Reading order: group.go, duty.go (what a turn does), promise.go.
package founding
