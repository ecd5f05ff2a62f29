// Package tcp is the transport over real sockets.
//
// Each host dials every peer it talks to and sends only on that connection. It receives on the connections
// that others dial to it. So each connection has a direction, a writer and a reader, and can be replaced
// without an agreement between its two ends:
//
//	Send ─► queue of the line ─► link (dialed, link.go) ═══ frames ═══► inbound (accepted) ─► Receiver
//	        line.go                                                     inbound.go
//
// There is a line for each peer and class. The one for consensus and pulses is always connected; those for
// control and bulk are dialed on first use and closed when idle.
//
// # Order
//
// Invariant: a goroutine that writes to a link has set link.busy, so it is alone, and writes only bytes
// from the head of the queue. Invariant: a second connection from the same peer in the same class delivers
// nothing before the delivery of the first has ended. Together these keep a peer's messages in order, even
// across reconnects. Messages may be missing.
//
// # What overtakes
//
// The writer hands frames to the kernel, and at each border between two of them a pulse that waits goes first
// (line.choose). A frame has at most 64 KiB, or what the connection carries in two milliseconds (pace). The
// kernel holds at most maxUnsentBytes that it has not sent. So at 10 Mbit/s a pulse is behind some 200 KiB at
// most, a sixth of a second, however much is queued.
//
// # The sender writes
//
// Handing a message to a writer goroutine costs a wake-up, and one proposal takes two such hops. So Send
// itself writes when the link is idle: once, without blocking. The peer's writer goroutine continues with the
// bytes that the socket does not take, and with messages that other senders queue meanwhile. Under load,
// senders find the link busy and only append, so one write carries many messages. See inlinePause for when
// Send leaves the write to the writer, and for what this gains.
//
// # Admission
//
// A connection is a stranger's until its hello is read. There are few slots for strangers, of which each
// address may use a part, and a new stranger takes the slot of the oldest. A peer in the address book has
// slots of its own after its hello (inbound.go). So no number of silent connections keeps a member out. At
// the end of the handshake (hello.go) both receivers decide (Receiver.Admit).
//
// With TLS (Options.TLS), both ends prove with a certificate which member they are, before that. Without it,
// an introduction is believed.
//
// # Failure
//
// Nothing is retried. A link that fails takes with it what was queued, Unreachable is reported, and the peer
// is dialed again after a pause that doubles with jitter. Messages that are queued while there is no link
// wait for the next attempt. They are dropped if it fails, so that a peer that comes back does not receive an
// hour of old heartbeats.
package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/transport"
)

// Options configure a Transport. A zero value means the default in brackets.
type Options struct {
	ID     uint64 // of this host; not zero
	Listen string // address to bind, such as "10.0.0.1:7000"; port 0 picks one [127.0.0.1:0]

	// What may wait for one peer, encoded. A message or body that is larger than its bound is taken while
	// no more than the bound waits (transport.Fits). So at most the bound and one more wait.
	QueueBytes   int // messages of groups [64 MiB]
	ControlBytes int // bodies of kind control [16 MiB]
	BulkBytes    int // bodies of kind bulk [32 MiB]

	FrameBytes   int // the largest body that is accepted or sent, in one frame or several [64 MiB]
	MaxStrangers int // inbound connections without a hello, at one time [64]

	DialTimeout      time.Duration // to connect [2 s]
	HandshakeTimeout time.Duration // for the handshake, on both sides [2 s]
	StallTimeout     time.Duration // for each 64 KiB of a frame that has begun, in both directions, and for unacknowledged data [10 s]
	BulkStallTimeout time.Duration // the same for class bulk, whose receiver may wait for a disk [30 s, at least StallTimeout]
	IdleTimeout      time.Duration // after which a connection for control or bulk is closed [1 min]
	BackoffMin       time.Duration // first pause before dialing again [20 ms]
	BackoffMax       time.Duration // longest pause [1 s]

	// Resolve turns the address of a peer into the address to connect to, at each attempt. So a service
	// registry, for instance, may name the hosts. Together with connecting it has DialTimeout, and must
	// return when its context ends. Any goroutine calls it. nil: addresses are taken as they are, and the
	// system looks a name up at each attempt.
	Resolve func(ctx context.Context, peer uint64, addr string) (string, error)

	TLS *TLS // nil: plain TCP, and every program that reaches the port is believed

	Logger *slog.Logger // for operators; lines about a peer that repeat come at growing distances, at least 1 s [none]
}

