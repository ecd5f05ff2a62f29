// Package host replicates commands to a state machine on several hosts with Raft. It acknowledges no command
// before a quorum holds it durably.
//
// The program brings a state machine:
//
//	type counter struct{ n int }
//
//	func (c *counter) Apply(entries []host.Entry) error { c.n += len(entries); return nil }
//
// A host opens its directory and its address, and takes commands:
//
//	h, err := host.Open(host.Config{
//		ID:    1,
//		Dir:   "data/1",
//		Peers: map[uint64]string{1: "10.0.0.1:7001", 2: "10.0.0.2:7001", 3: "10.0.0.3:7001"},
//	}, &counter{})
//	receipt, err := h.Group().Propose(ctx, []byte("set x 1"))
//
// # Outcomes
//
// Every proposal ends in one of three ways: with a receipt, so the command is committed; with an error that
// says that the command was not committed and never will be; or with ErrIndeterminate, so it may have been
// committed or may be later. MayHaveCommitted tells the last two apart. Only the leader takes commands.
//
// # Restarts
//
// A host that starts again on its directory has its log, and passes all committed commands to the state
// machine again, from the first. The log is the only thing that is durable: a state machine that keeps a
// state of its own on disk must recognize the commands that it has already applied, by Entry.Index.
//
// # Admission
//
// A host speaks only with hosts of its own founding list, and only as long as each of them comes with the
// directory that its id came with before: a host that has lost its directory has forgotten its votes.
//
// # Workers
//
// A group has three workers (env.Worker), each of which does one bounded piece of work per call: its turn and
// two storage workers. Only the turn touches the core, only the append worker writes the log, and only the
// apply worker calls the state machine. (With the pipelines basic and parallel the turn does all three.)
// Apart from the workers, the clock's ticks and timers, and Close, nothing in this package runs on a
// goroutine of its own.
//
// # Events
//
// Whatever a host logs for people it also reports as typed events (WithEvents), for metrics, a console or a
// simulation.
package host

// The files are named after the steps of a proposal, in this order: propose.go takes the command and
// registers its client; inbox.go holds the command until the group's turn; group.go steps it into the core
// and passes the Ready to the pipeline; send.go takes messages to the transport, append.go takes writes to
// the log, apply.go takes committed entries to the state machine; acknowledge.go answers the client.
// receive.go takes in the messages of peers. identity.go has the founding list, admission.go decides which
// peers are heard, and directory.go decides which directory belongs to this host and when it may take a new
// one.
