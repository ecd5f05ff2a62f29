package host

import "github.com/millrace/millrace/host/internal/entry"

// hostBlock returns the block as of what is applied, which is index, without the sums. It is called where the
// machine may be called; founded is committed.
func (g *Group) hostBlock(index uint64) entry.Block {
	return entry.Block{Found: *g.snapshots.found.Load(), Roster: g.members.rosterAt(index), PerEntry: g.snapshots.growth.PerEntry()}
}

// wasMemberAt reports whether this directory is a member by the roster of an entry, or that is not known.
func (g *Group) wasMemberAt(index uint64) bool {
	r := g.members.rosterAt(index)
	if r == nil {
		return true
	}
	m, is := r.Member(g.self)
	return is && m.Incarnation == g.host.incarnation()
}