func (o Options) withDefaults() (Options, error) {
	if o.ID == 0 {
		return o, errors.New("tcp: Options.ID is 0; it must be the id of this host")
	}
	for name, n := range map[string]int{"QueueBytes": o.QueueBytes, "ControlBytes": o.ControlBytes, "BulkBytes": o.BulkBytes, "FrameBytes": o.FrameBytes, "MaxStrangers": o.MaxStrangers} {
		if n < 0 || n > 1<<31-1 {
			return o, fmt.Errorf("tcp: Options.%s is %d, want 0 (the default) to %d", name, n, 1<<31-1)
		}
	}
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:0")
	o.QueueBytes = cmp.Or(o.QueueBytes, transport.DefaultQueueBytes)
	o.ControlBytes = cmp.Or(o.ControlBytes, transport.DefaultControlBytes)
	o.BulkBytes = cmp.Or(o.BulkBytes, transport.DefaultBulkBytes)
	o.FrameBytes = cmp.Or(o.FrameBytes, transport.DefaultFrameBytes)
	o.MaxStrangers = cmp.Or(o.MaxStrangers, 64)
	o.DialTimeout = cmp.Or(o.DialTimeout, 2*time.Second)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, 2*time.Second)
	o.StallTimeout = cmp.Or(o.StallTimeout, 10*time.Second)
	o.BulkStallTimeout = max(o.StallTimeout, cmp.Or(o.BulkStallTimeout, 30*time.Second))
	o.IdleTimeout = cmp.Or(o.IdleTimeout, time.Minute)
	o.BackoffMin = cmp.Or(o.BackoffMin, 20*time.Millisecond)
	o.BackoffMax = cmp.Or(o.BackoffMax, time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// stall returns the time limit of a frame of class c. A receiver that takes nothing for so long counts as
// dead, though it may only be slow.
func (o Options) stall(c transport.Class) time.Duration {
	if c == transport.ClassBulk {
		return o.BulkStallTimeout
	}
	return o.StallTimeout
}

// Transport sends and receives for one host. Its methods may be called from any goroutine.
type Transport struct {
	o        Options
	listener net.Listener
	trust    *trust // nil: no TLS
	limit    handshakeLimit
	log      limitedLog
	count    counters
	losses   lossReporter
	inline   bool // Send may write itself; false only in benchmarks that compare
	versions versionRange
	now      func() time.Time // time.Now, except in a test

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

// counters are the Stats that are counted as they happen.
type counters struct {
	kinds                           [transport.Kinds]kindCounters
	writesInline, writesQueued      atomic.Uint64
	droppedSender, badFrames        atomic.Uint64
	dials, dialFailures, idleCloses atomic.Uint64
	accepts, refusals, reports      atomic.Uint64
	probes                          atomic.Uint64
}

type kindCounters struct {
	sent, framesSent, bytesSent                            atomic.Uint64
	received, framesReceived, bytesReceived                atomic.Uint64
	droppedUnknown, droppedFull, droppedTooLarge, replaced atomic.Uint64
}

// Listen loads the credentials, if there is TLS, and binds the address. It accepts and dials nothing before
// Start.
func Listen(o Options) (*Transport, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	var trust *trust
	if o.TLS != nil {
		if trust, err = newTrust(o.TLS, o.ID, o.Logger.With("host", o.ID)); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("tcp: host %d: %w", o.ID, err)
	}
	t := &Transport{o: o, listener: listener, trust: trust, inline: true, versions: spoken, now: time.Now, peers: map[uint64]*peer{}}
	t.log.logger = o.Logger.With("host", o.ID)
	began := time.Now()
	t.log.now = func() time.Duration { return time.Since(began) }
	t.losses.init()
	t.inbound.init()
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t, nil
}

// Addr returns the address that was bound.
func (t *Transport) Addr() string { return t.listener.Addr().String() }

// Start begins to accept and to dial. It may be called once. After Close it does nothing.
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
	t.work.Go(func() { t.losses.run(t.ctx, t.report) })
	if t.trust != nil {
		t.work.Go(func() { t.keepTrust(t.ctx) })
	}
	for _, p := range t.peers {
		p.start(t)
	}
}

// SetPeer adds a peer to the address book or changes its address, which ends a connection to the old address.
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
		p.start(t)
	}
}

