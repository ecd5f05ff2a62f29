package tracker

// Hidden is the part of a Progress that only this package uses, in a form that can be stored. A checkpoint
// of the core needs it beside the exported fields (raft.RawNode.AppendCheckpoint).
type Hidden struct {
	SentCommit uint64
	Asked      bool
	AskedAt    int
	Window     []InFlight // in ascending order of Index
}

// InFlight is an append that was sent and is not acknowledged: its last entry, and its bytes.
type InFlight struct{ Index, Bytes uint64 }

// Hidden returns the hidden part of p.
func (p *Progress) Hidden() Hidden {
	h := Hidden{SentCommit: p.sentCommit, Asked: p.asked, AskedAt: p.askedAt}
	if in := p.Inflights; in != nil {
		for i := range in.count {
			f := in.ring[in.wrap(in.start+i)]
			h.Window = append(h.Window, InFlight{f.index, f.bytes})
		}
	}
	return h
}

// SetHidden makes h the hidden part of p, with a window of at most size messages and about maxBytes bytes. It
// reports whether the window fits.
func (p *Progress) SetHidden(h Hidden, size int, maxBytes uint64) (fits bool) {
	if len(h.Window) > size {
		return false
	}
	p.sentCommit, p.asked, p.askedAt = h.SentCommit, h.Asked, h.AskedAt
	p.Inflights = NewInflights(size, maxBytes)
	for _, f := range h.Window {
		p.Inflights.Add(f.Index, f.Bytes)
	}
	return true
}
