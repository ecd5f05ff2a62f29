// Package tcp is the transport over real sockets.
//
// Each host dials every peer it talks to and sends on that connection only; it receives on the connections that
// others dial to it. So a connection has one direction, one writer and one reader, and to be replaced needs no
// agreement between two sides:
//
//	Send ─► pending bytes of the peer ─► link (dialed, link.go) ═══ frames ═══► inbound (accepted) ─► Receiver
//	        peer.go                                                             inbound.go
//
// # Order
//
// Invariant: one goroutine at a time writes to a link, the one that set link.busy, and only what it took from the
// head of the queue. Invariant: a second connection from the same peer delivers nothing before the delivery of the
// first has ended. Together these keep a peer's messages in order, also across reconnects; gaps there may be.
//
// # The sender writes
//
// A hand-over to a writer goroutine costs a wake-up, and on the way of one proposal there are two such hops. So Send
// itself writes when the link is idle: once, without blocking. Whatever the socket does not take, and whatever other
// senders queue meanwhile, the peer's writer goroutine carries on with. Under load senders find the link busy and
// only append: then one write carries many messages. See inlinePause for when Send leaves it to the writer and for
// what that is worth.
//
// # Who gets in
//
// A connection is a stranger's until its hello is read. Strangers have few slots, of which an address has a part, and the
// oldest makes room for the next; a peer of the address book has slots of its own from its hello on (inbound.go). So no
// number of silent connections keeps a member out. The handshake (hello.go) ends with the question to both receivers.
//
// # Failure
//
// Nothing is retried. A link that fails takes with it what was queued, Unreachable is reported, and the peer is dialed
// again after a pause that doubles with jitter. What is queued while there is no link waits for the next attempt and
// is dropped when that fails, so that a peer that comes back is not greeted with an hour of old heartbeats.
package tcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// Options configure a Transport. Zero values mean the defaults in brackets.
type Options struct {
	ID     uint64 // of this host; not zero
	Listen string // address to bind, such as "10.0.0.1:7000"; port 0 picks one [127.0.0.1:0]

	QueueBytes   int64 // what may wait for one peer [64 MiB]
	FrameBytes   int   // the largest body of a frame that is accepted or sent [64 MiB]
	MaxStrangers int   // inbound connections that have not introduced themselves yet, at one time [64]

	DialTimeout      time.Duration // to connect [2 s]
	HandshakeTimeout time.Duration // to introduce oneself, on both sides [2 s]
	StallTimeout     time.Duration // for 64 KiB of a write or of a frame that has begun; for data unacknowledged [10 s]
	BackoffMin       time.Duration // first pause before dialing again [20 ms]
	BackoffMax       time.Duration // longest pause [1 s]

	Logger *slog.Logger // for what an operator should know, at most one line per sentence, peer and second [none]
}

