package millrace

import pb "github.com/millrace/millrace/raft/raftpb"

// Entry is a committed command: its place in the log, and Data as it was proposed.
type Entry = pb.Entry

// StateMachine is what commands are replicated for.
type StateMachine interface {
	// Apply takes committed commands, in the order of their indexes, each once in the life of the process; after a
	// restart they come again from the first. The same commands must have the same effect on every host. The slice
	// and the bytes may be kept and must not be changed. Calls never overlap. An error, or a panic, means that this
	// replica is broken: the group on this host stops.
	Apply(entries []Entry) error
}
