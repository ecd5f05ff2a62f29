package appendlane

import (
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// A round of the append worker is many messages of the core and one write of the log. The write has the
// effect of the messages one after the other: later entries replace earlier ones from their first index on
// upwards, and of many hard states the last one stays. The write is atomic, so its commit index may cover any
// entry in it.
//
// Rejected: a write for each message, and one hard state for all of them. With the hard state last, a crash
// could keep the entry of a membership change and lose the commit index of the change before, and two leaders
// could be elected. With it first, a crash could keep a commit index that covers entries which are not
// written yet. (raft/doc.go has both stories.)

// round is the scratch memory in which the writes of a round are made.
type round struct {
	writes []wal.Write
	joined []raftpb.Entry // entries that were copied to join others
	from   int            // where in joined the last write's entries begin
	owns   bool           // the last write's entries are in joined
}

// maxIdleEntries bounds the array that is kept between rounds.
const maxIdleEntries = 4 << 10

// join makes writes of the messages of one group, in order. hard is the hard state before them, and becomes
// the one after them. Each write carries the whole hard state at its end.
//
// The core owns the entries of a message and never changes them, so two slices of entries are joined by
// copying. Their data is not copied. A round is bounded in bytes (workqueue.MaxRoundBytes), so this copy is
// too.
func (r *round) join(group uint64, messages []raftpb.Message, hard *raftpb.HardState) {
	for i := range messages {
		m := &messages[i]
		if hs := workqueue.HardStateOf(m); !raft.IsEmptyHardState(hs) {
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

// extends reports whether the last write can also do what a message wants. A write applies its snapshot
// before its entries, so a snapshot that was queued behind entries begins a new write. So does a gap: the log
// must see it and refuse it.
func (r *round) extends(m *raftpb.Message) bool {
	w := &r.writes[len(r.writes)-1]
	switch {
	case m.Snapshot != nil:
		return len(w.Entries) == 0 && w.Snapshot == (wal.Snapshot{})
	}
	return len(m.Entries) == 0 || len(w.Entries) == 0 || m.Entries[0].Index <= w.Entries[0].Index+uint64(len(w.Entries))
}

// addEntries appends entries to those of the last write, and replaces those at and above their first index.
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

// reset drops the round and releases its memory.
func (r *round) reset() {
	clear(r.writes)
	clear(r.joined)
	r.writes, r.joined = r.writes[:0], r.joined[:0]
	if cap(r.joined) > maxIdleEntries {
		r.joined = nil
	}
}

// DurableState is the hard state of a group as the log has it. It decides which writes carry one. Its owner
// is who writes for the group.
type DurableState struct {
	hs     raftpb.HardState // as last written
	silent int64            // bytes of entries written since
}

// MaxSilentBytes is the most that is written without a commit index. With it, a host that starts can apply
// what it knows to be committed before it hears a leader.
const MaxSilentBytes = 64 << 10

// Complete decides which hard state a write carries, and reports whether there is anything to write. A hard
// state goes with a new term or vote, and with the entry of a membership change. A disk with the entry of a
// change must also have the commit index of the change before it. Otherwise the commit index may stay in
// memory. Losing it loses nothing, because the leader sends it again. A commit index is written later, and
// covers only entries that are written by then.
//
// Term and vote never go back. On a full disk they may have overtaken this write (hardstate.go).
func (s *DurableState) Complete(w *wal.Write) (needed bool) {
	if workqueue.Behind(w.HardState, s.hs) {
		w.HardState.Term, w.HardState.Vote = s.hs.Term, s.hs.Vote
	}
	promises := w.HardState.Term != s.hs.Term || w.HardState.Vote != s.hs.Vote
	if len(w.Entries) == 0 && w.Snapshot == (wal.Snapshot{}) {
		return promises // at most a commit index, which goes with a later write
	}
	if !promises && w.Snapshot == (wal.Snapshot{}) && !changesMembers(w.Entries) && s.silent+workqueue.EntryBytes(w.Entries) <= MaxSilentBytes {
		w.HardState = raftpb.HardState{}
	}
	return true
}

// withNewestVote repeats Complete for a write that the log has refused: meanwhile term and vote may have
// overtaken it.
func (s *DurableState) withNewestVote(w *wal.Write) {
	if !raft.IsEmptyHardState(w.HardState) && workqueue.Behind(w.HardState, s.hs) {
		w.HardState.Term, w.HardState.Vote = s.hs.Term, s.hs.Vote
	}
}

// Wrote records that the log has taken a write.
func (s *DurableState) Wrote(w *wal.Write) {
	if s.silent += workqueue.EntryBytes(w.Entries); !raft.IsEmptyHardState(w.HardState) {
		s.hs, s.silent = w.HardState, 0
	}
}

// NewDurableState returns the state of a group whose log has a hard state.
func NewDurableState(hs raftpb.HardState) DurableState { return DurableState{hs: hs} }

func changesMembers(entries []raftpb.Entry) bool {
	for i := range entries {
		if entry.IsMemberEntry(entries[i].Type, entries[i].Data) {
			return true
		}
	}
	return false
}
