// Package host replicates commands to a state machine on several hosts with Raft. It acknowledges no command
// before a quorum holds it durably.
//
// The program brings a state machine:
//
//	type counter struct{ n int }
//
//	func (c *counter) Apply(entries []host.Entry) error { c.n += len(entries); return nil }
//
// A host opens its directory and its address, and on it as many groups as the program wants, each a
// replicated log with a state machine:
//
//	h, err := host.Open(ctx, host.Config{
//		ID:    1,
//		Dir:   "data/1",
//		Members: map[uint64]string{1: "10.0.0.1:7001", 2: "10.0.0.2:7001", 3: "10.0.0.3:7001"},
//	})
//	g, err := h.OpenGroup(ctx, host.GroupConfig{ID: 1}, &counter{})
//	receipt, err := g.Propose(ctx, []byte("set x 1"))
//
// A new group takes commands when it is founded: every member must have been up once (Group.Founding).
//
// # Outcomes
//
// Every proposal ends in one of three ways:
//   - with a receipt: the command is committed;
//   - with an error that says that the command was not committed and never will be;
//   - with ErrIndeterminate: it may have been committed, or may be later.
//
// MayHaveCommitted tells the last two apart. Only the leader takes commands.
//
// # Restarts
//
// A host that starts again on its directory has its log, and passes all committed commands to the state
// machine again, from the first. The log is the only thing that is durable. So a state machine that keeps a
// state of its own on disk must recognize, by Entry.Index, the commands that it has already applied.
//
// # Admission
//
// A host speaks only with hosts of its own founding list. Each of them must come with the directory that
// its id came with before: a host that has lost its directory has forgotten its votes.
//
// # Lanes
//
// The groups of a host share its workers (env.Worker). Each worker does one bounded piece of work per call.
// Shards run the turns of the groups, one append lane writes the log, apply lanes call the state machines,
// and readers read old entries. Only a turn touches the core of its group. (With the pipelines basic and
// parallel a turn also saves and applies.) Apart from the workers, the clock's ticks and timers, and Close,
// nothing in this package runs on a goroutine of its own.
//
// A failure of a group stops that group only. A failure of the log stops all groups, because they share it.
//
// # Events
//
// Whatever a host logs for people it also reports as typed events (package event; Host.Events, WithEvents),
// for metrics, a console or a simulation. A listener that hangs delays nothing, and is told what it has
// missed.
package host

// The files are named after the steps of a proposal. In the order of those steps:
//   - propose.go takes the command and registers its client;
//   - inbox.go holds the command until the group's turn;
//   - shards.go is what a shard (internal/sched) calls for a turn;
//   - turn.go takes what has come, offer.go steps the command into the core, and carryout.go takes the Ready;
//   - internal/outbox takes messages to the transport;
//   - writes.go and internal/appendlane take writes to the log;
//   - apply.go and internal/apply take committed entries to the state machine;
//   - host/internal/proposals answers the client.
//
// Types are at the bottom: host.go declares Host and Group, parts.go what they consist of. Above them are
// open.go, which makes a host, groups.go, which makes a group, and beat.go, which is what a host does by
// time. Calls go down.
//
// Beside that way: duties.go is what a turn does besides. wiring.go says which part hears of what. receive.go
// takes in the messages of peers. internal/identity has the founding list, which directory belongs to this
// host, and which peers are heard. admit.go has who else decides about that. founding.go decides when a group
// takes commands.
