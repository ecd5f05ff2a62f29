package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
)

// Outcome is what a client knows of its command at the end.
type Outcome int

// The outcomes.
const (
	Unknown Outcome = iota // it may have been applied, or may not; Output is not set
	Applied                // it was applied once, with the result Output
	Refused                // it was not applied
)

func (o Outcome) String() string { return [...]string{"unknown", "applied", "refused"}[o] }

// Operation is one command of a client, from its call to its return. A history is a slice of them in the
// order of the calls; package tests/history gives it to a checker of linearizability.
type Operation[C, R any] struct {
	Client       int    // one after the other; a client whose command has an unknown outcome has no other
	Host         uint64 // that it was given to
	Input        C
	Output       R // if Outcome is Applied
	Outcome      Outcome
	Call, Return time.Duration // virtual time; an unknown command never returns: Forever
	Index        uint64        // in the log, if Outcome is Applied
	Pos          uint32        // among the commands with this Index, from 0
}

func (o *Operation[C, R]) position() raftpb.Position {
	return raftpb.Position{Index: o.Index, Pos: o.Pos}
}

// Forever is the Return of an operation whose outcome is not known.
const Forever = time.Duration(1<<63 - 1)

// checkOrder reports a command that was called when another one had returned, and comes before it in the log.
// Without such a pair, and with equal results on all hosts, a history is linearizable: the log is the order.
// Unknown commands are left out, because they never return. It takes time for sorting, and one pass.
func checkOrder[C, R any](history []Operation[C, R]) error {
	var calls, returns []*Operation[C, R]
	for i := range history {
		if op := &history[i]; op.Outcome == Applied {
			calls, returns = append(calls, op), append(returns, op)
		}
	}
	slices.SortStableFunc(calls, func(a, b *Operation[C, R]) int { return cmp.Compare(a.Call, b.Call) })
	slices.SortStableFunc(returns, func(a, b *Operation[C, R]) int { return cmp.Compare(a.Return, b.Return) })
	var last *Operation[C, R] // of those that have returned, the one farthest in the log
	for _, op := range calls {
		for len(returns) > 0 && returns[0].Return < op.Call {
			if last == nil || returns[0].position().Compare(last.position()) > 0 {
				last = returns[0]
			}
			returns = returns[1:]
		}
		if last != nil && op.position().Compare(last.position()) <= 0 {
			return fmt.Errorf("the command %+v, called at %v, is entry %v, although %+v had returned at %v and is entry %v", op.Input, op.Call, op.position(), last.Input, last.Return, last.position())
		}
	}
	return nil
}
