package front

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"time"
)

// preface begins every HTTP/2 connection (RFC 9113 §3.4). No HTTP/1.1 request begins so.
var preface = []byte("PRI * HTTP/2.0")

// Bounds of connections that have not said yet what they are.
const (
	firstBytesTimeout = 10 * time.Second // for the handshake of TLS and for the first bytes
	maxStrangers      = 4096             // at one time on one listener; more wait to be accepted
)

// queue is a listener whose connections come from a sorter.
type queue struct {
	addr  net.Addr
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func newQueue(addr net.Addr) *queue {
	return &queue{addr: addr, conns: make(chan net.Conn), ended: make(chan struct{})}
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.ended:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error {
	q.once.Do(func() { close(q.ended) })
	return nil
}

func (q *queue) Addr() net.Addr { return q.addr }

// give hands a connection over, or closes it if the listener is closed.
func (q *queue) give(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.ended:
		_ = c.Close()
	}
}

// sorter accepts the connections of one listener, and gives each to gRPC or to HTTP. One of the two may
// be nil: the listener serves only the other one then.
type sorter struct {
	net.Listener
	tls        *reloader // nil: plain
	grpc, http *queue
	strangers  chan struct{}
}

// serve accepts until the listener is closed.
func (s *sorter) serve() error {
	s.strangers = make(chan struct{}, maxStrangers)
	for pause := time.Millisecond; ; {
		s.strangers <- struct{}{}
		c, err := s.Accept()
		if err != nil {
			<-s.strangers
			if temporary(err) {
				<-time.After(pause) // descriptors are short; connections that end make room
				pause = min(2*pause, time.Second)
				continue
			}
			return err
		}
		pause = time.Millisecond
		go s.sort(c)
	}
}

// temporary reports whether accepting may work again later.
func temporary(err error) bool {
	t, ok := err.(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// sort finds out what a connection speaks, and gives it away.
func (s *sorter) sort(c net.Conn) {
	to, sorted := s.look(c)
	<-s.strangers
	if to == nil {
		_ = c.Close()
		return
	}
	to.give(sorted)
}

func (s *sorter) look(c net.Conn) (to *queue, sorted net.Conn) {
	_ = c.SetDeadline(time.Now().Add(firstBytesTimeout))
	defer func() {
		if to != nil {
			_ = sorted.SetDeadline(time.Time{})
		}
	}()
	if s.tls != nil {
		t := tls.Server(c, s.tls.config())
		if t.Handshake() != nil {
			return nil, nil
		}
		switch t.ConnectionState().NegotiatedProtocol {
		case "h2":
			return s.choose(true), t
		case "http/1.1":
			return s.choose(false), t
		}
		c = t // an old client without ALPN: its first bytes tell
	}
	if s.http == nil {
		return s.grpc, c
	}
	if s.grpc == nil {
		return s.http, c
	}
	head := make([]byte, 0, len(preface))
	for len(head) < len(preface) && bytes.HasPrefix(preface, head) {
		n, err := c.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if err != nil && (err != io.EOF || len(head) == 0) {
			return nil, nil
		} else if err != nil {
			break
		}
	}
	return s.choose(bytes.Equal(head, preface)), peeked(c, head)
}

func (s *sorter) choose(h2 bool) *queue {
	if h2 {
		return s.grpc
	}
	return s.http
}

// peekedConn returns the bytes again that were read to sort it.
type peekedConn struct {
	net.Conn
	head []byte
}

// peekedTLS is a peekedConn whose TLS connection stays visible.
type peekedTLS struct {
	peekedConn
	tls *tls.Conn
}

func peeked(c net.Conn, head []byte) net.Conn {
	p := peekedConn{c, head}
	if t, ok := c.(*tls.Conn); ok {
		return &peekedTLS{p, t}
	}
	return &p
}

func (p *peekedConn) Read(b []byte) (int, error) {
	if len(p.head) > 0 {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}
