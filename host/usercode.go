package host

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/millrace/millrace/env"
)

// Functions of the user run on the workers of a host, which serve all groups. One that panics, or ends its
// goroutine (runtime.Goexit, as t.Fatal does), must cost the call, the snapshot or the group that it belongs
// to, and never the process. What each of them costs is a table in docs/howto/embed.md, which a test of
// package millrace runs.

var errEnded = errors.New("ended its goroutine (runtime.Goexit, as t.Fatal does)")

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

// calleeName names the function of the user that a take is in the middle of.
func (t *take) calleeName() string {
	if v, is := t.view.(NamesCallee); is && t.callee == "WriteTo" {
		return v.Callee()
	}
	return t.callee + " of a snapshot of the state machine"
}

// NamesCallee is a CommandMachine, or a Snapshot in its WriteTo, that calls several functions of its user.
// Callee names the one that it is in the middle of, such as "Decode of the codec", for the error when that
// panics. It is called on the same goroutine.
type NamesCallee interface{ Callee() string }

func (s *commandGroup) callee() string {
	if s.inDigest {
		return "Digest of the state machine"
	}
	if m, is := s.machine.(NamesCallee); is {
		return m.Callee()
	}
	return "Apply of the state machine"
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
