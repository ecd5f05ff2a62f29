package snapshots

import "github.com/millrace/millrace/snapshot"

// Published is a snapshot on this host's disk that was read back. It does not change.
type Published struct {
	ID       snapshot.ID
	Manifest snapshot.Manifest
	Hash     [32]byte
	Bytes    int64 // without objects, which are linked
	At       int64 // tick at which it was published, or found; not missed
}

// NewPublished describes the snapshot of a manifest.
func NewPublished(m snapshot.Manifest, at int64) *Published {
	p := &Published{ID: m.ID(), Manifest: m, Hash: m.Hash(), At: at}
	for i := range m.Parts {
		if m.Parts[i].Kind != snapshot.KindObject {
			p.Bytes += m.Parts[i].Bytes
		}
	}
	return p
}

// Index returns the index of the last entry that a snapshot covers; that of none is 0.
func (p *Published) Index() uint64 {
	if p == nil {
		return 0
	}
	return p.ID.Index
}
