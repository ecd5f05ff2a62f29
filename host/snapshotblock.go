package host

import (
	"time"

	"github.com/millrace/millrace/host/internal/entry"
)

// hostBlock returns the block as of what is applied, which is index, without the sums. It is called where the
// machine may be called; founded is committed.
func (g *Group) hostBlock(index uint64) entry.Block {
	return entry.Block{Found: *g.snapshots.found.Load(), Roster: g.members.rosterAt(index), PerEntry: g.snapshots.perEntry()}
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

// store puts the sums into a block.
func (s *sums) store(b *entry.Block) {
	b.HasSums = true
	b.Sums = entry.Sums{Commands: s.commands, Results: s.results, Whole: s.whole, Second: int64(s.second), Count: s.count}
}

// restore makes the sums those of a block. The sum of results is not whole until the next checkpoint: the
// block may come from a program of another version, or that sums up results in another form.
func (s *sums) restore(b *entry.Block) {
	f := b.Sums
	s.commands, s.results, s.whole = f.Commands, f.Results, false
	s.second, s.count = time.Duration(f.Second), f.Count
}
