package grpctransport

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/transport"
)

// source is one class of one peer.
type source struct {
	id    uint64
	class transport.Class
}

// inlet is where the streams of a source deliver, one at a time. The newest stream of a source is the only
// one that delivers: a peer opens another one when it has given up the one before.
type inlet struct {
	t *Transport

	delivering sync.Mutex // held while the receiver is called
	current    *inbound   // guarded by delivering
}

// inbound is one stream.
type inbound struct {
	peer transport.Introduction
	end  context.CancelFunc
}

// serve is the handler of a stream. It returns when the stream ends, and its error goes to the sender.
func (t *Transport) serve(stream grpc.ServerStream) error {
	if !t.begin() {
		return status.Error(codes.Unavailable, "the host is closed")
	}
	defer t.work.Done()
	from, class, err := t.meet(stream)
	if err != nil {
		t.mu.Lock()
		t.stats.Refusals++
		t.mu.Unlock()
		return refusalStatus(err)
	}
	ctx, end := context.WithCancel(stream.Context())
	defer end()
	me := &inbound{from, end}
	in := t.inlet(source{from.ID, class})
	if !in.enter(me) {
		return status.Error(codes.Aborted, "the receiver does not keep this host")
	}
	var batch []transport.Envelope
	for ctx.Err() == nil {
		var next []byte
		if err := stream.RecvMsg(&next); err != nil {
			return err
		}
		if batch, err = in.deliver(me, class, next, batch[:0]); err != nil {
			return err
		}
	}
	return status.Error(codes.Aborted, "another stream has taken the place of this one, or the receiver does not keep this host")
}

// meet reads the introduction, and asks the receiver.
func (t *Transport) meet(stream grpc.ServerStream) (from transport.Introduction, class transport.Class, err error) {
	var first []byte
	if err := stream.RecvMsg(&first); err != nil {
		return from, 0, err
	}
	to, class, from, err := readHello(first)
	switch {
	case err != nil:
		return from, class, err
	case to != t.id:
		return from, class, errors.New("another host listens here")
	case !t.knows(from.ID):
		return from, class, errors.New("the sender is not in the address book")
	}
	remote := ""
	if p, ok := grpcpeer.FromContext(stream.Context()); ok {
		remote = p.Addr.String()
	}
	return from, class, t.receiver.Admit(from, remote)
}

func (t *Transport) knows(id uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peers[id] != nil
}

func (t *Transport) inlet(from source) *inlet {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Accepts++
	in := t.inlets[from]
	if in == nil {
		in = &inlet{t: t}
		t.inlets[from] = in
	}
	return in
}

// enter makes a stream the one that delivers.
func (in *inlet) enter(me *inbound) bool {
	in.delivering.Lock()
	defer in.delivering.Unlock()
	if !transport.Keeps(in.t.receiver, me.peer) {
		return false
	}
	if in.current != nil {
		in.current.end()
	}
	in.current = me
	return true
}

// review ends the stream of a host that the receiver does not keep.
func (in *inlet) review() {
	in.delivering.Lock()
	defer in.delivering.Unlock()
	if in.current != nil && !transport.Keeps(in.t.receiver, in.current.peer) {
		in.current.end()
		in.current = nil
	}
}

// deliver calls the receiver with one message of gRPC.
func (in *inlet) deliver(me *inbound, class transport.Class, next []byte, batch []transport.Envelope) ([]transport.Envelope, error) {
	in.delivering.Lock()
	defer in.delivering.Unlock()
	t := in.t
	if in.current != me || t.quit.Err() != nil || !t.knows(me.peer.ID) {
		me.end()
		return batch, nil
	}
	kind, body, err := readMessage(next, class)
	if err != nil {
		return batch, status.Error(codes.InvalidArgument, err.Error())
	}
	if kind != transport.Consensus {
		t.countReceived(kind, len(body), 1, 0)
		t.receiver.Deliver(me.peer.ID, kind, body)
		return batch, nil
	}
	if batch, err = transport.DecodeBody(body, batch); err != nil {
		return batch, status.Error(codes.InvalidArgument, err.Error())
	}
	transport.Detach(batch)
	received, kept := len(batch), batch[:0]
	for i := range batch {
		if !transport.Foreign(&batch[i].Message, me.peer.ID, t.id) {
			kept = append(kept, batch[i])
		}
	}
	t.countReceived(kind, len(body), received, received-len(kept))
	if len(kept) > 0 {
		t.receiver.Receive(me.peer.ID, kept)
	}
	clear(batch)
	return batch, nil
}

func (t *Transport) countReceived(kind transport.Kind, bytes, received, others int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.stats.Kinds[kind]
	s.FramesReceived++
	s.BytesReceived += uint64(bytes)
	s.Received += uint64(received)
	t.stats.DroppedSender += uint64(others)
}
