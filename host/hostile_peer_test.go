package host

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/transport/cert"
)

// hostilePeer is a program that has what a member has: its certificate, its key and what its directory says
// of it. It speaks the protocol of transport/tcp byte by byte, as well or as badly as a test wants. What it
// writes is written here by hand, as the drawings in transport/tcp/hello.go and transport/frame.go say, so
// that it can be wrong.
type hostilePeer struct {
	id      uint64
	self    transport.Introduction
	config  *tls.Config
	addrs   map[uint64]string // of the others
	accepts net.Listener      // at the address of the member, where the others dial it
	closed  chan struct{}

	mu     sync.Mutex
	reads  bool                        // what the others send it
	bodies map[transport.Kind][][]byte // that it has read, some of them
	open   []net.Conn
}

var castagnoliTable = crc32.MakeTable(crc32.Castagnoli)

// newHostilePeer makes a peer from a member whose host is not running any more.
func newHostilePeer(t *testing.T, was *Host, c *cert.Credentials, others []*Host) *hostilePeer {
	t.Helper()
	p := &hostilePeer{id: was.config.ID, self: was.trust.admission.Self(), addrs: map[uint64]string{}, reads: true, bodies: map[transport.Kind][][]byte{}, closed: make(chan struct{})}
	p.self.Generation++
	p.self.Life ^= 1 << 40
	p.config = &tls.Config{
		Certificates: []tls.Certificate{c.Certificate}, MinVersion: tls.VersionTLS13, NextProtos: []string{"millrace"},
		InsecureSkipVerify: true, ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
	}
	for _, h := range others {
		p.addrs[h.config.ID] = h.Addr()
	}
	l, err := net.Listen("tcp", was.Addr())
	if err != nil {
		t.Fatal(err)
	}
	p.accepts = l
	go p.accept()
	t.Cleanup(p.close)
	return p
}

func (p *hostilePeer) close() {
	p.accepts.Close()
	close(p.closed)
	p.hangUp()
}

// hangUp closes all connections that are open.
func (p *hostilePeer) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		c.Close()
	}
	p.open = nil
}

// setReads says whether the peer reads what the others send it.
func (p *hostilePeer) setReads(on bool) {
	p.mu.Lock()
	p.reads = on
	p.mu.Unlock()
	p.hangUp()
}

func (p *hostilePeer) note(c net.Conn) (reads bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, c)
	return p.reads
}

// accept welcomes everyone, as a member does.
func (p *hostilePeer) accept() {
	for {
		conn, err := p.accepts.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			c := tls.Server(conn, p.config)
			reads := p.note(conn)
			if _, err := readHelloOf(c); err != nil {
				return
			}
			if _, err := c.Write(sealedBody(verdictHead(0, 3), p.self.Append(nil))); err != nil {
				return
			}
			if reads {
				p.read(c)
				return
			}
			<-p.closed // nothing is read until then, or until hangUp closes the connection
		}()
	}
}

// read keeps some of the bodies that come.
func (p *hostilePeer) read(c net.Conn) {
	var parts [transport.Kinds][]byte
	for {
		head := make([]byte, transport.HeaderBytes)
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		h, err := transport.ParseHeader(head)
		if err != nil {
			return
		}
		body := make([]byte, h.BodyBytes)
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		if parts[h.Kind] = append(parts[h.Kind], body...); h.Continued {
			continue
		}
		p.mu.Lock()
		if all := append(p.bodies[h.Kind], parts[h.Kind]); len(all) < 1000 {
			p.bodies[h.Kind] = all
		}
		p.mu.Unlock()
		parts[h.Kind] = nil
	}
}

// oldBodies returns what the others have sent it, made to look as if it had come from this peer.
func (p *hostilePeer) oldBodies(to uint64) (all []lie) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for kind, bodies := range p.bodies {
		for _, b := range bodies {
			if kind != transport.Consensus {
				all = append(all, lie{name: "replayed", kind: kind, body: b})
				continue
			}
			batch, err := transport.DecodeBody(b, nil)
			if err != nil {
				continue
			}
			for i := range batch {
				m := batch[i].Message
				m.From, m.To = p.id, to
				all = append(all, lie{name: "replayed", m: &m})
			}
		}
	}
	return all
}

