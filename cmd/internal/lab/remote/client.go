// A Client speaks a small protocol between a client and the hosts of a cluster, as the dissertation's
// benchmark has it: a client has one TCP connection to the leader, on which any number of its goroutines wait
// for answers, and finds the leader by asking a host, which names it (thesis §6.2). A client with a session
// sends a command again, under the same number, until it has an answer: the state machines apply it once
// (thesis §6.3). Without one, a command whose connection breaks may have been committed, and is not repeated.
//
//	request   length of the rest u32, id u64 from 1, kind u8, with InSession: the place of the command, value
//	answer    length of the rest u32, id u64, status u8, text
//
// The text is the leader's address, what went wrong, or the id of a session. request.go has the place.
//
// All numbers are little endian. Answers come in any order. Id 0 is that of an answer to no request: the
// server refuses the connection, and its text says why.
//
//	client.go    a client that looks for the leader
//	request.go   what it asks, and its numbers
//	conn.go      one connection, for callers that know where it leads, and have requests of their own
//	server.go    the other end

package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/millrace/millrace/host/session"
)

// Status is how a request ended.
type Status byte

// The statuses.
const (
	Done     Status = iota // the leader's state machine has applied the command
	NotTaken               // by a host that does not lead; it names the leader, if it knows one
	Failed                 // the command was refused, and sending it again does not help
	Unknown                // the command may have been committed, or not
)

const (
	minBackoff = time.Millisecond
	maxBackoff = 50 * time.Millisecond
)

// ErrIndeterminate is the error of a command whose connection broke before its answer.
var ErrIndeterminate = errors.New("the connection broke before the answer: the command may have been committed")

// ClientOptions say how a client finds the leader.
type ClientOptions struct {
	Seeds          []string      // addresses of hosts, in any order; some may be dead
	IgnoreHints    bool          // ask seeds at random until one leads
	ConnectTimeout time.Duration // to connect to one host
	AnswerTimeout  time.Duration // after which a host that answers nothing counts as dead; 0: never
	Sessions       bool          // open a session, and repeat commands until they are answered
	Seed           uint64
}

// Client is a client. Its methods may be called from any goroutine.
type Client struct {
	options ClientOptions

	mu       sync.Mutex
	random   *rand.Rand
	conn     *Conn  // nil: there is none
	hint     string // where to look first
	mute     string // the host that gave no answer last: others are asked first
	attempts uint64
	misses   int    // since the last host that led
	next     uint64 // id
	closed   bool
	repeats  uint64

	opening sync.Mutex // held by the goroutine that opens the session
	session session.ID // the zero one: there is none yet; guarded by opening
	numbers numbers
}

// NewClient returns a client, which connects when it has something to send.
func NewClient(o ClientOptions) *Client {
	return &Client{options: o, random: rand.New(rand.NewPCG(o.Seed, 5))}
}

// Attempts returns how many connections the client has tried.
func (c *Client) Attempts() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attempts
}

// Repeats returns how many commands were sent again, because no answer came.
func (c *Client) Repeats() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.repeats
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
	if !c.options.Sessions {
		_, err := c.exchange(ctx, Request{Kind: Plain, Value: value})
		return err
	}
	id, err := c.openSession(ctx)
	if err != nil {
		return err
	}
	number := c.numbers.take()
	defer c.numbers.answered(number)
	_, err = c.exchange(ctx, Request{Kind: InSession, Mark: session.Mark{ID: id, Number: number}, Value: value})
	return err
}

// openSession returns the session of the client. The first call opens it.
func (c *Client) openSession(ctx context.Context) (session.ID, error) {
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.session != (session.ID{}) {
		return c.session, nil
	}
	text, err := c.exchange(ctx, Request{Kind: OpenSession})
	if err != nil {
		return session.ID{}, err
	}
	c.session, err = session.ParseID(text)
	return c.session, err
}

// exchange sends a request to the leader, wherever that is, until it has an answer.
func (c *Client) exchange(ctx context.Context, r Request) (text string, err error) {
	for {
		conn, id, err := c.connection(ctx)
		if err != nil {
			return "", err
		}
		if r.Kind == InSession {
			r.Mark.Low = c.numbers.lowest()
		}
		a, err := conn.ask(ctx, id, c.options.AnswerTimeout, r.appendHead(make([]byte, 0, maxHead)), r.Value)
		if err == nil && a.status == Unknown {
			err = fmt.Errorf("%s: %s: %w", conn.addr, a.text, ErrIndeterminate)
		}
		switch {
		case err != nil:
			conn.fail()
			c.leave(conn, "")
			c.avoid(conn.addr)
			if r.Kind == Plain || ctx.Err() != nil {
				return "", err
			}
			if err := pause(ctx, c.repeated()); err != nil {
				return "", err
			}
			continue
		case a.status == Done:
			c.found()
			return string(a.text), nil
		case a.status == Failed:
			return "", fmt.Errorf("%s: %s", conn.addr, a.text)
		}
		hint := string(a.text)
		if c.options.IgnoreHints || hint == conn.addr { // it will lead, and does not know yet
			hint = ""
		}
		c.leave(conn, hint)
		if hint == "" {
			if err := pause(ctx, c.missed()); err != nil {
				return "", err
			}
		}
	}
}

// repeated counts a command that is sent again, and returns how many searches in a row have led nowhere.
func (c *Client) repeated() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.repeats++
	c.misses++
	return c.misses
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

// avoid notes a host that gave no answer.
func (c *Client) avoid(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mute = addr
}

// seed returns one of the seeds at random, another one than the host that gave no answer. The caller holds
// mu.
func (c *Client) seed() string {
	i := c.random.IntN(len(c.options.Seeds))
	if c.options.Seeds[i] == c.mute {
		i = (i + 1) % len(c.options.Seeds)
	}
	return c.options.Seeds[i]
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
	c.misses, c.mute = 0, ""
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
			addr = c.seed()
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
