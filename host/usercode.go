package host

import (
	"fmt"
	"runtime/debug"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
)

// Functions of the user run on the workers of a host, which serve all groups. One that panics, or ends its
// goroutine (runtime.Goexit, as t.Fatal does), must cost the call, the snapshot or the group that it belongs
// to, and never the process. What each of them costs is a table in docs/howto/embed.md, which a test of
// package millrace runs.

var errEnded = snapshots.ErrEnded

// callUser calls a function of the user, by a name for people, and makes an error of a panic. If f ends its
// goroutine that goes on, and failed gets the error before.
func callUser(name string, f func() error, failed *error) (err error) {
	ended := fmt.Errorf("millrace: %s %w", name, errEnded)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("millrace: %s panicked: %v\n%s", name, p, debug.Stack())
		} else if ended != nil && failed != nil {
			*failed = ended
		}
	}()
	err = f()
	ended = nil
	return err
}

// runOut calls a worker until it has nothing left. It uses another goroutine, which a function of the user
// may end.
func runOut(w env.Worker) {
	for done := false; !done; {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for w.RunOnce() {
			}
			done = true
		}()
		<-ended
	}
}

// callee names the function of the user that the machine of a queue is in the middle of.
func (q *applyQueue) callee() string {
	if m, is := q.machine.(*commandGroup); is {
		return m.callee()
	}
	return "Apply of the state machine"
}

// calleeOf calls Callee. What is under way is a panic of another function, which must be said.
func calleeOf(n statemachine.NamesCallee) (name string) {
	name = "Callee, and a function that it should have named,"
	defer func() { _ = recover() }()
	return n.Callee()
}

func (s *commandGroup) callee() string {
	if s.inDigest {
		return "Digest of the state machine"
	}
	if m, is := s.machine.(statemachine.NamesCallee); is {
		return calleeOf(m)
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
	err = callUser("Applied of the state machine", func() (err error) {
		held, err = s.options.Applied()
		return err
	}, nil)
	return held, err
}
