package tcp

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/transport"
)

// keepEnvelopes is the largest batch whose slice is reused.
const keepEnvelopes = 4096

// inbound is a connection that another program dialed to this host, which only receives on it. It is a
// stranger's until its hello is read.
type inbound struct {
	conn net.Conn
	addr string // of the other end, without the port
	// Set by greet: what the hosts say to each other goes over stream, which is conn without TLS.
	stream  net.Conn
	channel *channel // beneath TLS, or nil
	proof   *proof   // nil without TLS
	spoke   bool     // a byte came
	peer    transport.Introduction

	entered bool          // supersede was called; guarded by inboundSet.mu
	from    sender        // of its hello, if the peer is in the address book, else zero; guarded by inboundSet.mu
	done    chan struct{} // closed when the connection has delivered its last message
}

// sender is one class of one peer. Its connections replace each other.
type sender struct {
	peer  uint64
	class transport.Class
}

// A member must get in whatever strangers do. Silent connections cost nothing to make, and 256 of them once
// kept a restarted member out and so left a cluster without a leader. So strangers have slots of their own,
// few for each address, and a new stranger takes the slot of the oldest: a host says hello at once, and a
// silent program loses its slot. Members do not count as strangers after their hello.
const (
	maxStrangersPerAddr = 16
	// maxPerSender bounds the connections of one peer in one class: the newest, superseded ones that still
	// deliver, and those for which Receiver.Admit waits for a disk.
	maxPerSender = 8
)

// inboundSet holds all inbound connections, and for each sender the newest that was welcome.
type inboundSet struct {
	mu        sync.Mutex
	closed    bool
	strangers []*inbound // in order of arrival
	senders   map[sender][]*inbound
	newest    map[sender]*inbound
}

func (s *inboundSet) init() { s.senders, s.newest = map[sender][]*inbound{}, map[sender]*inbound{} }

// enter registers a stranger. If there are too many, evicted is the stranger whose connection was closed to
// make space. in is nil if the set is closed.
func (s *inboundSet) enter(conn net.Conn, maxStrangers int) (in, evicted *inbound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil
	}
	in = &inbound{conn: conn, addr: hostOf(conn.RemoteAddr()), done: make(chan struct{})}
	if evicted = s.crowded(in.addr, maxStrangers); evicted != nil {
		evicted.conn.Close()
		s.drop(evicted)
	}
	s.strangers = append(s.strangers, in)
	return in, evicted
}

// crowded returns the stranger that must go before one more from addr may enter: the oldest from addr if addr
// uses all its slots, the oldest from the address with the most strangers if all slots are used, or nil if
// there is a free slot.
func (s *inboundSet) crowded(addr string, maxStrangers int) *inbound {
	from, busiest := map[string]int{}, ""
	for _, in := range s.strangers {
		if from[in.addr]++; from[in.addr] > from[busiest] {
			busiest = in.addr
		}
	}
	switch {
	case from[addr] >= min(maxStrangersPerAddr, maxStrangers):
		busiest = addr
	case len(s.strangers) < maxStrangers:
		return nil
	}
	i := slices.IndexFunc(s.strangers, func(in *inbound) bool { return in.addr == busiest })
	return s.strangers[i]
}

func hostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return host
}

// recognize turns a stranger's connection into a connection of a sender. It returns false if the sender has
// too many.
func (s *inboundSet) recognize(in *inbound, from sender) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(in)
	if len(s.senders[from]) >= maxPerSender {
		return false
	}
	in.from = from
	s.senders[from] = append(s.senders[from], in)
	return true
}

// supersede makes in the newest connection of its sender, and closes and returns the one before it.
// Invariant: a connection is done only after all connections that it superseded.
func (s *inboundSet) supersede(in *inbound) *inbound {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.newest[in.from]
	s.newest[in.from], in.entered = in, true
	if before != nil {
		before.conn.Close()
	}
	return before
}

func (s *inboundSet) remove(in *inbound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(in)
}

