// Package client is a small protocol between a client and the hosts of a cluster, as the dissertation's
// benchmark has it: a client has one TCP connection to the leader, on which any number of its goroutines wait
// for answers, and finds the leader by asking a host, which names it (thesis §6.2). It is for measurements: a
// command whose connection breaks may have been committed, and is not repeated.
//
//	request   length of the rest u32, id u64 from 1, value
//	answer    length of the rest u32, id u64, status u8, text: the leader's address, or what went wrong
//
// All numbers are little endian. Answers come in any order. Id 0 is that of an answer to no request: the
// server refuses the connection, and its text says why.
//
//	client.go   a client that looks for the leader
//	conn.go     one connection, for callers that know where it leads
//	server.go   the other end
package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Status is how a request ended.
type Status byte

// The statuses.
const (
	Done     Status = iota // the leader's state machine has applied the command
	NotTaken               // by a host that does not lead; it names the leader, if it knows one
	Failed                 // the command may have been committed, or not
)

const (
	minBackoff = time.Millisecond
	maxBackoff = 50 * time.Millisecond
)

// ErrIndeterminate is the error of a command whose connection broke before its answer.
var ErrIndeterminate = errors.New("the connection broke before the answer: the command may have been committed")

// Options say how a client finds the leader.
type Options struct {
	Seeds          []string      // addresses of hosts, in any order; some may be dead
	IgnoreHints    bool          // ask seeds at random until one leads
	ConnectTimeout time.Duration // to connect to one host
	AnswerTimeout  time.Duration // after which a host that answers nothing counts as dead; 0: never
	Seed           uint64
}

// Client is a client. Its methods may be called from any goroutine.
type Client struct {
	options Options

	mu       sync.Mutex
	random   *rand.Rand
	conn     *Conn  // nil: there is none
	hint     string // where to look first
	attempts uint64
	misses   int    // since the last host that led
	next     uint64 // id
	closed   bool
}

// New returns a client, which connects when it has something to send.
func New(o Options) *Client {
	return &Client{options: o, random: rand.New(rand.NewPCG(o.Seed, 5))}
}

// Attempts returns how many connections the client has tried.
func (c *Client) Attempts() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attempts
}

// Close ends the client. Commands without an answer get ErrIndeterminate.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.conn != nil {
		c.conn.fail()
	}
	return nil
}

// Propose sends a command to the leader, and returns when that has applied it. A host that has not taken the
// command is left for another one.
func (c *Client) Propose(ctx context.Context, value []byte) error {
	for {
		conn, id, err := c.connection(ctx)
		if err != nil {
			return err
		}
		a, err := conn.ask(ctx, id, c.options.AnswerTimeout, value)
		switch {
		case err != nil:
			conn.fail()
			c.leave(conn, "")
			return err
		case a.status == Done:
			c.found()
			return nil
		case a.status == Failed:
			return fmt.Errorf("%s: %s", conn.addr, a.text)
		}
		hint := string(a.text)
		if c.options.IgnoreHints || hint == conn.addr { // it will lead, and does not know yet
			hint = ""
		}
		c.leave(conn, hint)
		if hint == "" {
			if err := pause(ctx, c.missed()); err != nil {
				return err
			}
		}
	}
}

// leave sends nothing more over a connection, and remembers where to look next.
func (c *Client) leave(conn *Conn, hint string) {
	conn.retire()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == conn {
		c.conn, c.hint = nil, hint
	}
}

// missed counts a search that led nowhere, and found ends the count.
func (c *Client) missed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.misses++
	return c.misses
}

func (c *Client) found() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.misses = 0
}

// pause waits longer after each miss in a row.
func pause(ctx context.Context, misses int) error {
	timer := time.NewTimer(min(minBackoff<<min(misses, 10), maxBackoff))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// connection returns the connection to the host that leads, as far as the client knows, and an id.
func (c *Client) connection(ctx context.Context) (*Conn, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for failures := 0; c.conn == nil; failures++ {
		if c.closed {
			return nil, 0, net.ErrClosed
		}
		addr, hinted := c.hint, c.hint != ""
		if c.hint = ""; addr == "" {
			addr = c.options.Seeds[c.random.IntN(len(c.options.Seeds))]
		}
		c.attempts++
		dialer := net.Dialer{Timeout: c.options.ConnectTimeout}
		tcp, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			c.conn = newConn(tcp, addr)
			break
		}
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		// A leader that is gone is still named by those that have not missed it yet.
		if hinted || failures >= len(c.options.Seeds) {
			c.misses++
			if err := pause(ctx, c.misses); err != nil {
				return nil, 0, err
			}
		}
	}
	c.next++
	return c.conn, c.next, nil
}
