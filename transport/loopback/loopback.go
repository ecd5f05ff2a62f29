// Package loopback is a network inside one process, for tests and benchmarks. It has the methods of
// transport/tcp and the same encoded frames, without sockets. A message is appended to a frame in the backlog
// that the receiving host has for the sender. One goroutine for each host decodes the frames and calls the
// receiver. Unlike the simulator's network it runs in real time and on real goroutines, and the Go scheduler
// decides the order between senders.
//
// It loses messages where tcp would: when the receiving host does not exist or is not started, when it does
// not admit the sender, when a backlog is full, and when a test cuts the link (Network.Cut). After each loss
// the sender's Receiver.Unreachable is called. A host admits each life of a sender once, on the goroutine
// that delivers. The sender does not ask who receives.
package loopback

import (
	"strconv"
	"sync"

	"github.com/millrace/millrace/raft/raftpb"
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
		id: id, net: n, queueBytes: transport.DefaultQueueBytes,
		peers: map[uint64]bool{}, backlogs: map[uint64]*backlog{}, lost: map[uint64]bool{}, met: map[uint64]*Transport{}, wake: make(chan struct{}, 1), quit: make(chan struct{}),
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
	id         uint64
	net        *Network
	queueBytes int // bound on one backlog
	wake       chan struct{}
	quit       chan struct{}
	work       sync.WaitGroup

	// Set by Start, before there is a goroutine.
	receiver transport.Receiver
	self     transport.Introduction

	met map[uint64]*Transport // the last admitted sender of each id; owned by the goroutine

	mu       sync.Mutex
	started  bool
	closed   bool
	peers    map[uint64]bool
	backlogs map[uint64]*backlog // received frames, by sender
	lost     map[uint64]bool     // peers to report as unreachable
	stats    transport.Stats
}

// backlog holds the frames from one sender that are not delivered yet, in encoded form. A message is added to
// the last frame; a new frame begins when the message would make it larger than transport.BatchBytes.
type backlog struct {
	sender *Transport
	frames [][]byte
	bytes  int
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
	delete(t.peers, id)
	delete(t.backlogs, id)
	t.mu.Unlock()
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
	t.self.ID = t.id
	t.work.Go(t.run)
}

// Send encodes msgs into the backlog that the receiving host has for this one. It never blocks and keeps no
// part of msgs. It returns false if no message was queued: the host is not in the address book, this
// transport is closed, a message is larger than a frame, or the backlog is full. True does not promise that
// the host exists.
func (t *Transport) Send(to, group uint64, msgs []raftpb.Message) bool {
	if !t.admit(to, len(msgs)) {
		return false
	}
	if len(msgs) == 0 {
		return true
	}
	result := noHost
	if peer := t.net.reach(t.id, to); peer != nil {
		result = peer.enqueue(t, group, msgs)
	}
	t.note(to, len(msgs), result)
	return result == queued || result == noHost
}

// outcome is the result of a Send.
type outcome int

const (
	queued outcome = iota
	noHost
	full
	tooLarge
)

func (t *Transport) admit(to uint64, messages int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || !t.peers[to] {
		t.stats.DroppedUnknown += uint64(messages)
		return false
	}
	return true
}

func (t *Transport) note(to uint64, messages int, result outcome) {
	t.mu.Lock()
	switch result {
	case queued:
		t.stats.MessagesSent += uint64(messages)
	case full:
		t.stats.DroppedFull += uint64(messages)
	case tooLarge:
		t.stats.DroppedTooLarge += uint64(messages)
	}
	t.mu.Unlock()
	if result != queued {
		t.lose(to)
	}
}