// drop removes in from the set. The caller holds mu.
func (s *inboundSet) drop(in *inbound) {
	is := func(other *inbound) bool { return other == in }
	if in.from.peer == 0 {
		s.strangers = slices.DeleteFunc(s.strangers, is)
		return
	}
	if s.senders[in.from] = slices.DeleteFunc(s.senders[in.from], is); len(s.senders[in.from]) == 0 {
		delete(s.senders, in.from)
	}
	if s.newest[in.from] == in {
		delete(s.newest, in.from)
	}
}

// enteredFrom returns the connections of a peer that deliver, or will.
func (s *inboundSet) enteredFrom(peer uint64) (all []*inbound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for class := range transport.Class(transport.Classes) {
		for _, in := range s.senders[sender{peer, class}] {
			if in.entered {
				all = append(all, in)
			}
		}
	}
	return all
}

// all returns the connections that have shown a proof to the end.
func (s *inboundSet) all() []*inbound {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*inbound
	for _, connections := range s.senders {
		all = append(all, connections...)
	}
	return all
}

func (s *inboundSet) closeFrom(peer uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for class := range transport.Class(transport.Classes) {
		for _, in := range s.senders[sender{peer, class}] {
			in.conn.Close()
		}
	}
}

func (s *inboundSet) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, in := range s.strangers {
		in.conn.Close()
	}
	for _, connections := range s.senders {
		for _, in := range connections {
			in.conn.Close()
		}
	}
}

// acceptPause is the time to the next attempt when no connection can be accepted.
const acceptPause = 50 * time.Millisecond

// accept runs until the listener is closed. A process that has no descriptor left accepts nothing for a
// while; peers wait in the queue of the kernel, or dial again.
func (t *Transport) accept() {
	for {
		conn, err := t.listener.Accept()
		if err != nil {
			if t.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			t.log.warn(0, "cannot accept a connection", "error", err)
			pause(t.ctx, acceptPause)
			continue
		}
		t.count.accepts.Add(1)
		if !t.mayHandshake(conn) {
			continue
		}
		in, evicted := t.inbound.enter(conn, t.o.MaxStrangers)
		if in == nil {
			conn.Close()
			return
		}
		if evicted != nil {
			t.log.warn(0, "closed a connection without a hello, to make space for another", "remote", evicted.conn.RemoteAddr())
		}
		t.work.Go(func() { t.serve(in) })
	}
}

// serve handles one inbound connection until it ends.
func (t *Transport) serve(in *inbound) {
	defer in.conn.Close()
	defer t.inbound.remove(in)
	from, class, err := t.greet(in)
	if err != nil {
		remote := in.conn.RemoteAddr().String()
		if in.probed(err) {
			t.count.probes.Add(1)
			t.log.logger.Debug("a connection was closed before its first byte", "remote", remote)
			return
		}
		t.count.refusals.Add(1)
		if errors.Is(err, net.ErrClosed) {
			return // this host closed it
		}
		about := from
		if t.peer(from) == nil {
			about = 0 // a stranger may name any id
		}
		args := []any{"remote", remote}
		if from != 0 {
			args = append(args, "from", from, "connection", class)
		}
		t.log.report(topic{peer: about, message: "refused a connection", named: from != 0}, slog.LevelWarn, func() { t.tellCertificate(about, remote, err) }, append(args, "error", err)...)
		return
	}
	before := t.inbound.supersede(in)
	defer close(in.done)
	if before != nil {
		<-before.done
	}
	if t.peer(from) == nil || !transport.Keeps(t.receiver, in.peer) {
		return // removed, or replaced, since the greeting
	}
	err = t.deliver(from, class, in.stream)
	switch {
	case errors.Is(err, transport.ErrBadFrame):
		t.count.badFrames.Add(1)
		t.log.warn(from, "closed a connection that sent a bad frame", "connection", class, "error", err)
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		t.log.inform(from, "a connection broke", "connection", class, "error", err) // the peer was killed; what is wrong is said where it is dialed
	default:
		t.log.warn(from, "a connection broke", "connection", class, "error", err)
	}
}

