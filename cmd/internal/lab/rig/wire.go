// A Link stands for a network between hosts of one machine. A Link accepts the connections that one
// host opens to another and passes their bytes on: late, at a bounded rate, or not at all. It needs no right
// over the machine, and the bytes are those of the real transport, with TLS too.
//
// A delay counts for each direction of a connection. Hosts send only on connections that they have opened, so
// the link from A to B delays what A sends to B. What the kernel acknowledges is not delayed: the links model
// the time of flight and the bandwidth, not TCP's own reaction to them.

package rig

import (
	"errors"
	"net"
	"sync"
	"time"
)

// LinkMode is what a link does with bytes.
type LinkMode int

// The modes.
const (
	Passes  LinkMode = iota
	Holds            // nothing arrives until the mode changes, and then everything, late and in order: a partition without a reset, a stopped process
	Refuses          // connections are reset, and new ones are refused: a killed process
	closed
)

// Link is the way from one host to another. Its methods may be called from any goroutine.
type Link struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu     sync.Mutex
	turned sync.Cond // mode has changed
	to     string
	mode   LinkMode
	delay  time.Duration
	rate   float64 // bytes a second; 0: no bound
	free   time.Time
	open   map[net.Conn]bool
}

// NewLink opens a link on a free port of 127.0.0.1. to is the address of the host that it leads to.
func NewLink(to string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Link{listener: listener, to: to, open: map[net.Conn]bool{}}
	l.turned.L = &l.mu
	l.serving.Go(l.serve)
	return l, nil
}

// Addr is the address that the first host dials.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// SetTarget changes the address of the host that the link leads to, for connections to come.
func (l *Link) SetTarget(to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}

// SetDelay delays what is sent after now. It holds in each direction.
func (l *Link) SetDelay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// SetRate bounds the bytes a second of all connections together; 0 is no bound.
func (l *Link) SetRate(bytesPerSecond float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rate, l.free = bytesPerSecond, time.Time{}
}

// Set changes the mode at once.
func (l *Link) Set(m LinkMode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mode == closed {
		return
	}
	l.mode = m
	l.turned.Broadcast()
	if m == Refuses || m == closed {
		for c := range l.open {
			reset(c)
		}
	}
}

// Close resets all connections and waits until nothing of the link runs.
func (l *Link) Close() error {
	err := l.listener.Close()
	l.Set(closed)
	l.serving.Wait()
	return err
}

// reset closes a connection so that its other end sees a reset and not an end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it is closed in any case
	}
	_ = c.Close() // it was only used for reads and writes that report by themselves
}

func (l *Link) serve() {
	for {
		from, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && l.keep(from) {
			l.serving.Go(func() { l.connect(from) })
		}
	}
}

// keep registers a connection, so that a change of the mode can reset it.
func (l *Link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mode == Refuses || l.mode == closed {
		reset(c)
		return false
	}
	l.open[c] = true
	return true
}

func (l *Link) drop(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	reset(c)
}

// mayPass waits while the link holds bytes, and reports whether the connection may live.
func (l *Link) mayPass() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.mode == Holds {
		l.turned.Wait()
	}
	return l.mode == Passes
}

// connect opens the second half of a connection and passes bytes in both directions until either side ends.
func (l *Link) connect(from net.Conn) {
	defer l.drop(from)
	if !l.mayPass() {
		return
	}
	l.mu.Lock()
	address := l.to
	l.mu.Unlock()
	to, err := net.Dial("tcp", address)
	if err != nil || !l.keep(to) {
		return
	}
	defer l.drop(to)
	var back sync.WaitGroup
	back.Go(func() {
		l.pass(from, to)
		l.drop(from)
		l.drop(to)
	})
	l.pass(to, from)
	l.drop(from)
	l.drop(to)
	back.Wait()
}