// RemovePeer removes a peer from the address book and ends the connections to and from it.
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

// Send encodes the messages of batch, which may belong to many groups and go to one host, and queues or
// writes them. It never blocks and keeps no part of batch. A call for all groups costs one lock and one
// wake.
//
// False means that messages were dropped. All are dropped if the host is not in the address book, or the
// transport is closed. If the queue has no space, or a message is larger than the largest body, what does
// not fit is dropped, and the others are sent. In the last two cases Receiver.Unreachable follows.
func (t *Transport) Send(to uint64, batch []transport.Envelope) bool {
	p := t.peer(to)
	if p == nil {
		t.count.kinds[transport.Consensus].droppedUnknown.Add(uint64(len(batch)))
		return false
	}
	return p.lines[transport.ClassConsensus].send(batch)
}

// SendBytes queues or writes one body of kind Pulse, Control or Bulk; another kind panics. It never blocks.
// The body is copied. A pulse replaces one that still waits for the same host.
//
// False means that the body was dropped. The host is not in the address book, the transport is closed, the
// queue has no space, or the body is too large for its kind. Receiver.Unreachable does not follow.
func (t *Transport) SendBytes(to uint64, kind transport.Kind, body []byte) bool {
	kind = kind.Opaque()
	p := t.peer(to)
	if p == nil {
		t.count.kinds[kind].droppedUnknown.Add(1)
		return false
	}
	return p.lines[kind.Class()].sendBytes(kind, body)
}

// report calls the receiver. Only the lossReporter's goroutine calls it.
func (t *Transport) report(peer uint64) {
	t.count.reports.Add(1)
	t.receiver.Unreachable(peer)
}

// Close ends all connections, drops queued messages and waits for all goroutines. When it returns, the
// receiver is not being called and will not be called again. It must not be called from the receiver. Later
// calls wait as well and return nil.
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

// Stats returns the counts so far.
func (t *Transport) Stats() transport.Stats {
	c := &t.count
	s := transport.Stats{
		WritesInline: c.writesInline.Load(), WritesQueued: c.writesQueued.Load(),
		DroppedSender: c.droppedSender.Load(), BadFrames: c.badFrames.Load(),
		Dials: c.dials.Load(), DialFailures: c.dialFailures.Load(), IdleCloses: c.idleCloses.Load(),
		Accepts: c.accepts.Load(), Refusals: c.refusals.Load(), Probes: c.probes.Load(), Reports: c.reports.Load(),
	}
	for kind := range s.Kinds {
		s.Kinds[kind] = c.kinds[kind].load()
	}
	if t.trust != nil {
		s.TLS = t.trust.stats()
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.peers {
		for class, l := range p.lines {
			queued, pulse, up := l.status()
			s.Kinds[l.out.kind].QueuedBytes += queued
			s.Kinds[transport.Pulse].QueuedBytes += pulse
			if up && transport.Class(class) == transport.ClassConsensus {
				s.PeersUp++
			}
		}
	}
	return s
}

func (c *kindCounters) load() transport.KindStats {
	return transport.KindStats{
		Sent: c.sent.Load(), FramesSent: c.framesSent.Load(), BytesSent: c.bytesSent.Load(),
		Received: c.received.Load(), FramesReceived: c.framesReceived.Load(), BytesReceived: c.bytesReceived.Load(),
		DroppedUnknown: c.droppedUnknown.Load(), DroppedFull: c.droppedFull.Load(), DroppedTooLarge: c.droppedTooLarge.Load(),
		Replaced: c.replaced.Load(),
	}
}
