// Package grpctransport is a transport over gRPC, for comparison with transport/tcp. It keeps the contract of
// package transport, and passes its kit.
//
// A host has one gRPC connection to each peer, and on it one stream of messages for each class. The first
// message of a stream introduces the sender; then each is the kind and a body of package transport, so the
// bytes of Raft's messages are the same as over TCP. What differs is what gRPC does: HTTP/2 frames, flow
// control for each stream and connection, its buffers and its goroutines.
//
//	grpctransport.go   the host's end: address book, sending, closing
//	line.go            what waits for a peer in one class, and the stream that takes it
//	inlet.go           what a peer sends in one class
//	wire.go            the bytes of a message, and of an introduction
//
// There is no TLS: the introduction is believed. It is for the lab's loopback only.
package grpctransport

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/millrace/millrace/cmd/lab/component"
	"github.com/millrace/millrace/transport"
)

// Listen opens the transport of a host on a free port of 127.0.0.1.
func Listen(id uint64) (component.Transport, error) {
	t, err := listen(id, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Transport is a host's end of the network.
type Transport struct {
	id       uint64
	listener net.Listener
	server   *grpc.Server
	quit     context.Context // ends with Close
	stop     context.CancelFunc
	work     sync.WaitGroup // goroutines, handlers of streams included
	lossWake chan struct{}

	receiver transport.Receiver // set by Start, before there is a goroutine

	mu     sync.Mutex
	self   transport.Introduction
	begun  bool // Start was called
	closed bool
	peers  map[uint64]*peer
	inlets map[source]*inlet
	lost   map[uint64]bool // peers to report as unreachable
	stats  transport.Stats
}

// peer is one line of the address book.
type peer struct {
	addr  string
	conn  *grpc.ClientConn // nil until something is sent
	lines [transport.Classes]*line
}

// reconnect is how soon gRPC dials again. Its defaults, a second and more, are for servers far away.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 200 * time.Millisecond},
	MinConnectTimeout: time.Second,
}

func listen(id uint64, addr string) (*Transport, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	t := &Transport{
		id: id, listener: listener, lossWake: make(chan struct{}, 1),
		peers: map[uint64]*peer{}, inlets: map[source]*inlet{}, lost: map[uint64]bool{},
	}
	t.quit, t.stop = context.WithCancel(context.Background())
	t.server = grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.MaxRecvMsgSize(maxMessageBytes))
	t.server.RegisterService(&service, t)
	return t, nil
}

// Addr returns the address on which the host listens.
func (t *Transport) Addr() string { return t.listener.Addr().String() }

// SetPeer adds a peer to the address book or changes its address.
func (t *Transport) SetPeer(id uint64, addr string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.peers[id]; id == t.id || t.closed || p != nil && p.addr == addr {
		return
	}
	t.drop(id)
	t.peers[id] = &peer{addr: addr}
}

// RemovePeer removes a peer from the address book: nothing more is sent to it or accepted from it.
func (t *Transport) RemovePeer(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(id)
}

// drop ends what goes to a peer. mu is held.
func (t *Transport) drop(id uint64) {
	p := t.peers[id]
	if p == nil {
		return
	}
	delete(t.peers, id)
	for _, l := range p.lines {
		if l != nil {
			l.end()
		}
	}
	if p.conn != nil {
		_ = p.conn.Close() // what is under way is lost, which is what the caller wants
	}
}

// Start begins to deliver to r, and to send.
func (t *Transport) Start(r transport.Receiver) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if t.begun {
		panic("grpctransport: Start called twice")
	}
	t.begun, t.receiver, t.self = true, r, r.Introduce()
	t.self.ID, t.self.Key = t.id, [32]byte{}
	t.work.Go(t.reportLosses)
	t.work.Go(func() { _ = t.server.Serve(t.listener) }) // until Close
}

