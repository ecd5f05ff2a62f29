package core

import (
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
)

// Entries with one index and term are equal, and have the same predecessor in all logs: so logs that agree at
// an index agree through it (thesis §3.5). Checked at each write of a storage, and again at each write that a
// power cut leaves. A log has one uncommitted change of members at most (§4.1); that is checked here, too,
// because a change counts from when it is in a log.

func (o *oracle) find(i, term uint64) *seen {
	if i < uint64(len(o.seen)) {
		for k := range o.seen[i] {
			if o.seen[i][k].term == term {
				return &o.seen[i][k]
			}
		}
	}
	return nil
}

// written checks the entries of a write, which is about to be done in an image of a node's disk.
func (o *oracle) written(n *node, d *image, m *raftpb.Message) {
	if len(m.Entries) == 0 {
		return
	}
	first := m.Entries[0].Index
	n.changes = before(n.changes, first)
	term, known := d.term(first - 1)
	if m.Snapshot != nil && m.Snapshot.Metadata.Index == first-1 {
		term, known = m.Snapshot.Metadata.Term, true
	}
	if !known {
		violate(property.Contract, "node %d is told to write entry %d, and has %d to %d", n.id, first, d.base.Index+1, d.last())
	}
	for k := range m.Entries {
		e := &m.Entries[k]
		if e.Index != first+uint64(k) || e.Term < term {
			violate(property.Contract, "node %d is told to write entry %v behind one of term %d", n.id, e.ID(), term)
		}
		sum := sumOf(e)
		if old := o.find(e.Index, e.Term); old == nil {
			for uint64(len(o.seen)) <= e.Index {
				o.seen = append(o.seen, nil)
			}
			o.seen[e.Index] = append(o.seen[e.Index], seen{e.Term, term, sum})
		} else if old.before != term || old.sum != sum {
			violate(property.LogMatching, "node %d writes another entry %v than was seen before, or behind another one (term %d, was %d)", n.id, e.ID(), term, old.before)
		}
		term = e.Term
		if e.Type != raftpb.EntryNormal {
			o.oneChange(n, e.Index)
		}
	}
}
