package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// stallChunkBytes is how many bytes of a write or of a frame must be transferred within one
// Options.StallTimeout.
const stallChunkBytes = 64 << 10

// link is a connection that this host dialed, after the welcome. Only this host sends on it, so anything from
// the other end ends the link, be it a byte, a reset or an end of stream.
type link struct {
	conn net.Conn
	raw  syscall.RawConn
	dead chan struct{} // closed by fail
	once sync.Once
	err  error // the cause; set before dead is closed

	// Guarded by peer.mu.
	busy      bool  // Invariant: only the goroutine that set it writes
	left      burst // the rest of a sender's write, for the writer goroutine, which inherits busy
	leftAt    int   // the first byte of left that is not written
	hasLeft   bool  //
	lastWrite time.Time

	// Owned by the goroutine that set busy. The callback is made once, so that a write allocates nothing.
	attempt struct {
		write func(fd uintptr) bool
		p     []byte
		n     int
		err   error
	}
}

func newLink(conn *net.TCPConn) (*link, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, raw: raw, dead: make(chan struct{})}
	l.attempt.write = func(fd uintptr) bool {
		l.attempt.n, l.attempt.err = writeOnce(fd, l.attempt.p)
		return true
	}
	return l, nil
}

// fail ends the link. The first error wins.
func (l *link) fail(err error) {
	l.once.Do(func() {
		l.err = err
		l.conn.Close()
		close(l.dead)
	})
}

var errTalksBack = errors.New("the peer sent bytes on a connection on which it may only receive")

// watch reads from a connection that carries no data to this host, to notice its end.
func (l *link) watch() {
	var b [1]byte
	n, err := l.conn.Read(b[:])
	if n > 0 {
		err = errTalksBack
	}
	l.fail(err)
}

// tryWrite passes p to the socket once, without waiting. The socket may take all of p, a part or nothing.
func (l *link) tryWrite(p []byte) (int, error) {
	a := &l.attempt
	a.p, a.n, a.err = p, 0, nil
	err := l.raw.Write(a.write)
	a.p = nil
	if err == nil {
		err = a.err
	}
	return a.n, err
}

// writeAll writes all of p. It takes as long as needed, while bytes keep moving.
func (l *link) writeAll(p []byte, stall time.Duration) error {
	n, err := l.tryWrite(p)
	if p = p[n:]; err != nil || len(p) == 0 {
		return err
	}
	for len(p) > 0 {
		if err := l.conn.SetWriteDeadline(time.Now().Add(stall)); err != nil {
			return err
		}
		n, err := l.conn.Write(p[:min(len(p), stallChunkBytes)])
		if p = p[n:]; err != nil {
			return err
		}
	}
	// A deadline that expires while the link is idle would fail the next tryWrite.
	return l.conn.SetWriteDeadline(time.Time{})
}

// dial connects to a peer and performs the handshake.
func (t *Transport) dial(ctx context.Context, to uint64, addr string) (*link, error) {
	dialer := net.Dialer{Timeout: t.o.DialTimeout, KeepAliveConfig: keepAlive}
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.TCPConn)
	// Cancelling ctx, because the peer is removed or has moved, must not wait for the handshake.
	unhook := context.AfterFunc(ctx, func() { conn.Close() })
	l, err := t.introduce(conn, to)
	if !unhook() || err != nil {
		conn.Close()
		return nil, errors.Join(err, ctx.Err())
	}
	return l, nil
}

func (t *Transport) introduce(conn *net.TCPConn, to uint64) (*link, error) {
	_ = conn.SetNoDelay(true)
	limitUnacked(conn, t.o.StallTimeout)
	if err := conn.SetDeadline(time.Now().Add(t.o.HandshakeTimeout)); err != nil {
		return nil, err
	}
	h := hello{version: version, to: to, from: t.self}
	if _, err := conn.Write(h.append(nil)); err != nil {
		return nil, err
	}
	v, err := readVerdict(conn)
	if err != nil {
		return nil, fmt.Errorf("no answer to the hello: %w", err)
	}
	if v.code != welcome {
		return nil, fmt.Errorf("refused: %s", v.why)
	}
	if v.host.ID != to {
		return nil, fmt.Errorf("refused by this host: host %d answered instead of host %d", v.host.ID, to)
	}
	if err := t.receiver.Admit(v.host, conn.RemoteAddr().String()); err != nil {
		return nil, fmt.Errorf("refused by this host: %w", err)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return newLink(conn)
}

// keepAlive detects the dead peer of an idle connection in about half a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}
