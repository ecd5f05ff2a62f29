package containment

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// A function of the user that panics is an error with its name and its stack. One that ends its goroutine
// tells the caller before.
func TestCall(t *testing.T) {
	if err := Call("Applied", func() error { return errors.New("an error") }, nil); err == nil || err.Error() != "an error" {
		t.Errorf("an error: %v", err)
	}
	failed := error(nil)
	err := Call("Applied", func() error { panic("boom") }, &failed)
	if err == nil || !strings.HasPrefix(err.Error(), "millrace: Applied panicked: boom\n") || !strings.Contains(err.Error(), "user_test.go") || failed != nil {
		t.Errorf("a panic: %v, and %v", err, failed)
	}
	ended := make(chan error)
	go func() {
		var failed error
		defer func() { ended <- failed }()
		_ = Call("Applied", func() error { runtime.Goexit(); return nil }, &failed)
		failed = errors.New("it goes on")
	}()
	if err := <-ended; !errors.Is(err, ErrEnded) || !strings.HasPrefix(err.Error(), "millrace: Applied ended") {
		t.Errorf("the end of a goroutine: %v", err)
	}
	if err := Call("Applied", func() error { return nil }, &failed); err != nil || failed != nil {
		t.Errorf("nothing has failed: %v, %v", err, failed)
	}
}

// endingWorker ends its goroutine in each of its first rounds.
type endingWorker struct{ left int }

func (w *endingWorker) RunOnce() (more bool) {
	if w.left--; w.left > 0 {
		runtime.Goexit()
	}
	return false
}

// A worker that ends its goroutines runs out nevertheless.
func TestRunOut(t *testing.T) {
	w := &endingWorker{left: 3}
	if RunOut(w); w.left != 0 {
		t.Errorf("%d rounds are left", w.left)
	}
}

type brokenName struct{}

func (brokenName) Callee() string { panic("Callee is broken") }

// A machine that cannot say what it is doing is said to have broken Callee, too.
func TestCalleeThatPanics(t *testing.T) {
	if name := Callee(brokenName{}); !strings.HasPrefix(name, "Callee, and") {
		t.Error(name)
	}
}
