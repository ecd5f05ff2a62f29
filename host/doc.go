// Package host replicates commands to a state machine on several hosts with Raft. It acknowledges no command
// before a quorum holds it durably.
//
// A host opens its directory and its address, and takes commands:
//
//	h, err := host.Open(host.Config{
//		ID:    1,
//		Dir:   "data/1",
//		Peers: map[uint64]string{1: "10.0.0.1:7001", 2: "10.0.0.2:7001", 3: "10.0.0.3:7001"},
//	}, machine)
//	receipt, err := h.Group().Propose(ctx, []byte("set x 1"))
//
// # The way of one proposal
//
// The files are named after the steps, in this order: propose.go takes the command and registers its client;
// inbox.go holds the command until the group's turn; group.go steps it into the core and passes the Ready to
// the pipeline; send.go takes messages to the transport, append.go takes writes to the log, apply.go takes
// committed entries to the state machine; acknowledge.go answers the client. receive.go takes in the messages
// of peers.
//
// # Admission
//
// A host speaks only with hosts of its own founding list (identity.go), and only as long as each of them
// comes with the directory that its id came with before (admission.go): a host that has lost its directory
// has forgotten its votes. directory.go decides which directory belongs to this host, and when it may take a
// new one.
//
// # Workers
//
// A host has three workers (env.Worker), each of which does one bounded piece of work per call. Only the
// group's turn touches the core, only the append worker writes the log, and only the apply worker calls the
// state machine. (With the pipelines basic and parallel the turn does all three.) Apart from the workers, the
// clock's ticks and timers, and Close, nothing in this package runs on a goroutine of its own.
//
// # Events
//
// Whatever a host logs for people it also reports as typed events (events.go, WithEvents), for metrics, a
// console or a simulation.
package host
