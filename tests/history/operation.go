package history

import "github.com/millrace/millrace/sim/history"

// The types of a history are those of sim/history, so that whatever records in that form can be checked here.

// Operation is what one client asked of one key, and what it knows about the outcome.
type Operation = history.Operation

// Kind is what an operation does.
type Kind = history.Kind

// The kinds.
const (
	Get      = history.Get
	Put      = history.Put
	Swap     = history.Swap
	Delete   = history.Delete
	Exchange = history.Exchange
	Append   = history.Append
)

// Outcome is what a client knows.
type Outcome = history.Outcome

// The outcomes.
const (
	Answered = history.Answered
	Refused  = history.Refused
	Unknown  = history.Unknown
)

// Never is the time of a return that did not come.
const Never = history.Never

// Recorder collects the operations of many clients.
type Recorder struct{ history.Recorder }

// History returns what was recorded.
func (r *Recorder) History() History { return r.Operations() }
