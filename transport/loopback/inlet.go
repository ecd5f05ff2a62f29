package loopback

import "github.com/millrace/millrace/transport"

// source is one class of one sender. What it sends is delivered in order, by one goroutine.
type source struct {
	peer  uint64
	class transport.Class
}

// inlet holds what a source has sent and the receiver has not taken yet, in encoded form. It stays, with its
// goroutine, until its host closes; so calls of the receiver for one source never overlap, whatever lives the
// source has.
type inlet struct {
	from source
	wake chan struct{}

	// Guarded by Transport.mu of the receiving host.
	sender *Transport // whose messages wait: one life of the source
	queue  [][]byte   // bodies; the last one of class consensus is joined by messages as long as it is one frame
	pulse  []byte     // the pulse that waits, not nil
	pulsed bool       // the last body that was taken was a pulse
	bytes  [transport.Kinds]int

	met *Transport // the life that was last admitted; owned by the goroutine
}

// clear drops what waits. The caller holds the host's mu.
func (in *inlet) clear() {
	in.queue, in.pulse = nil, nil
	clear(in.bytes[:])
}

// inlet returns the inlet of a sender, or nil if this host takes nothing from it now. The caller holds mu.
func (t *Transport) inlet(sender *Transport, class transport.Class) *inlet {
	if t.closed || !t.started || !t.peers[sender.id] {
		return nil
	}
	from := source{sender.id, class}
	in := t.inlets[from]
	if in == nil {
		in = &inlet{from: from, wake: make(chan struct{}, 1)}
		t.inlets[from] = in
		t.work.Go(func() { t.run(in) })
	}
	if in.sender != sender { // what the sender's earlier life sent is lost
		in.clear()
		in.sender = sender
	}
	return in
}

// enqueue adds the messages for which there is space, and returns how many. The sender's goroutine calls it.
func (t *Transport) enqueue(sender *Transport, batch []transport.Envelope) (added int, result outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.inlet(sender, transport.ClassConsensus)
	if in == nil {
		return 0, noHost
	}
	for i := range batch {
		n := transport.MessageBytes(batch[i].Group, &batch[i].Message)
		if !transport.Fits(in.bytes[transport.Consensus], n, t.bounds[transport.Consensus]) {
			continue
		}
		in.bytes[transport.Consensus] += n
		in.join(&batch[i])
		added++
	}
	signal(in.wake)
	return added, queued
}

// join appends a message to the last body, or begins another one.
func (in *inlet) join(e *transport.Envelope) {
	last := len(in.queue) - 1
	if last < 0 || len(in.queue[last])+transport.MessageBytes(e.Group, &e.Message) > transport.FrameBodyBytes {
		in.queue = append(in.queue, nil)
		last++
	}
	in.queue[last] = transport.AppendMessage(in.queue[last], e.Group, &e.Message)
}

func (t *Transport) enqueueBytes(sender *Transport, kind transport.Kind, body []byte) outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.inlet(sender, kind.Class())
	if in == nil {
		return noHost
	}
	defer signal(in.wake)
	if kind == transport.Pulse {
		result := queued
		if in.pulse != nil {
			result = replaced
		}
		in.pulse, in.bytes[kind] = append([]byte{}, body...), len(body)
		return result
	}
	if !transport.Fits(in.bytes[kind], len(body), t.bounds[kind]) {
		return full
	}
	in.queue = append(in.queue, append([]byte{}, body...))
	in.bytes[kind] += len(body)
	return queued
}

// kind returns the kind of the bodies in the queue.
func (in *inlet) kind() transport.Kind {
	switch in.from.class {
	case transport.ClassControl:
		return transport.Control
	case transport.ClassBulk:
		return transport.Bulk
	}
	return transport.Consensus
}

// take returns the next body and the life that sent it. A pulse goes first, but two go one after the other
// only if nothing else waits.
func (t *Transport) take(in *inlet) (sender *Transport, kind transport.Kind, body []byte, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case in.pulse != nil && !(in.pulsed && len(in.queue) > 0):
		kind, body, in.pulse, in.pulsed = transport.Pulse, in.pulse, nil, true
	case len(in.queue) > 0:
		kind, body, in.queue, in.pulsed = in.kind(), in.queue[0], in.queue[1:], false
	default:
		in.queue = nil
		return nil, 0, nil, false
	}
	in.bytes[kind] -= len(body)
	return in.sender, kind, body, true
}

// run delivers what a source sends, until Close.
func (t *Transport) run(in *inlet) {
	var batch []transport.Envelope
	for {
		select {
		case <-t.quit:
			return
		case <-in.wake:
		}
		for {
			sender, kind, body, ok := t.take(in)
			if !ok {
				break
			}
			if !t.admits(in, sender) {
				continue
			}
			if t.done() {
				return
			}
			batch = t.deliver(in.from.peer, kind, body, batch[:0])
		}
	}
}

// admits reports whether the receiver admits a sender. It asks once for each life of the sender that it
// admits. A sender that is refused loses what waits, and learns of it.
func (t *Transport) admits(in *inlet, sender *Transport) bool {
	if t.done() {
		return false
	}
	if in.met == sender && transport.Keeps(t.receiver, sender.introduction()) {
		return true
	}
	if err := t.receiver.Admit(sender.introduction(), sender.Addr()); err != nil {
		t.mu.Lock()
		t.stats.Refusals++
		if in.sender == sender {
			in.clear()
		}
		t.mu.Unlock()
		if in.from.class == transport.ClassConsensus {
			transport.TellRefusal(sender.receiver, t.id, err)
			sender.lose(t.id)
		}
		return false
	}
	in.met = sender
	transport.TellAdmission(sender.receiver, t.id)
	return true
}

// deliver calls the receiver with one body. A body that cannot be read is our own bug, as there is no wire
// that could damage it.
func (t *Transport) deliver(from uint64, kind transport.Kind, body []byte, batch []transport.Envelope) []transport.Envelope {
	if kind != transport.Consensus {
		t.countReceived(kind, len(body), 1, 0)
		t.receiver.Deliver(from, kind, body)
		return batch
	}
	batch, err := transport.DecodeBody(body, batch)
	if err != nil {
		panic("loopback: a body of our own cannot be read: " + err.Error())
	}
	transport.Detach(batch)
	received := len(batch)
	kept := batch[:0]
	for i := range batch {
		if !transport.Foreign(&batch[i].Message, from, t.id) {
			kept = append(kept, batch[i])
		}
	}
	t.countReceived(kind, len(body), received, received-len(kept))
	if len(kept) > 0 {
		t.receiver.Receive(from, kept)
	}
	clear(batch)
	return batch
}

func (t *Transport) countReceived(kind transport.Kind, bodyBytes, received, foreign int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stats := &t.stats.Kinds[kind]
	frames := transport.FramesOf(bodyBytes)
	stats.FramesReceived += uint64(frames)
	stats.BytesReceived += uint64(bodyBytes + frames*transport.HeaderBytes)
	stats.Received += uint64(received)
	t.stats.DroppedSender += uint64(foreign)
}