// Send encodes the messages of batch and queues them for one host.
func (t *Transport) Send(to uint64, batch []transport.Envelope) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	stats := &t.stats.Kinds[transport.Consensus]
	l := t.line(to, transport.ClassConsensus)
	if l == nil {
		stats.DroppedUnknown += uint64(len(batch))
		return false
	}
	sent := true
	for i := range batch {
		size := transport.MessageBytes(batch[i].Group, &batch[i].Message)
		switch {
		case size > transport.DefaultFrameBytes:
			stats.DroppedTooLarge++
		case !transport.Fits(l.waits[transport.Consensus], size, bounds[transport.Consensus]):
			stats.DroppedFull++
		default:
			l.join(&batch[i], size)
			stats.Sent++
			continue
		}
		sent = false
		t.lose(to)
	}
	signal(l.wake)
	return sent
}

// SendBytes queues one body of kind Pulse, Control or Bulk.
func (t *Transport) SendBytes(to uint64, kind transport.Kind, body []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	stats := &t.stats.Kinds[kind.Opaque()]
	l := t.line(to, kind.Class())
	switch {
	case l == nil:
		stats.DroppedUnknown++
		return false
	case len(body) > kind.MaxBodyBytes(transport.DefaultFrameBytes):
		stats.DroppedTooLarge++
		return false
	case kind == transport.Pulse:
		if l.pulse != nil {
			stats.Replaced++
		}
		l.pulse, l.waits[kind] = message(kind, body), len(body)
	case !transport.Fits(l.waits[kind], len(body), bounds[kind]):
		stats.DroppedFull++
		return false
	default:
		l.queue = append(l.queue, message(kind, body))
		l.waits[kind] += len(body)
	}
	stats.Sent++
	signal(l.wake)
	return true
}

// bounds are on what waits for one peer, by kind.
var bounds = [transport.Kinds]int{
	transport.Consensus: transport.DefaultQueueBytes, transport.Pulse: transport.MaxPulseBytes,
	transport.Control: transport.DefaultControlBytes, transport.Bulk: transport.DefaultBulkBytes,
}

// lose notes that a peer must be reported as unreachable. mu is held.
func (t *Transport) lose(id uint64) {
	t.lost[id] = true
	signal(t.lossWake)
}

// reportLosses reports what was lost, until Close.
func (t *Transport) reportLosses() {
	for {
		select {
		case <-t.quit.Done():
			return
		case <-t.lossWake:
		}
		t.mu.Lock()
		lost := t.lost
		t.lost = map[uint64]bool{}
		t.stats.Reports += uint64(len(lost))
		t.mu.Unlock()
		for id := range lost {
			if t.quit.Err() != nil {
				return
			}
			t.receiver.Unreachable(id)
		}
	}
}

// Stats returns the counts so far. Frames are messages of gRPC, and bytes those of their bodies.
func (t *Transport) Stats() transport.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	for _, p := range t.peers {
		for _, l := range p.lines {
			if l == nil {
				continue
			}
			for kind, bytes := range l.waits {
				s.Kinds[kind].QueuedBytes += bytes
			}
		}
	}
	return s
}

// Review implements transport.Reviewer.
func (t *Transport) Review(id uint64) {
	for class := range transport.Class(transport.Classes) {
		t.mu.Lock()
		in := t.inlets[source{id, class}]
		t.mu.Unlock()
		if in != nil {
			in.review()
		}
	}
}

// Close drops what waits, and returns when the receiver is not called any more.
func (t *Transport) Close() error {
	t.mu.Lock()
	first, begun := !t.closed, t.begun
	t.closed = true
	if first {
		for id := range t.peers {
			t.drop(id)
		}
	}
	t.mu.Unlock()
	if first {
		t.stop()
		t.server.Stop()
		if !begun {
			_ = t.listener.Close() // nothing was accepted
		}
	}
	t.work.Wait()
	return nil
}

// begin counts a goroutine that works for the transport, unless it is closed.
func (t *Transport) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.work.Add(1)
	return true
}

func signal(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

var _ transport.Reviewer = (*Transport)(nil)
