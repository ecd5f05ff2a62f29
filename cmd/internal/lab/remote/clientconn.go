package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	idBytes     = 8
	refusalID   = 0
	maxMessage  = 9 << 20
	bufferBytes = 64 << 10

	// MaxBody is the largest request, and the largest text of an answer.
	MaxBody = maxMessage - idBytes - maxHead
)

// Refusal is what a server has said when it refused a connection. It is in the errors of that connection.
type Refusal struct {
	Addr, Why string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Addr + " has refused the connection: " + r.Why }

// Conn is one connection to one host. Any number of goroutines may ask over it, and wait for their answers.
type Conn struct {
	addr string
	tcp  net.Conn

	writing sync.Mutex
	out     *bufio.Writer
	queued  int // goroutines that will flush

	answered atomic.Uint64 // messages read
	ended    chan struct{} // closed when the reader has ended

	mu      sync.Mutex
	next    uint64                       // the last id of Ask
	waiting map[uint64]chan clientAnswer // nil: the connection takes nothing more
	retired bool                         // it ends with the last answer
	why     error                        // with waiting nil: what ended it, if that is known
}

type clientAnswer struct {
	status Status
	text   []byte
	broken bool
}

// Dialing says how a connection is made.
type Dialing struct {
	Timeout time.Duration // of everything, the handshake of Wrap too
	// Wrap turns the TCP connection into the one to use, such as one with TLS. nil: it is used as it is.
	Wrap func(context.Context, net.Conn) (net.Conn, error)
	// Silence is how long a host may answer nothing while requests wait for it. Then the connection counts as
	// broken. 0: forever.
	Silence time.Duration
}

// DialConn connects to a host.
func DialConn(ctx context.Context, addr string, d Dialing) (*Conn, error) {
	dialing, cancel := context.WithTimeoutCause(ctx, d.Timeout, fmt.Errorf("it took more than %v", d.Timeout))
	defer cancel()
	var dialer net.Dialer
	tcp, err := dialer.DialContext(dialing, "tcp", addr)
	if err == nil && d.Wrap != nil {
		var wrapped net.Conn
		if wrapped, err = d.Wrap(dialing, tcp); err != nil {
			_ = tcp.Close() // the handshake says what is wrong
		}
		tcp = wrapped
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	c := newConn(tcp, addr)
	if d.Silence > 0 {
		go c.watch(d.Silence)
	}
	return c, nil
}

func newConn(tcp net.Conn, addr string) *Conn {
	c := &Conn{addr: addr, tcp: tcp, out: bufio.NewWriterSize(tcp, bufferBytes), waiting: map[uint64]chan clientAnswer{}, ended: make(chan struct{})}
	go c.read()
	return c
}

var opaque = []byte{byte(Opaque)}

// Ask sends a request of the kind Opaque, the parts of which it joins, and returns its answer. It keeps none
// of them. ErrNotSent means that the host has surely not seen it, ErrIndeterminate that the connection broke
// before the answer.
func (c *Conn) Ask(ctx context.Context, request ...[]byte) (Status, []byte, error) {
	c.mu.Lock()
	if c.waiting == nil {
		why := c.why
		c.mu.Unlock()
		return Failed, nil, notSent(why)
	}
	c.next++
	id := c.next
	c.mu.Unlock()
	a, err := c.ask(ctx, id, 0, append([][]byte{opaque}, request...)...)
	if err == nil && a.status == NotTaken && a.text == nil {
		err = notSent(c.reason()) // it has ended meanwhile
	}
	return a.status, a.text, err
}

// ErrNotSent is wrapped by the error of Ask on a connection that has ended.
var ErrNotSent = errors.New("the connection has ended")

func notSent(why error) error {
	if why == nil {
		return ErrNotSent
	}
	return fmt.Errorf("%w: %w", ErrNotSent, why)
}

// reason returns what has ended the connection, if that is known.
func (c *Conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

// Ended is closed when the connection has ended.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

// Close ends the connection, and waits until its reader has. Requests without an answer get ErrIndeterminate.
func (c *Conn) Close() {
	c.fail()
	<-c.ended
}

// fail ends the connection.
func (c *Conn) fail() {
	_ = c.tcp.Close() // the reader ends, and answers all that wait
}

// retire ends the connection when the last answer has come: other goroutines may still wait for theirs.
func (c *Conn) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
	c.endRetired()
}

// endRetired ends a retired connection without requests. The caller holds mu.
func (c *Conn) endRetired() {
	if c.retired && len(c.waiting) == 0 {
		c.waiting = nil
		c.fail()
	}
}

func (c *Conn) read() {
	defer close(c.ended)
	in := bufio.NewReaderSize(c.tcp, bufferBytes)
	var why error
	for {
		id, body, err := readMessage(in)
		if err != nil || len(body) == 0 {
			break
		}
		if id == refusalID {
			why = &Refusal{c.addr, string(body[1:])}
			break
		}
		c.answered.Add(1)
		c.mu.Lock()
		ch := c.waiting[id]
		delete(c.waiting, id)
		c.endRetired()
		c.mu.Unlock()
		if ch != nil {
			ch <- clientAnswer{status: Status(body[0]), text: body[1:]}
		}
	}
	c.fail()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why == nil {
		c.why = why
	}
	for _, ch := range c.waiting {
		ch <- clientAnswer{broken: true}
	}
	c.waiting = nil
}

// watch ends the connection when requests have waited for as long as silence, and none was answered.
func (c *Conn) watch(silence time.Duration) {
	const looks = 4
	tick := time.NewTicker(max(silence/looks, time.Millisecond))
	defer tick.Stop()
	for quiet, last := 0, c.answered.Load(); quiet < looks; {
		select {
		case <-c.ended:
			return
		case <-tick.C:
		}
		c.mu.Lock()
		waits := len(c.waiting) > 0
		c.mu.Unlock()
		if now := c.answered.Load(); waits && now == last {
			quiet++
		} else {
			quiet, last = 0, now
		}
	}
	c.mu.Lock()
	c.why = fmt.Errorf("%s has answered nothing for %v", c.addr, silence)
	c.mu.Unlock()
	c.fail()
}

// ask sends one request and waits for its answer, no longer than timeout if that is not 0. NotTaken without a
// text means that nothing was sent.
func (c *Conn) ask(ctx context.Context, id uint64, timeout time.Duration, parts ...[]byte) (clientAnswer, error) {
	ch := make(chan clientAnswer, 1)
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return clientAnswer{status: NotTaken}, nil
	}
	c.waiting[id] = ch
	c.mu.Unlock()
	c.write(id, parts...)
	var late <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case a := <-ch:
		if a.broken {
			return a, c.indeterminate()
		}
		return a, nil
	case <-late:
		return clientAnswer{}, fmt.Errorf("%s has answered nothing for %v: %w", c.addr, timeout, ErrIndeterminate)
	case <-ctx.Done():
		c.forget(id)
		return clientAnswer{}, context.Cause(ctx)
	}
}

