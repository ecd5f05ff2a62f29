// Package proxy passes on the connections from one host to another, so that a test can hold, break and slow
// down each direction of each pair of hosts without any right over the machine.
package proxy

import (
	"errors"
	"net"
	"sync"
	"time"
)

// Proxy is the way from one host to another one: it passes on the connections that the first opens to the
// second. Two hosts have two proxies between them, since each opens connections of its own.
type Proxy struct {
	to       string // address of the host
	listener net.Listener
	serving  sync.WaitGroup

	mu     sync.Mutex
	turned sync.Cond // mode has changed
	mode   Mode
	rate   int       // bytes a second; 0: no limit
	due    time.Time // when the bytes that have passed are all paid for
	open   map[net.Conn]bool
}

// Mode is what a proxy does with bytes.
type Mode int

const (
	Passing  Mode = iota
	Holding       // nothing arrives until the mode changes, and then everything, in order, late
	Refusing      // connections break, and new ones break at once
	closed
)

// New listens on a free port of the loopback address.
func New(to string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{to: to, listener: l, open: map[net.Conn]bool{}}
	p.turned.L = &p.mu
	p.serving.Go(p.serve)
	return p, nil
}

// Close breaks all connections and waits until nothing of the proxy runs.
func (p *Proxy) Close() {
	p.listener.Close()
	p.Set(closed)
	p.serving.Wait()
}

// Address is where the first host reaches the second.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Limit lets at most rate bytes a second pass, in both directions together; 0 is no limit.
func (p *Proxy) Limit(rate int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate, p.due = rate, time.Now()
	p.turned.Broadcast()
}

// pace waits until n more bytes may pass. A limit that is lifted, or another mode, ends the wait.
func (p *Proxy) pace(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate == 0 {
		return
	}
	if now := time.Now(); p.due.Before(now) {
		p.due = now
	}
	p.due = p.due.Add(time.Duration(n) * time.Second / time.Duration(p.rate))
	mine := p.due
	wake := time.AfterFunc(time.Until(mine), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.turned.Broadcast()
	})
	defer wake.Stop()
	for p.rate > 0 && p.mode != closed && p.mode != Refusing && time.Now().Before(mine) {
		p.turned.Wait()
	}
}

// Set changes what the proxy does with bytes, at once.
func (p *Proxy) Set(m Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	p.turned.Broadcast()
	if m == Refusing || m == closed {
		for c := range p.open {
			c.Close()
		}
	}
}

// mayPass waits while the proxy holds bytes, and reports whether the connection may live on.
func (p *Proxy) mayPass() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mode == Holding {
		p.turned.Wait()
	}
	return p.mode == Passing
}

// keep registers a connection, so that a refusing proxy can break it.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == Refusing || p.mode == closed {
		c.Close()
		return false
	}
	p.open[c] = true
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
	c.Close()
}

func (p *Proxy) serve() {
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
func (p *Proxy) connect(from net.Conn) {
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

func (p *Proxy) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.pace(n)
		}
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
