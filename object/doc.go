// Package object is what the members of a group agree on about large objects. Their bytes travel and are
// stored beside the log, while the decisions about them are entries in it. It computes and decides; package
// object/files has the files, and package host moves them.
//
//	entry open     a set of bytes exists at one member: its id, length, hash, and how long it lives
//	members        fetch it, from any member that has it, and say when they hold it durably
//	entry hold     a quorum of the configuration in force holds it. Only from here on may a command name it
//	command        names sets. The state machine keeps a set or releases it
//	expiry         in log time: a set that no command keeps goes
//
// Each member has a Table beside its state machine and changes it as it applies the log, so all members agree
// which commands name a set that exists. A command that names another one is refused on all of them alike.
//
// Invariant: as long as a set can be named, a quorum of the configuration that was in force at its entry hold
// had it durably. Changes of the members wait until that is true of the next configuration, too: this is the
// leader's work, which sees what members hold (package host).
//
// A set that has gone may still be named by an entry that a slow member applies later. So its files stay
// until the log behind its end is gone (Gone.Index). A member that gets those entries gets them from a log
// whose host has the files. A member that gets none of them gets a snapshot.
//
// Rejected: to count the commands that name a set. Whether a command keeps it only the state machine knows.
// Rejected: holders of an earlier configuration. Those of {1, 2, 3} can be {1, 2}; when 1 is removed, {2, 3}
// is the whole group, and 2 alone has the bytes.
//
// The package is pure: no I/O, clock, goroutine, lock or chance. Tables that are given the same entries are
// equal, and their forms (Table.AppendTo) are equal to the byte.
package object