func (o Options) withDefaults() (Options, error) {
	if o.ID == 0 {
		return o, errors.New("tcp: Options.ID is 0, which names no host")
	}
	if o.FrameBytes > 1<<31-1 {
		return o, fmt.Errorf("tcp: Options.FrameBytes is %d, at most %d", o.FrameBytes, 1<<31-1)
	}
	def(&o.Listen, "127.0.0.1:0")
	def(&o.QueueBytes, transport.DefaultQueueBytes)
	def(&o.FrameBytes, transport.DefaultFrameBytes)
	def(&o.MaxStrangers, 64)
	def(&o.DialTimeout, 2*time.Second)
	def(&o.HandshakeTimeout, 2*time.Second)
	def(&o.StallTimeout, 10*time.Second)
	def(&o.BackoffMin, 20*time.Millisecond)
	def(&o.BackoffMax, time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func def[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// Transport sends and receives for one host. Its methods may be called from any goroutine.
type Transport struct {
	o        Options
	listener net.Listener
	log      limitedLog
	count    counters
	herald   herald
	inline   bool // Send may write itself; off in benchmarks that compare

	ctx  context.Context // done when the transport closes
	stop context.CancelFunc
	work sync.WaitGroup // every goroutine of the transport

	// Set by Start, before there is a goroutine.
	receiver transport.Receiver
	self     transport.Introduction

	mu      sync.RWMutex
	started bool
	closed  bool
	peers   map[uint64]*peer

	inbound inboundSet
}

// counters are the Stats that are counted rather than looked up.
type counters struct {
	messagesSent, framesSent, bytesSent             atomic.Uint64
	messagesReceived, framesReceived, bytesReceived atomic.Uint64
	writesInline, writesQueued                      atomic.Uint64
	droppedUnknown, droppedFull, droppedTooLarge    atomic.Uint64
	droppedSender, badFrames                        atomic.Uint64
	dials, dialFailures, accepts, refusals, reports atomic.Uint64
}

// Listen binds the address. Nothing is accepted or dialed before Start.
func Listen(o Options) (*Transport, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("tcp: host %d: %w", o.ID, err)
	}
	t := &Transport{o: o, listener: listener, inline: true, peers: map[uint64]*peer{}}
	t.log.logger = o.Logger.With("host", o.ID)
	t.herald.init()
	t.inbound.init()
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t, nil
}

// Addr is the address that was bound.
func (t *Transport) Addr() string { return t.listener.Addr().String() }

// Start begins to accept and to dial. It may be called once; after Close it does nothing.
func (t *Transport) Start(r transport.Receiver) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if t.started {
		panic("tcp: Start called twice")
	}
	t.started, t.receiver, t.self = true, r, r.Introduce()
	t.self.ID = t.o.ID
	t.work.Go(t.accept)
	t.work.Go(func() { t.herald.run(t.ctx, t.report) })
	for _, p := range t.peers {
		t.work.Go(p.run)
	}
}

// SetPeer adds a peer to the address book or changes its address; a connection to another address is given up.
// Connections from hosts that are not in the book are refused.
func (t *Transport) SetPeer(id uint64, addr string) {
	if id == t.o.ID {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if p := t.peers[id]; p != nil {
		p.move(addr)
		return
	}
	p := newPeer(t, id, addr)
	t.peers[id] = p
	if t.started {
		t.work.Go(p.run)
	}
}

// RemovePeer strikes a peer off the address book and ends the connections to and from it.
func (t *Transport) RemovePeer(id uint64) {
	t.mu.Lock()
	p := t.peers[id]
	delete(t.peers, id)
	t.mu.Unlock()
	if p != nil {
		p.close()
		t.inbound.closeFrom(id)
	}
}

func (t *Transport) peer(id uint64) *peer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.peers[id]
}

// Send encodes msgs, which belong to one group and go to one host, and queues or writes them. It never blocks and
// keeps nothing of msgs. It is all or nothing: false means that none was queued, because the host is not in the
// address book, the transport is closed, a message is larger than a frame, or the queue is full; in the last two cases
// Receiver.Unreachable follows.
func (t *Transport) Send(to, group uint64, msgs []raftpb.Message) bool {
	p := t.peer(to)
	if p == nil {
		t.count.droppedUnknown.Add(uint64(len(msgs)))
		return false
	}
	return p.send(group, msgs)
}

// report tells the receiver; called by the herald's goroutine only.
func (t *Transport) report(peer uint64) {
	t.count.reports.Add(1)
	t.receiver.Unreachable(peer)
}

// Close ends all connections, drops what is queued and waits for all goroutines. When it returns the receiver is not
// being called and will not be. It must not be called from the receiver. Later calls wait as well and return nil.
func (t *Transport) Close() error {
	t.mu.Lock()
	first := !t.closed
	t.closed = true
	t.stop() // before the address book is empty: greet looks at both
	peers := t.peers
	t.peers = nil
	t.mu.Unlock()

	var err error
	if first {
		err = t.listener.Close()
		for _, p := range peers {
			p.close()
		}
		t.inbound.closeAll()
	}
	t.work.Wait()
	return err
}

// Stats are the counts so far.
func (t *Transport) Stats() transport.Stats {
	c := &t.count
	s := transport.Stats{
		MessagesSent: c.messagesSent.Load(), FramesSent: c.framesSent.Load(), BytesSent: c.bytesSent.Load(),
		MessagesReceived: c.messagesReceived.Load(), FramesReceived: c.framesReceived.Load(), BytesReceived: c.bytesReceived.Load(),
		WritesInline: c.writesInline.Load(), WritesQueued: c.writesQueued.Load(),
		DroppedUnknown: c.droppedUnknown.Load(), DroppedFull: c.droppedFull.Load(), DroppedTooLarge: c.droppedTooLarge.Load(),
		DroppedSender: c.droppedSender.Load(), BadFrames: c.badFrames.Load(),
		Dials: c.dials.Load(), DialFailures: c.dialFailures.Load(),
		Accepts: c.accepts.Load(), Refusals: c.refusals.Load(), Reports: c.reports.Load(),
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.peers {
		queued, up := p.status()
		s.QueuedBytes += queued
		if up {
			s.PeersUp++
		}
	}
	return s
}
