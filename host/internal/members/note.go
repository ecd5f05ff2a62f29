package members

import (
	"slices"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/raft/raftpb"
)

// Noted are the entries of this host's log that will change the roster, skip a command or begin a
// version, and are not in force yet; by index. A turn owns them. The zero value has none.
type Noted struct{ all []raftpb.Entry }

// Append notes those among some entries that are appended to the log, and forgets what they replace. It
// reports whether there was something to forget, and whether there was something to note.
func (n *Noted) Append(entries []raftpb.Entry) (replaced, noted bool) {
	if len(entries) == 0 {
		return false, false
	}
	if last := len(n.all); last > 0 && n.all[last-1].Index >= entries[0].Index {
		first := entries[0].Index
		n.Keep(func(e *raftpb.Entry) bool { return e.Index < first })
		replaced = true
	}
	for i := range entries {
		if e := &entries[i]; e.Type != raftpb.EntryNormal && entry.IsMemberEntry(e.Type, e.Data) {
			n.all = append(n.all, raftpb.Entry{Index: e.Index, Term: e.Term, Type: e.Type, Data: e.Data})
			noted = true
		}
	}
	return replaced, noted
}

// Any reports whether an entry is noted.
func (n *Noted) Any() bool { return len(n.all) > 0 }

// Through returns those through an index. They stay valid until the next call of another method.
func (n *Noted) Through(index uint64) []raftpb.Entry {
	end := 0
	for end < len(n.all) && n.all[end].Index <= index {
		end++
	}
	return n.all[:end]
}

// All returns all, as Through does.
func (n *Noted) All() []raftpb.Entry { return n.all }

// Keep forgets all for which a function returns false.
func (n *Noted) Keep(is func(e *raftpb.Entry) bool) {
	n.all = slices.DeleteFunc(n.all, func(e raftpb.Entry) bool { return !is(&e) })
}

// DropThrough forgets those through an index: they are in force.
func (n *Noted) DropThrough(index uint64) { n.all = slices.Delete(n.all, 0, len(n.Through(index))) }
