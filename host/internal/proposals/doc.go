// Package proposals has what a group knows of the commands of its clients, and of those that other hosts
// forward to it. Its center is Ring, the clients that wait for entries which a host has proposed. A client
// waits for two things: what happens to its entry, and the result of the state machine.
//
//	Reserve ──► Answer, AnswerOwn, Drop    the entry is committed, or another one has its place
//	        ──► Pop, PopThrough            the entry is applied
//
// The group's turn learns the first and an apply lane the second, in either order. So Ring keeps a client
// until it has both. Queue has the one Ring of a group, and the lock; its methods say who calls them. What it
// asks of the group is in Settings, and what it asks of a turn is Turn.
//
// Files, in reading order: ring.go (the list, and how a client gets in and out), answer.go (what happens to
// an entry), take.go (results, the group's end). Then waiter.go, proposal.go and call.go (who
// waits), settings.go and queue.go (from a turn to the answer), results.go, end.go. Then retries.go and
// route.go (calls that the log of this host does not hold), record.go and frames.go (what hosts forward,
// and what a leader remembers of it). At last space.go (who waits for space), gather.go (when a turn waits
// for more commands) and batching.go (how long a batch is open). Then backlog.go, how far the machine of a
// leader is behind. Besides, refusals.go (what is counted) and pack.go (which commands share an entry).
package proposals
