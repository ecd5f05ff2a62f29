// Package loopback is a network inside one process, for tests and benchmarks: the methods of transport/tcp, the same
// frames as bytes, no sockets. What a host sends to another is appended to the frame that waits for it there (a lane);
// one goroutine per host opens the frames and calls the receiver. Unlike the simulator's network it runs in real time
// and on real goroutines, and its order between senders is the scheduler's.
//
// It loses messages where tcp would: when the receiving host is not there or not started, when it does not admit the
// sender, when a lane is full, and when a test cuts the way (Network.Cut). Each is followed by Receiver.Unreachable at the
// sender. A host is introduced to each life of a sender once, by the goroutine that delivers; the sender itself does not
// ask who receives.
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
	cut   map[way]bool
}

type way struct{ from, to uint64 }

// NewNetwork makes a network without hosts.
func NewNetwork() *Network {
	return &Network{hosts: map[uint64]*Transport{}, cut: map[way]bool{}}
}

// Host makes a host on the network. A host of the same id that was closed is replaced, as by a restart.
func (n *Network) Host(id uint64) *Transport {
	t := &Transport{
		id: id, net: n, queueBytes: transport.DefaultQueueBytes,
		peers: map[uint64]bool{}, lanes: map[uint64]*lane{}, lost: map[uint64]bool{}, met: map[uint64]*Transport{}, wake: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	n.mu.Lock()
	n.hosts[id] = t
	n.mu.Unlock()
	return t
}

// Cut makes the way from one host to another lose everything, until Heal. The way back is not affected.
func (n *Network) Cut(from, to uint64) {
	n.mu.Lock()
	n.cut[way{from, to}] = true
	n.mu.Unlock()
}

// Heal ends a Cut.
func (n *Network) Heal(from, to uint64) {
	n.mu.Lock()
	delete(n.cut, way{from, to})
	n.mu.Unlock()
}

// reach is the host at the end of a way, nil if there is no way.
func (n *Network) reach(from, to uint64) *Transport {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.cut[way{from, to}] {
		return nil
	}
	return n.hosts[to]
}

// leave takes a closed host off the network, unless another has its id by now.
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
	queueBytes int // bound on one lane
	wake       chan struct{}
	quit       chan struct{}
	work       sync.WaitGroup

	// Set by Start, before there is a goroutine.
	receiver transport.Receiver
	self     transport.Introduction

	met map[uint64]*Transport // by id, who was admitted last; belongs to the goroutine

	mu      sync.Mutex
	started bool
	closed  bool
	peers   map[uint64]bool
	lanes   map[uint64]*lane // what has come in, by sender
	lost    map[uint64]bool  // peers to report as unreachable
	stats   transport.Stats
}

// lane holds what one sender has sent and the receiver has not taken: frames as bytes, the last one open.
type lane struct {
	sender *Transport
	frames [][]byte
	bytes  int
}

// Addr is a name for the host; nothing depends on it.
func (t *Transport) Addr() string { return "loopback:" + strconv.FormatUint(t.id, 10) }

// SetPeer adds a peer to the address book. The address is ignored, the id is enough.
func (t *Transport) SetPeer(id uint64, _ string) {
	t.mu.Lock()
	t.peers[id] = id != t.id
	t.mu.Unlock()
}

// RemovePeer strikes a peer off the address book; nothing more is sent to it or taken from it.
func (t *Transport) RemovePeer(id uint64) {
	t.mu.Lock()
	delete(t.peers, id)
	delete(t.lanes, id)
	t.mu.Unlock()
}

// Start begins to deliver. What was sent to this host before is lost.
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

// Send encodes msgs into the lane of the host they go to. It never blocks and keeps nothing of msgs. False means that
// none was queued: the host is not in the address book, this transport is closed, a message is larger than a frame, or
// the lane is full. True is no promise that there is anybody at the other end.
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

// outcome is what became of a Send.
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

// enqueue runs on the sender's goroutine, in the receiving host.
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
	l := t.lanes[sender.id]
	if l == nil || l.sender != sender { // what another life of the sender has left is lost
		l = &lane{sender: sender}
		t.lanes[sender.id] = l
	}
	if l.bytes+bytes > t.queueBytes {
		return full
	}
	l.bytes += bytes
	l.add(group, msgs)
	t.signal()
	return queued
}

func (l *lane) add(group uint64, msgs []raftpb.Message) {
	for i := range msgs {
		last := len(l.frames) - 1
		if last < 0 || len(l.frames[last])+transport.MessageBytes(group, &msgs[i]) > transport.BatchBytes {
			l.frames = append(l.frames, transport.BeginFrame(nil))
			last++
		}
		l.frames[last] = transport.AppendMessage(l.frames[last], group, &msgs[i])
	}
}

func (t *Transport) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run delivers what has come in, then reports what was lost, until Close.
func (t *Transport) run() {
	var batch []transport.Envelope
	for {
		select {
		case <-t.quit:
			return
		case <-t.wake:
		}
		lanes, lost := t.take()
		for from, l := range lanes {
			if !t.admits(l.sender) {
				continue
			}
			for _, frame := range l.frames {
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

// admits asks the receiver about a sender that it has not met, and tells one that is refused of its loss.
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

// lose notes that a peer is to be reported as unreachable.
func (t *Transport) lose(peer uint64) {
	t.mu.Lock()
	t.lost[peer] = true
	t.mu.Unlock()
	t.signal()
}

func (t *Transport) take() (lanes map[uint64]*lane, lost map[uint64]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lanes, t.lanes = t.lanes, map[uint64]*lane{}
	lost, t.lost = t.lost, map[uint64]bool{}
	t.stats.Reports += uint64(len(lost))
	return lanes, lost
}

func (t *Transport) done() bool {
	select {
	case <-t.quit:
		return true
	default:
		return false
	}
}

// deliver takes one frame apart. A frame that cannot be read is a bug of ours, not of a wire.
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

// Close drops what has come in and waits for the goroutine; it must not be called from the receiver. Later calls
// return nil.
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

// Stats are the counts so far. Frames and bytes are counted where they arrive.
func (t *Transport) Stats() transport.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	for _, l := range t.lanes {
		s.QueuedBytes += l.bytes
	}
	return s
}
