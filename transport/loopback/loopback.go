// Package loopback is a network inside one process, for tests and benchmarks. It has the methods of
// transport/tcp and the same encoded bodies, without sockets and without frames. What is sent is appended to
// the inlet that the receiving host has for the sender and the class (inlet.go). Each inlet has a goroutine
// that decodes and calls the receiver. Unlike the simulator's network it runs in real time and on real
// goroutines, and the Go scheduler decides the order between senders, and between classes.
//
// It loses messages where tcp would. The receiving host does not exist, is not started, or does not admit
// the sender; an inlet is full; a test cuts the link (Network.Cut). After each loss of consensus messages
// the sender's Receiver.Unreachable is called. A host admits each life of a sender once for each class, on
// the goroutine that delivers. The sender does not ask who receives.
package loopback

import (
	"strconv"
	"sync"

	"github.com/millrace/millrace/transport"
)

// Network connects the hosts that were made with it.
type Network struct {
	mu    sync.RWMutex
	hosts map[uint64]*Transport
	cut   map[link]bool
}

type link struct{ from, to uint64 }

// NewNetwork returns a network without hosts.
func NewNetwork() *Network {
	return &Network{hosts: map[uint64]*Transport{}, cut: map[link]bool{}}
}

// Host makes a host on the network. It replaces a closed host of the same id, as a restart does.
func (n *Network) Host(id uint64) *Transport {
	t := &Transport{
		id: id, net: n, quit: make(chan struct{}), lossWake: make(chan struct{}, 1),
		bounds: [transport.Kinds]int{
			transport.Consensus: transport.DefaultQueueBytes,
			transport.Pulse:     transport.MaxPulseBytes,
			transport.Control:   transport.DefaultControlBytes,
			transport.Bulk:      transport.DefaultBulkBytes,
		},
		peers: map[uint64]bool{}, inlets: map[source]*inlet{}, lost: map[uint64]bool{},
	}
	n.mu.Lock()
	n.hosts[id] = t
	n.mu.Unlock()
	return t
}

// Cut makes the link from one host to another lose everything, until Heal. The opposite link is not affected.
func (n *Network) Cut(from, to uint64) {
	n.mu.Lock()
	n.cut[link{from, to}] = true
	n.mu.Unlock()
}

// Heal ends a Cut.
func (n *Network) Heal(from, to uint64) {
	n.mu.Lock()
	delete(n.cut, link{from, to})
	n.mu.Unlock()
}

// reach returns the host at the end of a link, or nil if there is none.
func (n *Network) reach(from, to uint64) *Transport {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.cut[link{from, to}] {
		return nil
	}
	return n.hosts[to]
}

// leave removes a closed host from the network, unless another host has taken its id.
func (n *Network) leave(t *Transport) {
	n.mu.Lock()
	if n.hosts[t.id] == t {
		delete(n.hosts, t.id)
	}
	n.mu.Unlock()
}

// Transport is one host's end of the network. Its methods may be called from any goroutine.
type Transport struct {
	id       uint64
	net      *Network
	bounds   [transport.Kinds]int // on what waits in one inlet
	quit     chan struct{}
	lossWake chan struct{}
	work     sync.WaitGroup

	// Set by Start, before there is a goroutine.
	receiver transport.Receiver
	self     transport.Introduction

	mu      sync.Mutex
	started bool
	closed  bool
	peers   map[uint64]bool
	inlets  map[source]*inlet
	lost    map[uint64]bool // peers to report as unreachable
	stats   transport.Stats
}

// Addr returns a name for the host. Nothing depends on it.
func (t *Transport) Addr() string { return "loopback:" + strconv.FormatUint(t.id, 10) }

// SetPeer adds a peer to the address book. Only the id counts; the address is ignored.
func (t *Transport) SetPeer(id uint64, _ string) {
	t.mu.Lock()
	t.peers[id] = id != t.id
	t.mu.Unlock()
}

// RemovePeer removes a peer from the address book. Nothing more is sent to it or accepted from it.
func (t *Transport) RemovePeer(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.peers, id)
	for from, in := range t.inlets {
		if from.peer == id {
			in.clear()
		}
	}
}

// Start begins to deliver. Messages sent to this host earlier are lost.
func (t *Transport) Start(r transport.Receiver) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if t.started {
		panic("loopback: Start called twice")
	}
	t.started, t.receiver, t.self = true, r, r.Introduce()
	t.self.ID, t.self.Key = t.id, [32]byte{}
	t.work.Go(t.reportLosses)
}

