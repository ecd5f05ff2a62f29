// Package proposals has what a group knows of the commands of its clients, and of those that other hosts
// forward to it. Its center is Ring, the clients that wait for entries which a host has proposed. A client
// waits for two things: what happens to its entry, and the result of the state machine.
//
//	Put ──► Answer, AnswerOwn, Drop    the entry is committed, or another one has its place
//	    ──► Take, TakeThrough          the entry is applied
//
// The group's turn learns the first and an apply lane the second, in either order. So Ring keeps a client
// until it has both. Package host owns the one Ring of a group, and its lock.
//
// Files, in reading order: ring.go (the list, and how a client gets in and out), answer.go (what happens to
// an entry), take.go (results, the group's end). Then record.go and frames.go (what hosts forward, and what a
// leader remembers of it), batching.go (how long a batch is open), refusals.go (what is counted).
package proposals