// enqueue adds messages to the backlog of a sender. The sender's goroutine calls it.
func (t *Transport) enqueue(sender *Transport, group uint64, msgs []raftpb.Message) outcome {
	bytes := 0
	for i := range msgs {
		n := transport.MessageBytes(group, &msgs[i])
		if n > transport.DefaultFrameBytes {
			return tooLarge
		}
		bytes += n
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || !t.started || !t.peers[sender.id] {
		return noHost
	}
	b := t.backlogs[sender.id]
	if b == nil || b.sender != sender { // frames of the sender's earlier life are lost
		b = &backlog{sender: sender}
		t.backlogs[sender.id] = b
	}
	if b.bytes+bytes > t.queueBytes {
		return full
	}
	b.bytes += bytes
	b.add(group, msgs)
	t.signal()
	return queued
}

func (b *backlog) add(group uint64, msgs []raftpb.Message) {
	for i := range msgs {
		last := len(b.frames) - 1
		if last < 0 || len(b.frames[last])+transport.MessageBytes(group, &msgs[i]) > transport.BatchBytes {
			b.frames = append(b.frames, transport.BeginFrame(nil))
			last++
		}
		b.frames[last] = transport.AppendMessage(b.frames[last], group, &msgs[i])
	}
}

func (t *Transport) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run delivers what has arrived, then reports what was lost, until Close.
func (t *Transport) run() {
	var batch []transport.Envelope
	for {
		select {
		case <-t.quit:
			return
		case <-t.wake:
		}
		backlogs, lost := t.take()
		for from, b := range backlogs {
			if !t.admits(b.sender) {
				continue
			}
			for _, frame := range b.frames {
				if t.done() {
					return
				}
				batch = t.deliver(from, frame, batch[:0])
			}
		}
		for peer := range lost {
			if t.done() {
				return
			}
			t.receiver.Unreachable(peer)
		}
	}
}

// admits reports whether the receiver admits a sender. It asks once for each life of the sender, and reports
// a loss to a sender that is refused.
func (t *Transport) admits(sender *Transport) bool {
	if t.done() {
		return false
	}
	if t.met[sender.id] == sender {
		return true
	}
	if err := t.receiver.Admit(sender.introduction(), sender.Addr()); err != nil {
		t.mu.Lock()
		t.stats.Refusals++
		t.mu.Unlock()
		sender.lose(t.id)
		return false
	}
	t.met[sender.id] = sender
	return true
}

func (t *Transport) introduction() transport.Introduction {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.self
}

// lose notes that a peer must be reported as unreachable.
func (t *Transport) lose(peer uint64) {
	t.mu.Lock()
	t.lost[peer] = true
	t.mu.Unlock()
	t.signal()
}

func (t *Transport) take() (backlogs map[uint64]*backlog, lost map[uint64]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	backlogs, t.backlogs = t.backlogs, map[uint64]*backlog{}
	lost, t.lost = t.lost, map[uint64]bool{}
	t.stats.Reports += uint64(len(lost))
	return backlogs, lost
}

func (t *Transport) done() bool {
	select {
	case <-t.quit:
		return true
	default:
		return false
	}
}

// deliver decodes one frame and calls the receiver. A frame that cannot be read is our own bug, as there is
// no wire that could damage it.
func (t *Transport) deliver(from uint64, frame []byte, batch []transport.Envelope) []transport.Envelope {
	transport.SealFrame(frame)
	body, _, err := transport.OpenFrame(frame, len(frame))
	if err == nil {
		batch, err = transport.DecodeBody(body, batch)
	}
	if err != nil {
		panic("loopback: a frame of our own cannot be read: " + err.Error())
	}
	transport.Detach(batch)
	received := len(batch)
	kept := batch[:0]
	for i := range batch {
		if !transport.Foreign(&batch[i].Message, from, t.id) {
			kept = append(kept, batch[i])
		}
	}
	t.mu.Lock()
	t.stats.FramesReceived++
	t.stats.BytesReceived += uint64(len(frame))
	t.stats.MessagesReceived += uint64(received)
	t.stats.DroppedSender += uint64(received - len(kept))
	t.mu.Unlock()
	if len(kept) > 0 {
		t.receiver.Receive(from, kept)
	}
	clear(batch)
	return batch
}

// Close drops undelivered messages and waits for the goroutine. It must not be called from the receiver.
// Later calls return nil.
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

// Stats returns the counts so far. Frames and bytes are counted where they arrive.
func (t *Transport) Stats() transport.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	for _, b := range t.backlogs {
		s.QueuedBytes += b.bytes
	}
	return s
}
