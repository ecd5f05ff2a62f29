package tcp

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// The functions of Options are called on goroutines of the transport. One that panics, or ends its goroutine
// (runtime.Goexit, as t.Fatal does), costs what it was called for: an attempt to connect, a handshake, a look
// at the certificates, an event. It never costs the process.

// callUser calls a function of Options, on a goroutine that it may end, and makes an error of a panic. If the
// function does not return, the error names it.
func callUser(name string, f func() error) (err error) {
	ended := make(chan struct{})
	err = errors.New("the function " + name + " ended its goroutine (runtime.Goexit, as t.Fatal does)")
	go func() {
		defer close(ended)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("the function %s panicked: %v\n%s", name, p, debug.Stack())
			}
		}()
		err = f()
	}()
	<-ended
	return err
}

// errTimeless says that Now did not return. Nothing is known of a certificate then.
var errTimeless = errors.New("certificates cannot be compared with the time")

// isRefusal reports whether an error of trust.verify is about the certificate. Connections stay while the
// time is not known, and no new ones are made.
func isRefusal(err error) bool { return err != nil && !errors.Is(err, errTimeless) }

// now asks the user what the time is. The stack is in the log, once until Now works again, and not in the
// error, which the other host may be told.
func (t *trust) now() (now time.Time, err error) {
	err = callUser("Now of TLS", func() error { now = t.o.Now(); return nil })
	if err == nil {
		t.timeless.Store(false)
		return now, nil
	}
	if !t.timeless.Swap(true) {
		t.logger.Error("certificates cannot be compared with the time; connections stay, and no new ones are made", "error", err)
	}
	why, _, _ := strings.Cut(err.Error(), "\n")
	return time.Time{}, fmt.Errorf("%w: %s", errTimeless, why)
}

// event passes an event on. One at which the function panics is lost.
func (t *trust) event(e TLSEvent) {
	if err := callUser("Events of TLS", func() error { t.o.Events(e); return nil }); err != nil {
		t.logger.Error("an event of certificates is lost", "error", err)
	}
}
