package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/transport"
)

// maxUnsentBytes bounds what the kernel holds of a connection of class consensus and has not sent. The rest
// waits in the queue of this program, where a pulse overtakes it. Two frames keep the connection busy while
// the writer wakes up.
const maxUnsentBytes = 128 << 10

// link is a connection that this host dialed, after the welcome. Only this host sends on it, so anything from
// the other end ends the link, be it a byte, a reset or an end of stream.
type link struct {
	conn  net.Conn // TCP, also beneath TLS
	raw   syscall.RawConn
	proof *proof // nil without TLS
	peer  transport.Introduction
	dead  chan struct{} // closed by fail
	once  sync.Once
	err   error // the cause; set before dead is closed

	// Guarded by line.mu.
	busy      bool // Invariant: only the goroutine that set it writes
	handed    bool // the writer goroutine inherits busy from a sender, which has not written everything
	lastWrite time.Time

	// Owned by the goroutine that set busy.
	burst  cutter   // what it took from the queue
	pulse  cutter   // the pulse that goes first
	pulsed bool     // the last frame was a pulse's
	pace   pace     // how large the frames of the burst are
	left   [][]byte // the rest of a frame that a sender began to write, as it goes to the socket
	// seal encrypts a frame; nil without TLS. What it returns is valid until the next call.
	seal   func(frame []byte) ([]byte, error)
	sealed [1][]byte // what it has returned
	// The callback is made once, so that a write allocates nothing.
	attempt struct {
		write func(fd uintptr) bool
		p     [][]byte
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
		l.attempt.n, l.attempt.err = writePieces(fd, l.attempt.p)
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

// apartBytes is how large the data of an entry is that is not copied on its way to the socket. For less the
// copy costs less than one more piece of a write does.
const apartBytes = 4 << 10

// bytesOf returns how many bytes pieces have.
func bytesOf(pieces [][]byte) (n int) {
	for _, p := range pieces {
		n += len(p)
	}
	return n
}

// after returns what follows the first n bytes of pieces. It changes them.
func after(pieces [][]byte, n int) [][]byte {
	for len(pieces) > 0 && n >= len(pieces[0]) {
		n -= len(pieces[0])
		pieces = pieces[1:]
	}
	if n > 0 {
		pieces[0] = pieces[0][n:]
	}
	return pieces
}

// first returns the first n bytes of pieces, or all. The pieces stay as they are.
func first(pieces [][]byte, n int) (part [][]byte) {
	for _, p := range pieces {
		if n == 0 {
			break
		}
		p = p[:min(n, len(p))]
		part = append(part, p)
		n -= len(p)
	}
	return part
}

// tryWrite passes p to the socket once, without waiting. The socket may take all of p, a part or nothing.
func (l *link) tryWrite(p [][]byte) (int, error) {
	a := &l.attempt
	a.p, a.n, a.err = p, 0, nil
	err := l.raw.Write(a.write)
	a.p = nil
	if err == nil {
		err = a.err
	}
	return a.n, err
}

// partBytes is how much may take one stall time: a frame of 64 KiB with its header, and with what TLS adds.
const partBytes = transport.FrameBodyBytes + 2<<10

// writeAll writes all of p, which is a frame or the rest of one. What the socket does not take at once is
// written in parts, and each may take one stall time.
func (l *link) writeAll(p [][]byte, stall time.Duration) error {
	n, err := l.tryWrite(p)
	if p = after(p, n); err != nil || len(p) == 0 {
		return err
	}
	for len(p) > 0 {
		if err := l.conn.SetWriteDeadline(time.Now().Add(stall)); err != nil {
			return err
		}
		part := first(p, partBytes)
		n := bytesOf(part)
		if _, err := (*net.Buffers)(&part).WriteTo(l.conn); err != nil {
			return err
		}
		p = after(p, n)
	}
	// A deadline that expires while the link is idle would fail the next tryWrite.
	return l.conn.SetWriteDeadline(time.Time{})
}

// dial connects to a peer for one class and performs the handshake.
func (t *Transport) dial(ctx context.Context, to uint64, addr string, class transport.Class) (*link, error) {
	conn, err := t.connect(ctx, to, addr)
	if err != nil {
		return nil, err
	}
	// Cancelling ctx, because the peer is removed or has moved, must not wait for the handshake.
	unhook := context.AfterFunc(ctx, func() { conn.Close() })
	l, err := t.introduce(conn, to, class)
	if !unhook() || err != nil {
		conn.Close()
		return nil, errors.Join(err, ctx.Err())
	}
	return l, nil
}

// resolve calls the user's Resolve. After a panic this attempt to connect fails, and the next one asks again.
func (t *Transport) resolve(ctx context.Context, to uint64, addr string) (found string, err error) {
	err = callUser("Resolve", func() (err error) {
		found, err = t.o.Resolve(ctx, to, addr)
		return err
	})
	return found, err
}

// connect finds a peer and connects to it.
func (t *Transport) connect(ctx context.Context, to uint64, addr string) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.o.DialTimeout)
	defer cancel()
	if t.o.Resolve != nil {
		found, err := t.resolve(ctx, to, addr)
		if err != nil {
			return nil, fmt.Errorf("asking where host %d is, at %s: %w", to, addr, err)
		}
		addr = found
	}
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

func (t *Transport) introduce(conn *net.TCPConn, to uint64, class transport.Class) (*link, error) {
	_ = conn.SetNoDelay(true)
	limitUnacked(conn, t.o.stall(class))
	if class == transport.ClassConsensus {
		limitUnsent(conn, maxUnsentBytes)
	}
	if err := conn.SetDeadline(time.Now().Add(t.o.HandshakeTimeout)); err != nil {
		return nil, err
	}
	l, err := newLink(conn)
	if err != nil {
		return nil, err
	}
	stream := net.Conn(conn)
	if t.trust != nil {
		secured, err := t.secure(l, to)
		if err != nil {
			return nil, err
		}
		l.proof.id, stream = to, secured
	}
	h := hello{versions: t.versions, class: class, to: to, from: t.introduction(l.proof)}
	if _, err := stream.Write(h.append(nil)); err != nil {
		return nil, err
	}
	v, err := readVerdict(stream)
	if err != nil {
		return nil, fmt.Errorf("no answer to the hello: %w", err)
	}
	if err := t.judgeVerdict(v, to); err != nil {
		return nil, &refusal{err}
	}
	if l.proof != nil {
		v.host.Key, v.host.Channel = l.proof.key(), l.proof.channel
	}
	l.peer = v.host
	l.pace.now, l.pace.isFixed = t.now, class != transport.ClassConsensus || v.version < largeFrames
	if err := t.receiver.Admit(v.host, conn.RemoteAddr().String()); err != nil {
		return nil, &refusal{fmt.Errorf("refused by this host: %w", err)}
	}
	if secured, ok := stream.(*securedLink); ok {
		l.seal = secured.channel.sealOn(secured.Conn)
	}
	return l, conn.SetDeadline(time.Time{})
}

// introduction returns what this host says of itself on a connection.
func (t *Transport) introduction(p *proof) transport.Introduction {
	self := t.self
	if p != nil {
		self.Channel = p.channel
	}
	self.Proof = transport.ProofOf(t.receiver, self.Channel)
	return self
}

// judgeVerdict returns why the verdict of host to is no welcome, and tells the receiver.
func (t *Transport) judgeVerdict(v verdict, to uint64) error {
	switch {
	case v.code == refusedDirectory:
		transport.TellRefusal(t.receiver, to, &transport.DirectoryRefused{Why: v.why})
	case v.code == refusedCertificate:
		return &certificateError{byPeer: true, err: fmt.Errorf("refused: %s", v.why)}
	}
	if v.code != welcome {
		return fmt.Errorf("refused: %s", v.why)
	}
	if !t.versions.has(v.version) {
		return fmt.Errorf("refused by this host: host %d chose version %d of the transport protocol, and this host speaks %v", to, v.version, t.versions)
	}
	if v.host.ID != to {
		return fmt.Errorf("refused by this host: host %d answered instead of host %d", v.host.ID, to)
	}
	transport.TellAdmission(t.receiver, to)
	return nil
}

// keepAlive detects the dead peer of an idle connection in about half a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}
