package history

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// proxy is the way from one host to another one: it passes on the connections that the first opens to the
// second. Two hosts have two proxies between them, since each opens connections of its own.
type proxy struct {
	to       string // address of the host
	listener net.Listener
	serving  sync.WaitGroup

	mu     sync.Mutex
	turned sync.Cond // mode has changed
	mode   mode
	open   map[net.Conn]bool
}

// mode is what a proxy does with bytes.
type mode int

const (
	passing  mode = iota
	holding       // nothing arrives until the mode changes, and then everything, in order, late
	refusing      // connections break, and new ones break at once
	closed
)

// newProxy listens on a free port of the loopback address.
func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{to: to, listener: l, open: map[net.Conn]bool{}}
	p.turned.L = &p.mu
	p.serving.Go(p.serve)
	t.Cleanup(func() {
		l.Close()
		p.set(closed)
		p.serving.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) set(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	p.turned.Broadcast()
	if m == refusing || m == closed {
		for c := range p.open {
			c.Close()
		}
	}
}

// mayPass waits while the proxy holds bytes, and reports whether the connection may live on.
func (p *proxy) mayPass() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mode == holding {
		p.turned.Wait()
	}
	return p.mode == passing
}

// keep registers a connection, so that a refusing proxy can break it.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == refusing || p.mode == closed {
		c.Close()
		return false
	}
	p.open[c] = true
	return true
}

func (p *proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
	c.Close()
}

func (p *proxy) serve() {
	for {
		from, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && p.keep(from) {
			p.serving.Go(func() { p.connect(from) })
		}
	}
}

// connect opens the second half of a connection and copies in both directions until either side ends.
func (p *proxy) connect(from net.Conn) {
	defer p.drop(from)
	if !p.mayPass() {
		return
	}
	to, err := net.Dial("tcp", p.to)
	if err != nil || !p.keep(to) {
		return
	}
	defer p.drop(to)
	var back sync.WaitGroup
	back.Go(func() {
		p.copy(from, to)
		from.Close()
		to.Close()
	})
	p.copy(to, from)
	from.Close()
	to.Close()
	back.Wait()
}

func (p *proxy) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && p.mayPass() {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// TestProxy: bytes pass, are held and arrive late and in order, and connections break.
func TestProxy(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	p := newProxy(t, echo.Addr().String())
	c, err := net.Dial("tcp", p.address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange := func(text string) error {
		if _, err := c.Write([]byte(text)); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, len(text)))
		return err
	}
	if err := exchange("one"); err != nil {
		t.Fatal(err)
	}
	p.set(holding)
	answered := make(chan error, 1)
	go func() { answered <- exchange("two") }()
	select {
	case err := <-answered:
		t.Fatalf("an answer (%v) passed a proxy that holds", err)
	default:
	}
	p.set(passing)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	p.set(refusing)
	if err := exchange("three"); err == nil {
		t.Fatal("a connection lives on in a proxy that refuses")
	}
	p.set(passing)
	if c, err = net.Dial("tcp", p.address()); err != nil {
		t.Fatal(err)
	}
	if err := exchange("four"); err != nil {
		t.Fatal(err)
	}
}
