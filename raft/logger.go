package raft

// Logger is where a node tells of what happens to it, for people: elections, refused input, members that come and go. It
// is optional; nil, the default, is silence. The method set is that of etcd-io/raft, so that its loggers fit.
//
// A Logger cannot influence the core: nothing is asked of it and nothing it does is waited for but its return, so it must
// not block and must not call back into the RawNode. It is called by whoever calls the RawNode, on that goroutine. The
// core calls neither Fatal nor Panic: what a peer or a disk does is an error (PeerError, RawNode.Err), and what must not
// be is a panic of its own that needs no logger. They are here only so that the set is whole.
//
// What a program is to act on is in errors, Ready and Status, never in these words, which may change.
type Logger interface {
	// Debug and Debugf tell of what is of interest only to someone who follows the protocol step by step.
	Debug(v ...any)
	Debugf(format string, v ...any)
	// Info and Infof tell of what is normal and rare: roles, terms, leaders, members.
	Info(v ...any)
	Infof(format string, v ...any)
	// Warning and Warningf tell of what was refused or is overdue.
	Warning(v ...any)
	Warningf(format string, v ...any)
	// Error and Errorf tell of what an operator should look at.
	Error(v ...any)
	Errorf(format string, v ...any)
	// The core calls none of these.
	Fatal(v ...any)
	Fatalf(format string, v ...any)
	Panic(v ...any)
	Panicf(format string, v ...any)
}