// probed reports whether the other end has closed the connection before it sent a byte: a program has looked
// whether the port is open, or a host was stopped.
func (in *inbound) probed(err error) bool {
	return !in.spoke && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET))
}

// firstByte notes that something was read.
type firstByte struct {
	net.Conn
	came *bool
}

func (f *firstByte) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	*f.came = *f.came || n > 0
	return n, err
}

// greet is the accepting side of the handshake.
func (t *Transport) greet(in *inbound) (from uint64, class transport.Class, err error) {
	if err := in.conn.SetDeadline(time.Now().Add(t.o.HandshakeTimeout)); err != nil {
		return 0, 0, err
	}
	in.stream = &firstByte{Conn: in.conn, came: &in.spoke}
	if t.trust != nil {
		if err := t.secureInbound(in); err != nil {
			return 0, 0, err
		}
	}
	h, err := readHello(in.stream, t.versions)
	if t.trust == nil {
		in.stream = in.conn
	}
	if errors.Is(err, errSpeaksTLS) && t.trust == nil {
		t.refuseTLS(in.conn)
	}
	if err != nil {
		return t.provenID(in), 0, err
	}
	from, class = h.from.ID, h.class
	known := t.peer(from) != nil
	if t.ctx.Err() != nil {
		return from, class, net.ErrClosed // the empty address book of a closing host is no reason to refuse
	}
	if err := t.prove(in, &h); err != nil {
		_, _ = in.stream.Write(verdict{code: refusedCertificate, why: err.Error()}.append(nil))
		return from, class, err
	}
	if known && !t.inbound.recognize(in, sender{from, class}) {
		return from, class, fmt.Errorf("host %d already has %d connections of class %v", from, maxPerSender, class)
	}
	in.peer = h.from
	v := judge(h, t.versions, t.o.ID, known, func(i transport.Introduction) error {
		return t.receiver.Admit(i, in.conn.RemoteAddr().String())
	})
	v.host = t.introduction(in.proof)
	_, err = in.stream.Write(v.append(nil))
	if v.code != welcome {
		return from, class, errors.New(v.why) // even if the verdict could not be sent
	}
	in.welcomed(t.o.stall(class))
	if t.trust != nil {
		t.limit.prove(in.addr, time.Now())
	}
	return from, class, errors.Join(err, in.conn.SetDeadline(time.Time{}))
}

// deliver passes what a connection brings to the receiver until the connection ends.
func (t *Transport) deliver(from uint64, class transport.Class, conn net.Conn) error {
	bodies := newFrameReader(conn, class, t.o.FrameBytes, t.o.stall(class))
	var batch []transport.Envelope
	for {
		body, err := bodies.next()
		if err != nil {
			return err
		}
		count := &t.count.kinds[body.Kind]
		frames := body.Frames()
		count.framesReceived.Add(uint64(frames))
		count.bytesReceived.Add(uint64(len(body.Bytes) + frames*transport.HeaderBytes))
		if body.Kind != transport.Consensus {
			count.received.Add(1)
			t.receiver.Deliver(from, body.Kind, body.Bytes)
			continue
		}
		if batch, err = body.Messages(batch[:0]); err != nil {
			return err
		}
		count.received.Add(uint64(len(batch)))
		if batch = t.withoutForeign(batch, from); len(batch) == 0 {
			continue
		}
		body.Detach(batch)
		t.receiver.Receive(from, batch)
		if clear(batch); cap(batch) > keepEnvelopes {
			batch = nil
		}
	}
}

// withoutForeign drops messages that name another sender or receiver than their connection does.
func (t *Transport) withoutForeign(batch []transport.Envelope, from uint64) []transport.Envelope {
	kept := batch[:0]
	for i := range batch {
		if transport.Foreign(&batch[i].Message, from, t.o.ID) {
			t.count.droppedSender.Add(1)
			m := &batch[i].Message
			t.log.warn(from, "dropped a message that names another sender or receiver than its connection", "type", m.Type, "from", m.From, "to", m.To)
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
