// Package proposals holds the clients that wait for entries which a host has proposed. A client waits for two
// things: what happens to its entry, and the result of the state machine.
//
//	Put ──► Answer, AnswerOwn, Drop    the entry is committed, or another one has its place
//	    ──► Take, TakeThrough          the entry is applied
//
// The group's turn learns the first and an apply lane the second, in either order. So Ring keeps a client
// until it has both. Package host owns the one Ring of a group, and its lock.
//
// Files, in reading order: ring.go (the list, and how a client gets in and out), answer.go (what happens to
// an entry), take.go (results, the group's end).
package proposals
