package containment

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/statemachine"
)

// Functions of the user run on the workers of a host, which serve all groups. One that panics, or ends its
// goroutine (runtime.Goexit, as t.Fatal does), must cost the call, the snapshot or the group that it belongs
// to, and never the process. What each of them costs is a table in docs/howto/embed.md, which a test of
// package millrace runs.

// ErrEnded is why a function of the user has not returned.
var ErrEnded = errors.New("ended its goroutine (runtime.Goexit, as t.Fatal does)")

// Panic is a panic of the state machine, or of a turn. Its stack is once in the log, with the halt of the
// machine or the end of the group: each caller gets the error.
type Panic struct {
	Text  string
	Stack []byte
}

func (p *Panic) Error() string { return p.Text }

// Call calls a function of the user, by a name for people, and makes an error of a panic. If f ends its
// goroutine that goes on, and failed gets the error before.
func Call(name string, f func() error, failed *error) (err error) {
	ended := fmt.Errorf("millrace: %s %w", name, ErrEnded)
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

// RunOut calls a worker until it has nothing left. It uses another goroutine, which a function of the user
// may end.
func RunOut(w env.Worker) {
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

// Callee calls Callee. What is under way is a panic of another function, which must be said.
func Callee(n statemachine.NamesCallee) (name string) {
	name = "Callee, and a function that it should have named,"
	defer func() { _ = recover() }()
	return n.Callee()
}
