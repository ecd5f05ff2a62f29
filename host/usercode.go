package host

import (
	"runtime/debug"

	"github.com/millrace/millrace/host/internal/containment"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
)

// callee names the function of the user that the machine of a queue is in the middle of.
func (q *applyQueue) callee() string {
	if m, is := q.machine.(*commandGroup); is {
		return m.callee()
	}
	return "Apply of the state machine"
}

func (s *commandGroup) callee() string {
	if s.inDigest {
		return "Digest of the state machine"
	}
	if m, is := s.machine.(statemachine.NamesCallee); is {
		return containment.Callee(m)
	}
	return "Apply of the state machine"
}

// The methods of a Caller are called on lanes and in turns, some of them under locks. One that panics has not
// heard, which is logged, and what called it goes on.

func (g *Group) tellCommitted(c outcome.Caller, r outcome.Receipt) {
	returned := false
	defer func() { g.callerEnded("Committed", recover(), returned) }()
	c.Committed(r)
	returned = true
}

func (g *Group) tellFailed(c outcome.Caller, err error) {
	returned := false
	defer func() { g.callerEnded("Failed", recover(), returned) }()
	c.Failed(err)
	returned = true
}

func (g *Group) tellDuplicate(c outcome.Caller, r outcome.Receipt, result []byte, kept bool) {
	returned := false
	defer func() { g.callerEnded("Duplicate", recover(), returned) }()
	c.Duplicate(r, result, kept)
	returned = true
}

// callerEnded logs that a method of a Caller has panicked, or ends its goroutine.
func (g *Group) callerEnded(method string, p any, returned bool) {
	switch {
	case returned || g == nil:
	case p != nil:
		g.host.env.logger.Error("a caller has not heard the outcome of its command: its method panicked", "group", g.id, "host", g.self, "method", method+" of the Caller", "panic", p, "stack", string(debug.Stack()))
	default:
		g.host.env.logger.Error("a caller has ended the goroutine on which it was told (runtime.Goexit, as t.Fatal does)", "group", g.id, "host", g.self, "method", method+" of the Caller")
	}
}

// digest calls the user's Digest.
func (s *commandGroup) digest() uint64 {
	s.inDigest = true
	d := s.options.Digest()
	s.inDigest = false
	return d
}

// appliedHere calls the user's Applied.
func (s *commandGroup) appliedHere() (held uint64, err error) {
	err = containment.Call("Applied of the state machine", func() (err error) {
		held, err = s.options.Applied()
		return err
	}, nil)
	return held, err
}
