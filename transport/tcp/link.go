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

// stallChunkBytes is how much must reach the socket, or arrive of a frame, within one Options.StallTimeout.
const stallChunkBytes = 64 << 10

// link is a connection that we dialed, after the welcome. Only bytes of ours travel on it, so whatever the other side
// does, be it a byte, a reset or an end, ends the link.
type link struct {
	conn net.Conn
	raw  syscall.RawConn
	dead chan struct{} // closed by fail
	once sync.Once
	err  error // why; set before dead is closed

	// Guarded by peer.mu.
	busy      bool  // Invariant: who set it writes, nobody else
	left      burst // what the sender's own write left for the writer goroutine, which then inherits busy
	leftAt    int   // its first byte that is not written
	hasLeft   bool  //
	lastWrite time.Time

	// Belongs to the one who is busy. The callback is made once, so that a write allocates nothing.
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

// fail ends the link; the first reason stays.
func (l *link) fail(err error) {
	l.once.Do(func() {
		l.err = err
		l.conn.Close()
		close(l.dead)
	})
}

var errTalksBack = errors.New("the peer sent bytes on a connection that it only receives on")

// watch notices the end of a connection on which nobody reads otherwise.
func (l *link) watch() {
	var b [1]byte
	n, err := l.conn.Read(b[:])
	if n > 0 {
		err = errTalksBack
	}
	l.fail(err)
}

// tryWrite hands p to the socket once, without waiting; it may take part of p or nothing.
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

// writeAll writes p, however long that takes as long as there is progress.
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
	// A deadline that passes while the link is idle would fail the next tryWrite.
	return l.conn.SetWriteDeadline(time.Time{})
}

// dial connects to a peer and introduces this host.
func (t *Transport) dial(ctx context.Context, to uint64, addr string) (*link, error) {
	dialer := net.Dialer{Timeout: t.o.DialTimeout, KeepAliveConfig: keepAlive}
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.TCPConn)
	// Whoever cancels ctx, because the peer is removed or has moved, must not wait for the handshake.
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
		return nil, fmt.Errorf("no verdict on our hello: %w", err)
	}
	if v.code != welcome {
		return nil, fmt.Errorf("refused: %s", v.why)
	}
	if v.host.ID != to {
		return nil, fmt.Errorf("refused by this host: host %d answered for host %d", v.host.ID, to)
	}
	if err := t.receiver.Admit(v.host, conn.RemoteAddr().String()); err != nil {
		return nil, fmt.Errorf("refused by this host: %w", err)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return newLink(conn)
}

// keepAlive finds the dead peer of an idle connection in about half a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}
