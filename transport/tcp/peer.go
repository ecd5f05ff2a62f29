package tcp

import (
	"errors"
	"maps"
	"slices"

	"github.com/millrace/millrace/transport"
)

// peer is one host to which this host sends: a line for each class.
type peer struct {
	lines [transport.Classes]*line
}

func newPeer(t *Transport, id uint64, addr string) *peer {
	p := &peer{}
	for class := range p.lines {
		p.lines[class] = newLine(t, id, addr, transport.Class(class))
	}
	return p
}

// start runs the lines, each on a goroutine.
func (p *peer) start(t *Transport) {
	for _, l := range p.lines {
		t.work.Go(l.run)
	}
}

// move changes the address and ends the attempts to reach the old one.
func (p *peer) move(addr string) {
	for _, l := range p.lines {
		l.move(addr)
	}
}

// SetOtherAddr gives a peer of the address book a second address, which is tried when the first one does not
// lead to it; empty: it has none.
func (t *Transport) SetOtherAddr(id uint64, addr string) {
	if p := t.peer(id); p != nil {
		for _, l := range p.lines {
			l.setOther(addr)
		}
	}
}

// DialOnDemand makes a peer of the address book one that this host dials only when it has something to send.
// What the peer sends is accepted as before. SetPeer ends that.
func (t *Transport) DialOnDemand(id uint64) {
	if p := t.peer(id); p != nil {
		for _, l := range p.lines {
			l.dialOnDemand()
		}
	}
}

func (p *peer) close() {
	for _, l := range p.lines {
		l.close()
	}
}

// Review implements transport.Reviewer.
func (t *Transport) Review(id uint64) {
	var ended []*inbound
	for _, in := range t.inbound.enteredFrom(id) {
		if !transport.Keeps(t.receiver, in.peer) {
			in.conn.Close()
			ended = append(ended, in)
		}
	}
	if p := t.peer(id); p != nil {
		for _, line := range p.lines {
			if l := line.linked(); l != nil && !transport.Keeps(t.receiver, l.peer) {
				l.fail(errNotKept)
			}
		}
	}
	for _, in := range ended {
		<-in.done
	}
}

var errNotKept = errors.New("this host does not admit its peer any more: its directory was replaced, or its key")

// peerIDs returns the hosts of the address book.
func (t *Transport) peerIDs() []uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Keys(t.peers))
}
