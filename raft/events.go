package raft

// What happens seldom and concerns people is told to the application's Logger, in a sentence with the numbers. It is a
// word to a listener and no effect: the core is the same with and without it.

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