// Send encodes the messages of batch, which may belong to many groups, into the receiving host's inlet for
// this host. It never blocks and keeps no part of batch. False means that messages were dropped. All are
// dropped if the host is not in the address book, or this transport is closed. If the inlet has no space,
// or a message is larger than the largest body, what does not fit is dropped. True does not promise that
// the host exists.
func (t *Transport) Send(to uint64, batch []transport.Envelope) bool {
	if !t.mayReach(to, transport.Consensus, len(batch)) {
		return false
	}
	fitting := batch
	for i := range batch {
		if transport.MessageBytes(batch[i].Group, &batch[i].Message) > transport.DefaultFrameBytes {
			fitting = withoutTooLarge(batch)
			t.note(to, transport.Consensus, len(batch)-len(fitting), tooLarge)
			break
		}
	}
	if len(fitting) == 0 {
		return len(batch) == 0
	}
	added, result := 0, noHost
	if peer := t.net.reach(t.id, to); peer != nil {
		added, result = peer.enqueue(t, fitting)
	}
	if result == noHost {
		t.note(to, transport.Consensus, len(fitting), noHost)
		return len(fitting) == len(batch)
	}
	t.note(to, transport.Consensus, added, queued)
	if added < len(fitting) {
		t.note(to, transport.Consensus, len(fitting)-added, full)
	}
	return added == len(batch)
}

func withoutTooLarge(batch []transport.Envelope) []transport.Envelope {
	var kept []transport.Envelope
	for i := range batch {
		if transport.MessageBytes(batch[i].Group, &batch[i].Message) <= transport.DefaultFrameBytes {
			kept = append(kept, batch[i])
		}
	}
	return kept
}

// SendBytes queues one body of kind Pulse, Control or Bulk; another kind panics. It never blocks. The body
// is copied. A pulse replaces one that still waits at the receiving host. False means that the body was
// dropped. The host is not in the address book, this transport is closed, the inlet has no space, or the
// body is too large for its kind. True does not promise that the host exists.
func (t *Transport) SendBytes(to uint64, kind transport.Kind, body []byte) bool {
	if !t.mayReach(to, kind.Opaque(), 1) {
		return false
	}
	result := noHost
	peer := t.net.reach(t.id, to)
	switch {
	case len(body) > kind.MaxBodyBytes(transport.DefaultFrameBytes):
		result = tooLarge
	case peer != nil:
		result = peer.enqueueBytes(t, kind, body)
	}
	t.note(to, kind, 1, result)
	return result == queued || result == replaced || result == noHost
}

// outcome is the result of a Send.
type outcome int

const (
	queued outcome = iota
	replaced
	noHost
	full
	tooLarge
)

func (t *Transport) mayReach(to uint64, kind transport.Kind, messages int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || !t.peers[to] {
		t.stats.Kinds[kind].DroppedUnknown += uint64(messages)
		return false
	}
	return true
}

// note counts the result, and has a loss of consensus messages reported.
func (t *Transport) note(to uint64, kind transport.Kind, messages int, result outcome) {
	t.mu.Lock()
	stats := &t.stats.Kinds[kind]
	switch result {
	case queued:
		stats.Sent += uint64(messages)
	case replaced:
		stats.Sent += uint64(messages)
		stats.Replaced++
	case full:
		stats.DroppedFull += uint64(messages)
	case tooLarge:
		stats.DroppedTooLarge += uint64(messages)
	}
	t.mu.Unlock()
	if result != queued && kind == transport.Consensus {
		t.lose(to)
	}
}

func (t *Transport) introduction() transport.Introduction {
	t.mu.Lock()
	self, r := t.self, t.receiver
	t.mu.Unlock()
	self.Proof = transport.ProofOf(r, self.Channel)
	return self
}

// lose notes that a peer must be reported as unreachable.
func (t *Transport) lose(peer uint64) {
	t.mu.Lock()
	t.lost[peer] = true
	t.mu.Unlock()
	signal(t.lossWake)
}

// reportLosses reports what was lost, until Close.
func (t *Transport) reportLosses() {
	for {
		select {
		case <-t.quit:
			return
		case <-t.lossWake:
		}
		t.mu.Lock()
		lost := t.lost
		t.lost = map[uint64]bool{}
		t.stats.Reports += uint64(len(lost))
		t.mu.Unlock()
		for peer := range lost {
			if t.done() {
				return
			}
			t.receiver.Unreachable(peer)
		}
	}
}

func signal(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

func (t *Transport) done() bool {
	select {
	case <-t.quit:
		return true
	default:
		return false
	}
}

// Close drops undelivered messages and waits for the goroutines. It must not be called from the receiver.
// Later calls wait as well and return nil.
func (t *Transport) Close() error {
	t.mu.Lock()
	first := !t.closed
	t.closed = true
	t.mu.Unlock()
	if first {
		t.net.leave(t)
		close(t.quit)
	}
	t.work.Wait()
	return nil
}

// Stats returns the counts so far. Frames and bytes, those that tcp would send, are counted where they
// arrive. What waits is counted there, too.
func (t *Transport) Stats() transport.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	for _, in := range t.inlets {
		for kind := range in.bytes {
			s.Kinds[kind].QueuedBytes += in.bytes[kind]
		}
	}
	return s
}
