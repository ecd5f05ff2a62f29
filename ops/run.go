package ops

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// The statuses with which Main ends the process. Those of the program millrace mean the same where they have
// the same number.
const (
	StatusDone    = 0   // the end was asked for, and everything was closed
	StatusFailed  = 1   // something has failed, as standard error says
	StatusHangs   = 3   // the end was asked for, and something did not close in time; standard error says what
	StatusUsage   = 64  // a setting is wrong; nothing was started
	StatusAborted = 130 // a second signal ended the process at once, as a power failure would
)

// Main runs a program: run with the command line, in a context that ends with the first SIGTERM or SIGINT. A
// second signal ends the process at once. It does not return.
func Main(name string, run func(ctx context.Context, args []string) error) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		cancel(&SignalError{<-signals})
		second := <-signals
		fmt.Fprintf(os.Stderr, "%s: %v came again: ended at once\n", name, second)
		os.Exit(StatusAborted)
	}()
	err := run(ctx, os.Args[1:])
	status := StatusOf(ctx, err)
	if status != StatusDone {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	}
	os.Exit(status)
}

// SignalError is the cause of the context of Main after a signal.
type SignalError struct{ Signal os.Signal }

func (e *SignalError) Error() string { return "signal " + e.Signal.String() }

// HangError says what did not close in time.
type HangError struct{ Err error }

func (e *HangError) Error() string { return e.Err.Error() }
func (e *HangError) Unwrap() error { return e.Err }

// StatusOf returns the status with which a process ends whose program has returned err. ctx is that of Main.
func StatusOf(ctx context.Context, err error) int {
	var usage *UsageError
	var hangs *HangError
	var ended *SignalError
	switch {
	case err == nil || errors.Is(err, ErrPrinted):
		return StatusDone
	case errors.As(err, &usage):
		return StatusUsage
	case errors.As(err, &hangs):
		return StatusHangs
	case errors.As(err, &ended) && ctx.Err() != nil:
		return StatusDone // the end came during the start: nothing has failed
	}
	return StatusFailed
}

// Service is what Run runs beside a node. The zero value runs nothing.
type Service struct {
	// Handler and Listener serve the clients of the program. Bounds of time and size are the program's: set
	// Server, which otherwise has the default ones.
	Handler  http.Handler
	Listener net.Listener
	Server   *http.Server
	// Ops is the address for the pages of NewHandler, with Options; "": they are not served. Told is called with
	// the address, which has a port even if Ops has port 0.
	Ops     string
	Options Options
	Told    func(addr net.Addr)
	// StopDelay is how long clients are served after /readyz has begun to say that the process stops.
	// StopTimeout bounds the requests under way, and then the close of the node; 0 means 10 seconds.
	StopDelay, StopTimeout time.Duration
	// Stopped is called when no client is served any more, and before the node is closed.
	Stopped func()
}

// Service returns the service of these settings, to which a program adds its Handler and Listener.
func (s *Settings) Service() Service {
	return Service{Ops: s.Listen, Options: Options{Pprof: s.Pprof, HostOnly: s.HostOnly}, StopDelay: s.StopDelay, StopTimeout: s.StopTimeout}
}

// defaultStopTimeout is Service.StopTimeout of 0: enough for a hand-over and for a sync of the log.
const defaultStopTimeout = 10 * time.Second

// readHeaderTimeout bounds how long a connection of the pages may be without a request.
const readHeaderTimeout = 5 * time.Second

// Run serves until ctx ends, the group stops, or serving fails. Then it ends in this order:
//
//  1. /readyz says that the process stops, and systemd is told.
//  2. This host hands its leaderships over, and leads no other group.
//  3. After StopDelay no request is taken any more, and those under way get their answers.
//  4. The node is closed, and at last the pages.
//
// It closes the node and Listener in any case. A HangError says what did not close in time.
func Run(ctx context.Context, node Node, s Service) (err error) {
	r := &running{Service: s, node: node, failed: make(chan error, 2)}
	if r.StopTimeout == 0 {
		r.StopTimeout = defaultStopTimeout
	}
	if r.supervisor, err = dialSupervisor(os.Getenv); err == nil {
		err = r.start()
	}
	if err == nil {
		watched, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop() // the end takes time, too
		go r.supervisor.watch(watched, func() bool { return node.Host().Metrics().Lanes.HungTurns == 0 })
		select {
		case <-ctx.Done():
		case <-node.Failed():
			err = node.Err()
		case err = <-r.failed:
		}
	}
	return errors.Join(err, r.end(err == nil))
}

// running is a Service that runs.
type running struct {
	Service
	node       Node
	supervisor *supervisor
	failed     chan error
	pages      *Handler
	web        *http.Server // for clients
	operators  *http.Server
}

// start serves clients and operators.
func (r *running) start() (err error) {
	if r.pages, err = NewHandler(r.node, r.Options); err != nil {
		return err
	}
	if r.Ops != "" {
		listener, err := net.Listen("tcp", r.Ops)
		if err != nil {
			return fmt.Errorf("ops: listen for operators: %w", err)
		}
		if r.Told != nil {
			r.Told(listener.Addr())
		}
		r.operators = &http.Server{Handler: r.pages, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
		r.serve(r.operators, listener, "operators")
	}
	if r.Listener != nil {
		if r.web = r.Server; r.web == nil {
			r.web = &http.Server{ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
		}
		if r.Handler != nil {
			r.web.Handler = r.Handler
		}
		r.serve(r.web, r.Listener, "clients")
	}
	return r.supervisor.tell("READY=1")
}

func (r *running) serve(s *http.Server, l net.Listener, who string) {
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			r.failed <- fmt.Errorf("ops: serve %s: %w", who, err)
		}
	}()
}

// end stops everything, in order. Without a failure there is time for balancers to look.
func (r *running) end(inOrder bool) (err error) {
	if r.pages != nil {
		r.pages.Stop()
	}
	_ = r.supervisor.tell("STOPPING=1") // one that has gone is no reason to fail
	if inOrder {
		r.node.Host().HandOver()
		if r.StopDelay > 0 {
			<-time.After(r.StopDelay)
		}
	}
	if r.web != nil {
		err = r.drain(r.web)
	} else if r.Listener != nil {
		err = r.Listener.Close()
	}
	if r.Stopped != nil {
		r.Stopped()
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.StopTimeout)
	defer cancel()
	if closed := r.node.Close(ctx); closed != nil {
		if ctx.Err() != nil {
			closed = &HangError{fmt.Errorf("ops: the node is not closed after %v: %w", r.StopTimeout, closed)}
		}
		err = errors.Join(err, closed)
	}
	if r.operators != nil {
		err = errors.Join(err, r.operators.Close()) // to the end they say what hangs
	}
	return errors.Join(err, r.supervisor.close())
}

// drain waits for the requests under way, and breaks off those that take too long.
func (r *running) drain(s *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.StopTimeout)
	defer cancel()
	if s.Shutdown(ctx) != nil {
		return s.Close() // a client that is too slow is no failure of this process
	}
	return nil
}
