package host

import "github.com/millrace/millrace/raft/raftpb"

// Entry is a committed command: its place in the log, and Data as it was proposed.
type Entry = raftpb.Entry

// StateMachine is what commands are replicated for.
type StateMachine interface {
	// Apply takes committed commands, in the order of their indexes, each once in the life of the process;
	// after a restart they come again from the first. The same commands must have the same effect on every
	// host. Calls never overlap. An error, or a panic, means that this replica is broken: the group on this
	// host stops.
	//
	// The state machine may keep the Data of any command, and must not change it. Each Data is an array of
	// its own, so a state machine that keeps it, or a part of it, keeps that one command in memory and no
	// other. (Where a command was proposed, it may be the very slice that was given to Propose: a client that
	// cuts many commands from one array joins them.) The state machine may keep the slice of entries too, but
	// that keeps all commands of the call.
	Apply(entries []Entry) error
}
