package tcp

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/millrace/millrace/transport"
)

// keepEnvelopes is the largest batch whose slice is used again.
const keepEnvelopes = 4096

// inbound is a connection that somebody dialed to us; we only receive on it. done is closed when it will deliver
// nothing more.
type inbound struct {
	conn net.Conn
	done chan struct{}
}

// inboundSet holds all inbound connections, and per peer the newest that said hello.
type inboundSet struct {
	mu     sync.Mutex
	closed bool
	all    map[*inbound]bool
	newest map[uint64]*inbound
}

func (s *inboundSet) init() { s.all, s.newest = map[*inbound]bool{}, map[uint64]*inbound{} }

// admit registers a connection unless there are too many.
func (s *inboundSet) admit(conn net.Conn, most int) (*inbound, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.all) >= most {
		return nil, false
	}
	in := &inbound{conn: conn, done: make(chan struct{})}
	s.all[in] = true
	return in, true
}

// supersede makes in the connection of a peer, closes the one before it, and returns that one. Invariant: a connection
// is done only after all that it superseded are.
func (s *inboundSet) supersede(from uint64, in *inbound) *inbound {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.newest[from]
	s.newest[from] = in
	if before != nil {
		before.conn.Close()
	}
	return before
}

func (s *inboundSet) remove(from uint64, in *inbound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, in)
	if s.newest[from] == in {
		delete(s.newest, from)
	}
}

func (s *inboundSet) closeFrom(from uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.newest[from]; in != nil {
		in.conn.Close()
	}
}

func (s *inboundSet) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for in := range s.all {
		in.conn.Close()
	}
}

// accept runs until the listener is closed.
func (t *Transport) accept() {
	for {
		conn, err := t.listener.Accept()
		if err != nil {
			if t.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			t.log.warn("cannot accept a connection", "error", err) // out of descriptors, most likely
			pause(t.ctx, 50*time.Millisecond)
			continue
		}
		t.count.accepts.Add(1)
		in, ok := t.inbound.admit(conn, t.o.MaxInbound)
		if !ok {
			conn.Close()
			t.count.refusals.Add(1)
			t.log.warn("refused a connection: there are too many", "remote", conn.RemoteAddr(), "limit", t.o.MaxInbound)
			continue
		}
		t.work.Go(func() { t.serve(in) })
	}
}

// serve is the life of one inbound connection.
func (t *Transport) serve(in *inbound) {
	defer in.conn.Close()
	from, err := t.greet(in.conn)
	if err != nil {
		t.inbound.remove(0, in)
		t.count.refusals.Add(1)
		t.log.warn("refused a connection", "remote", in.conn.RemoteAddr(), "from", from, "error", err)
		return
	}
	before := t.inbound.supersede(from, in)
	defer t.inbound.remove(from, in)
	defer close(in.done)
	if before != nil {
		<-before.done
	}
	if t.peer(from) == nil {
		return // removed since the greeting
	}
	err = t.deliver(from, in.conn)
	switch {
	case errors.Is(err, transport.ErrBadFrame):
		t.count.badFrames.Add(1)
		t.log.warn("closed a connection for what came over it", "from", from, "error", err)
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
	default:
		t.log.warn("a connection broke", "from", from, "error", err)
	}
}

// greet is the accepting side of the handshake.
func (t *Transport) greet(conn net.Conn) (from uint64, err error) {
	if err := conn.SetDeadline(time.Now().Add(t.o.HandshakeTimeout)); err != nil {
		return 0, err
	}
	h, err := readHello(conn)
	if err != nil {
		return 0, err
	}
	v := judge(h, t.o.Cluster, t.o.ID, func(id uint64) bool { return t.peer(id) != nil })
	if _, err := conn.Write(v.append(nil)); err != nil {
		return h.from, err
	}
	if v != welcome {
		return h.from, errors.New(v.String())
	}
	return h.from, conn.SetDeadline(time.Time{})
}

// deliver passes on frame after frame until the connection ends.
func (t *Transport) deliver(from uint64, conn net.Conn) error {
	frames := newFrameReader(conn, t.o.FrameBytes, t.o.StallTimeout)
	var batch []transport.Envelope
	for {
		body, err := frames.next()
		if err != nil {
			return err
		}
		if batch, err = transport.DecodeBody(body, batch[:0]); err != nil {
			return err
		}
		t.count.framesReceived.Add(1)
		t.count.messagesReceived.Add(uint64(len(batch)))
		t.count.bytesReceived.Add(uint64(len(body) + transport.HeaderBytes))
		if batch = t.withoutForeign(batch, from); len(batch) == 0 {
			continue
		}
		transport.Detach(batch)
		t.receiver.Receive(from, batch)
		if clear(batch); cap(batch) > keepEnvelopes {
			batch = nil
		}
	}
}

// withoutForeign drops messages that the peer has no business to send us.
func (t *Transport) withoutForeign(batch []transport.Envelope, from uint64) []transport.Envelope {
	kept := batch[:0]
	for i := range batch {
		if transport.Foreign(&batch[i].Message, from, t.o.ID) {
			t.count.droppedSender.Add(1)
			m := &batch[i].Message
			t.log.warn("dropped a message that is not its sender's", "peer", from, "type", m.Type, "from", m.From, "to", m.To)
			continue
		}
		if len(kept) < i {
			kept = append(kept, batch[i])
		} else {
			kept = batch[:i+1]
		}
	}
	return kept
}