// helloLies changes what a hello says. The zero value changes nothing.
type helloLies struct {
	lowest, highest, class uint32
	to                     uint64
	change                 func(*transport.Introduction)
	body                   []byte // in place of the introduction
	length                 uint32 // in place of its length
	sum                    uint32 // added to the checksum
}

func appendHello(to uint64, class transport.Class, self transport.Introduction, l helloLies) []byte {
	if l.change != nil {
		l.change(&self)
	}
	body := self.Append(nil)
	if l.body != nil {
		body = l.body
	}
	b := []byte("millrace")
	b = binary.LittleEndian.AppendUint32(b, 3+l.highest)
	b = binary.LittleEndian.AppendUint32(b, 3+l.lowest)
	b = binary.LittleEndian.AppendUint32(b, uint32(class)+l.class)
	b = binary.LittleEndian.AppendUint64(b, to+l.to)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body))+l.length)
	b = append(b, body...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoliTable)+l.sum)
}

func verdictHead(code, version uint32) []byte {
	b := binary.LittleEndian.AppendUint32([]byte("millrace"), code)
	return binary.LittleEndian.AppendUint32(b, version)
}

// sealedBody appends the length of a body, the body, and the checksum of everything.
func sealedBody(head, body []byte) []byte {
	b := append(binary.LittleEndian.AppendUint32(head, uint32(len(body))), body...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoliTable))
}

func readHelloOf(r io.Reader) (body []byte, err error) {
	head := make([]byte, 32)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	body = make([]byte, min(binary.LittleEndian.Uint32(head[28:]), 1<<20)+4)
	_, err = io.ReadFull(r, body)
	return body, err
}

var errNotWelcome = errors.New("not welcome")

// dial makes a connection of a class and says hello. Another verdict than a welcome is errNotWelcome.
func (p *hostilePeer) dial(to uint64, class transport.Class, l helloLies) (net.Conn, error) {
	return p.dialFrom("127.0.0.1:0", to, class, l)
}

// dialFrom dials from an address of the loopback interface.
func (p *hostilePeer) dialFrom(from string, to uint64, class transport.Class, l helloLies) (net.Conn, error) {
	local, err := net.ResolveTCPAddr("tcp", from)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: local}
	conn, err := d.Dial("tcp", p.addrs[to])
	if err != nil {
		return nil, err
	}
	p.note(conn)
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, err
	}
	c := tls.Client(conn, p.config)
	head := make([]byte, 20)
	if _, err = c.Write(appendHello(to, class, p.self, l)); err == nil {
		_, err = io.ReadFull(c, head)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	if code := binary.LittleEndian.Uint32(head[8:]); code != 0 {
		why := make([]byte, min(binary.LittleEndian.Uint32(head[16:]), 8<<10))
		_, _ = io.ReadFull(c, why)
		conn.Close()
		return nil, fmt.Errorf("%w: verdict %d: %s", errNotWelcome, code, why)
	}
	body := make([]byte, binary.LittleEndian.Uint32(head[16:])+4)
	if _, err := io.ReadFull(c, body); err != nil {
		conn.Close()
		return nil, err
	}
	return c, conn.SetDeadline(time.Time{})
}

// frames returns the frames of a lie.
func (l *lie) frames(group uint64) []byte {
	if l.m == nil {
		return transport.AppendFrames(nil, l.kind, l.body)
	}
	return transport.AppendFrames(nil, transport.Consensus, transport.AppendMessage(nil, group, l.m))
}

// class returns the class of connection on which a lie travels.
func (l *lie) class() transport.Class {
	if l.m == nil {
		return l.kind.Class()
	}
	return transport.ClassConsensus
}

// hostileLine is the connections of a peer to one member, which it makes again when they are closed.
type hostileLine struct {
	p     *hostilePeer
	to    uint64
	conns [transport.Classes]net.Conn
	dials int
}

// write writes to a connection of a class. Its failure is forgotten: the next write dials again.
func (l *hostileLine) write(class transport.Class, bytes []byte) {
	if l.conns[class] == nil {
		c, err := l.p.dial(l.to, class, helloLies{})
		if err != nil {
			return
		}
		l.dials++
		l.conns[class] = c
	}
	c := l.conns[class]
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	if _, err := c.Write(bytes); err != nil {
		c.Close()
		l.conns[class] = nil
	}
}

// paced calls do at a pace, until the context ends.
func paced(ctx context.Context, every time.Duration, do func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}
