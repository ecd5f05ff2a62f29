package raft

// Logger receives reports about what happens to a node, for people: elections, refused input, membership
// changes. It is optional; nil, the default, reports nothing. The method set is that of etcd-io/raft, so that
// its loggers fit.
//
// A Logger cannot influence the core, which uses no result of it and only waits for its return. So it must
// not block, and must not call back into the RawNode. It is called on the goroutine that calls the RawNode.
// The core calls neither Fatal nor Panic. The faults of a peer or a disk are errors (PeerError,
// RawNode.Err), and a broken invariant is a panic that needs no logger. These methods are here only to
// complete the set.
//
// A program must act on errors, Ready and Status, and never on these texts, which may change.
type Logger interface {
	// Debug and Debugf report details of the protocol, step by step.
	Debug(v ...any)
	Debugf(format string, v ...any)
	// Info and Infof report what is normal and rare: roles, terms, leaders, members.
	Info(v ...any)
	Infof(format string, v ...any)
	// Warning and Warningf report what was refused or is overdue.
	Warning(v ...any)
	Warningf(format string, v ...any)
	// Error and Errorf report what an operator should look at.
	Error(v ...any)
	Errorf(format string, v ...any)
	// The core calls none of these.
	Fatal(v ...any)
	Fatalf(format string, v ...any)
	Panic(v ...any)
	Panicf(format string, v ...any)
}

// The core reports rare events with infof and warningf, in sentences with their numbers. A report has no
// effect: the core does the same with and without a Logger.

func (r *raft) infof(format string, args ...any) {
	if r.events != nil {
		r.events.Infof(format, args...)
	}
}

func (r *raft) warningf(format string, args ...any) {
	if r.events != nil {
		r.events.Warningf(format, args...)
	}
}
