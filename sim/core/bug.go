package core

import "github.com/millrace/millrace/raft/raftpb"

// bug is a mistake of the storage, by which tests of this package see that the oracles find it; 0: none.
type bug int

const (
	// entriesFirst writes the entries of a write before its hard state.
	entriesFirst bug = iota + 1
	// commitFirst writes the commit index before the truncation.
	commitFirst
	// keepsAuthority starts a node with authority although its disk lacks what it has promised.
	keepsAuthority
)

// tear does the first parts of a write of which a crash leaves no more.
func (b bug) tear(d *image, m *raftpb.Message, parts int) {
	switch {
	case parts == partsOf(m):
		d.write(m, parts)
	case b == entriesFirst:
		part := *m
		part.Term, part.Vote, part.Commit = 0, 0, 0
		part.Entries = m.Entries[:min(parts, len(m.Entries))]
		d.write(&part, partsOf(&part))
	case b == commitFirst:
		if m.Term != 0 {
			d.hs = raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
		}
	default:
		d.write(m, parts)
	}
}
