package tcp

import "github.com/millrace/millrace/transport"

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

func (p *peer) close() {
	for _, l := range p.lines {
		l.close()
	}
}