// forget drops a request that no goroutine waits for any more. A later answer is ignored.
func (c *Conn) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
	c.endRetired()
}

func (c *Conn) indeterminate() error {
	if why := c.reason(); why != nil {
		return fmt.Errorf("%w (%w)", ErrIndeterminate, why)
	}
	return ErrIndeterminate
}

// write sends a message. Of several goroutines that write at the same time the last one flushes for all.
func (c *Conn) write(id uint64, parts ...[]byte) {
	c.mu.Lock()
	c.queued++
	c.mu.Unlock()
	c.writing.Lock()
	defer c.writing.Unlock()
	writeMessage(c.out, id, parts...)
	c.mu.Lock()
	c.queued--
	last := c.queued == 0
	c.mu.Unlock()
	if last {
		_ = c.out.Flush() // the reader sees a connection that has failed
	}
}

func writeMessage(w *bufio.Writer, id uint64, parts ...[]byte) {
	n := idBytes
	for _, p := range parts {
		n += len(p)
	}
	var head [4 + idBytes]byte
	binary.LittleEndian.PutUint32(head[:], uint32(n))
	binary.LittleEndian.PutUint64(head[4:], id)
	_, _ = w.Write(head[:]) // Flush returns the error
	for _, p := range parts {
		_, _ = w.Write(p)
	}
}

// readMessage reads one message. The body belongs to the caller.
func readMessage(r *bufio.Reader) (id uint64, body []byte, err error) {
	var head [4 + idBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n < idBytes || n > maxMessage {
		return 0, nil, fmt.Errorf("a message of %d bytes, want %d to %d", n, idBytes, maxMessage)
	}
	body = make([]byte, n-idBytes)
	_, err = io.ReadFull(r, body)
	return binary.LittleEndian.Uint64(head[4:]), body, err
}
