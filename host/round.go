package host

import (
	"github.com/millrace/millrace/internal/planted"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// A round of the append worker is many messages of the core and one write of the log. The write does what the
// messages would do one after the other: later entries take the place of earlier ones from their first index
// on, and of many hard states the last one stays. The write is atomic, so the commit index in it may speak of
// any entry in it.
//
// Rejected: a write for each message, and one hard state for all of them. Behind them, a crash could keep the
// entry of a membership change and lose the commit index of the change before, and two leaders could be
// elected. Before them, a crash could keep a commit index that speaks of entries which are not written yet.
// (raft/doc.go has both stories.)

// round is the scratch space in which the writes of a round are made.
type round struct {
	writes []wal.Write
	joined []raftpb.Entry // entries that were copied to stand beside others
	from   int            // where in joined the last write's entries begin
	owns   bool           // they are there
}

// maxIdleEntries bounds the array that is kept between rounds.
const maxIdleEntries = 4 << 10

// join makes writes of the messages of one group, in order. hard is the hard state before them, and becomes
// the one after them. Each write carries the whole hard state that stands when the write is done.
//
// The entries of a message belong to the core and never change, so two slices of them are joined by copying.
// Their data is not copied. A round is bounded in bytes (maxRoundBytes), so this is too.
func (r *round) join(group uint64, messages []raftpb.Message, hard *raftpb.HardState) {
	for i := range messages {
		m := &messages[i]
		if hs := hardStateOf(m); !raft.IsEmptyHardState(hs) {
			*hard = hs
		}
		if len(r.writes) == 0 || !r.extends(m) {
			r.writes, r.owns = append(r.writes, wal.Write{Group: group}), false
		}
		w := &r.writes[len(r.writes)-1]
		w.HardState = *hard
		if m.Snapshot != nil {
			w.Snapshot = wal.Snapshot{Index: m.Snapshot.Metadata.Index, Term: m.Snapshot.Metadata.Term}
		}
		r.addEntries(w, m.Entries)
	}
}

// extends reports whether the last write can do what a message wants, too. The snapshot of a write comes
// before its entries, so a snapshot that was queued behind entries begins a new write. So does a gap: the log
// must see it, and refuse it.
func (r *round) extends(m *raftpb.Message) bool {
	w := &r.writes[len(r.writes)-1]
	switch {
	case planted.OneHardState:
		return false
	case m.Snapshot != nil:
		return len(w.Entries) == 0 && w.Snapshot == (wal.Snapshot{})
	}
	return len(m.Entries) == 0 || len(w.Entries) == 0 || m.Entries[0].Index <= w.Entries[0].Index+uint64(len(w.Entries))
}

// addEntries puts entries behind those of the last write, and in place of those from their first index on.
func (r *round) addEntries(w *wal.Write, entries []raftpb.Entry) {
	if len(entries) == 0 {
		return
	}
	if len(w.Entries) == 0 || entries[0].Index <= w.Entries[0].Index {
		w.Entries, r.owns = entries, false
		return
	}
	kept := int(entries[0].Index - w.Entries[0].Index)
	if !r.owns {
		r.from, r.owns = len(r.joined), true
		r.joined = append(r.joined, w.Entries[:kept]...)
	}
	clear(r.joined[r.from+kept:])
	r.joined = append(r.joined[:r.from+kept], entries...)
	w.Entries = r.joined[r.from:len(r.joined):len(r.joined)]
}

// reset forgets the round, and what it kept in memory.
func (r *round) reset() {
	clear(r.writes)
	clear(r.joined)
	r.writes, r.joined = r.writes[:0], r.joined[:0]
	if cap(r.joined) > maxIdleEntries {
		r.joined = nil
	}
}

// stated is the hard state as the log has it. It decides which writes carry one.
type stated struct {
	hs     raftpb.HardState // as last written
	silent int64            // bytes of entries written since
}

// maxSilentBytes is how much is written at most without a word on what is committed. A host that starts can
// apply what it knows to be committed before it hears a leader.
const maxSilentBytes = 64 << 10

// setHardState decides which hard state a write carries, and reports whether there is something to write at
// all. A hard state goes with a new term or vote, and with the entry of a membership change: a disk that
// holds the entry of a change must hold the commit index of the change before it. Otherwise the commit index
// may stay in memory. Losing it loses nothing, as the leader tells it again; and a commit index that is
// written later speaks of entries that are written by then.
//
// Term and vote never go back. A full disk may have let them overtake this write (overtake.go).
func (s *stated) setHardState(w *wal.Write) (needed bool) {
	if behind(w.HardState, s.hs) && !planted.PutBackVote {
		w.HardState.Term, w.HardState.Vote = s.hs.Term, s.hs.Vote
	}
	promises := w.HardState.Term != s.hs.Term || w.HardState.Vote != s.hs.Vote
	if len(w.Entries) == 0 && w.Snapshot == (wal.Snapshot{}) {
		return promises // at most a commit index, which goes with a later write
	}
	if !promises && w.Snapshot == (wal.Snapshot{}) && !changesMembers(w.Entries) && s.silent+entryBytes(w.Entries) <= maxSilentBytes {
		w.HardState = raftpb.HardState{}
	}
	return true
}

// raise repeats setHardState for a write that the log has refused: meanwhile term and vote may have overtaken
// it.
func (s *stated) raise(w *wal.Write) {
	if !raft.IsEmptyHardState(w.HardState) && behind(w.HardState, s.hs) && !planted.PutBackVote {
		w.HardState.Term, w.HardState.Vote = s.hs.Term, s.hs.Vote
	}
}

// wrote notes that the log has taken a write.
func (s *stated) wrote(w *wal.Write) {
	if s.silent += entryBytes(w.Entries); !raft.IsEmptyHardState(w.HardState) {
		s.hs, s.silent = w.HardState, 0
	}
}

// behind reports whether a hard state is of an earlier term than another, or of the same term before its
// vote.
func behind(hs, than raftpb.HardState) bool {
	return hs.Term < than.Term || hs.Term == than.Term && hs.Vote == raft.None && than.Vote != raft.None
}

func hardStateOf(m *raftpb.Message) raftpb.HardState {
	return raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
}

func changesMembers(entries []raftpb.Entry) bool {
	for i := range entries {
		if entries[i].Type != raftpb.EntryNormal {
			return true
		}
	}
	return false
}

func entryBytes(entries []raftpb.Entry) (n int64) {
	for i := range entries {
		n += raft.EntryOverhead + int64(len(entries[i].Data))
	}
	return n
}
