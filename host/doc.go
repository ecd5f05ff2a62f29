// Package host replicates commands to a state machine on several hosts, by Raft, and acknowledges none before a
// quorum holds it durably.
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
// The files are named after the steps, in this order: propose.go takes the command and registers who waits; inbox.go
// holds it until the group's turn; group.go steps it into the core and hands the Ready to the pipeline; send.go takes
// messages to the transport, append.go takes writes to the log, apply.go takes committed entries to the state machine;
// acknowledge.go answers who waits. receive.go is where what peers send comes in.
//
// # Who is heard
//
// A host speaks only with hosts of its own founding list (identity.go), and only while each comes with the directory that its
// id came with before (admission.go): a host whose directory is lost has forgotten its votes. Which directory is this host's,
// and when a new one may be taken, is settled in directory.go.
//
// # Who runs what
//
// Three workers (env.Worker), each doing one bounded piece of work a call: the group, which alone touches the core; the
// append worker, which alone writes the log; the apply worker, which alone calls the state machine. (Pipelines basic and
// parallel do all three in the group's.) Nothing else in this package runs by itself but the clock's tick.
package host
