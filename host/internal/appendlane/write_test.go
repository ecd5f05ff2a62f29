package appendlane

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
	"pgregory.net/rapid"
)

// anyMessages draws what a core may queue behind a log of last entries: appends of its leaders, which may
// replace earlier entries, hard states, and sometimes a snapshot.
func anyMessages(t *rapid.T, last uint64) (messages []raftpb.Message) {
	first, term, commit := uint64(1), uint64(1), uint64(0)
	for range rapid.IntRange(1, 12).Draw(t, "messages") {
		m := raftpb.Message{Type: raftpb.MsgStorageAppend}
		if rapid.IntRange(0, 3).Draw(t, "new term") == 0 {
			term++
		}
		if rapid.IntRange(0, 9).Draw(t, "snapshot") == 0 {
			index := rapid.Uint64Range(first, last+3).Draw(t, "through")
			m.Snapshot = &raftpb.Snapshot{Metadata: raftpb.SnapshotMetadata{Index: index, Term: term}}
			first, last, commit = index+1, index, index
		}
		if n := rapid.Uint64Range(0, 4).Draw(t, "entries"); n > 0 {
			lo := rapid.Uint64Range(max(first, commit+1), last+1).Draw(t, "from")
			m.Entries = span(lo, lo+n, term)
			for i := range m.Entries {
				m.Entries[i].Data = fmt.Appendf(nil, "%d@%d", lo+uint64(i), term)
			}
			last = lo + n - 1
		}
		if rapid.Bool().Draw(t, "hard") {
			commit = rapid.Uint64Range(commit, last).Draw(t, "commit")
			m.Term, m.Vote, m.Commit = term, 2, commit
		}
		messages = append(messages, m)
	}
	return messages
}

// The writes of a round have the same effect on the log as the messages one by one, and do not change what
// the core handed out.
func TestRoundEqualsItsMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		manual, disk := &manual{}, crashfs.New()
		log, err := wal.Open(wal.Options{FS: disk, Dir: "log", Scheduler: manual, Clock: manual, Owner: 1, SegmentBytes: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		const joined, single = 1, 2
		messages := anyMessages(t, 0)
		before := make([]raftpb.Message, len(messages))
		for i, m := range messages {
			before[i] = m
			before[i].Entries = slices.Clone(m.Entries)
		}
		var scratch round
		var hard, hardSingle raftpb.HardState
		at := 0
		for at < len(messages) {
			n := rapid.IntRange(1, len(messages)-at).Draw(t, "round")
			scratch.join(joined, messages[at:at+n], &hard)
			if err := log.Append(scratch.writes); err != nil {
				t.Fatalf("joined: %v", err)
			}
			scratch.reset()
			for _, m := range messages[at : at+n] { // the naive twin
				w := wal.Write{Group: single, Entries: m.Entries}
				if m.Term != 0 {
					hardSingle = workqueue.HardStateOf(&m)
				}
				w.HardState = hardSingle
				if m.Snapshot != nil {
					w.Snapshot = wal.Snapshot{Index: m.Snapshot.Metadata.Index, Term: m.Snapshot.Metadata.Term}
				}
				if err := log.Append([]wal.Write{w}); err != nil {
					t.Fatalf("one by one: %v", err)
				}
			}
			at += n
			if have, want := contents(t, log.Group(joined)), contents(t, log.Group(single)); have != want {
				t.Fatalf("joined\n%s\none by one\n%s", have, want)
			}
		}
		for i := range messages {
			if have, want := fmt.Sprint(messages[i].Entries), fmt.Sprint(before[i].Entries); have != want {
				t.Fatalf("message %d was %s and is %s", i, want, have)
			}
		}
	})
}

// contents is everything that a log says of a group.
func contents(t *rapid.T, g *wal.Group) string {
	entries, err := g.Entries(g.FirstIndex(), g.LastIndex()+1, 1<<20)
	if err != nil && g.FirstIndex() <= g.LastIndex() {
		t.Fatal(err)
	}
	before, _ := g.Term(g.FirstIndex() - 1)
	return fmt.Sprintf("%+v, begins after %d@%d: %v", g.HardState(), g.FirstIndex()-1, before, entries)
}

// A round that a full disk refused has the commit index of its own messages, and the term and vote that have
// overtaken it.
func TestHardStateNeverGoesBack(t *testing.T) {
	change := span(4, 5, 2)
	change[0].Type = raftpb.EntryConfChange
	ahead := raftpb.HardState{Term: 5, Vote: 3, Commit: 1}
	for _, row := range []struct {
		name    string
		entries []raftpb.Entry
		hard    raftpb.HardState
		want    raftpb.HardState // in the write; zero: none
		needed  bool
	}{
		{"an older term", change, raftpb.HardState{Term: 4, Vote: 9, Commit: 3}, raftpb.HardState{Term: 5, Vote: 3, Commit: 3}, true},
		{"the same term before the vote", change, raftpb.HardState{Term: 5, Commit: 3}, raftpb.HardState{Term: 5, Vote: 3, Commit: 3}, true},
		{"a newer term", span(4, 5, 6), raftpb.HardState{Term: 6, Commit: 3}, raftpb.HardState{Term: 6, Commit: 3}, true},
		{"an older term with nothing that needs it", span(4, 5, 2), raftpb.HardState{Term: 4, Commit: 3}, raftpb.HardState{}, true},
		{"an older vote alone", nil, raftpb.HardState{Term: 4, Vote: 2, Commit: 3}, raftpb.HardState{Term: 5, Vote: 3, Commit: 3}, false},
	} {
		s, w := DurableState{hs: ahead}, wal.Write{Entries: row.entries, HardState: row.hard}
		if needed := s.Complete(&w); needed != row.needed || w.HardState != row.want {
			t.Errorf("%s: needed %t with %+v, want %t with %+v", row.name, needed, w.HardState, row.needed, row.want)
		}
		early, w := DurableState{}, wal.Write{Entries: row.entries, HardState: row.hard}
		early.Complete(&w) // before it was overtaken
		early.hs = ahead
		if early.withNewestVote(&w); workqueue.Behind(w.HardState, ahead) {
			t.Errorf("%s, prepared before: %+v would put %+v back", row.name, w.HardState, ahead)
		}
	}
}

// A deposed leader has queued an entry that no other log has. Behind it is the next leader's entry for the
// same index, with the commit index that covers it. The power fails while that round is being written: no
// image may hold the first entry together with the commit index.
func TestTornRoundCommitsNothing(t *testing.T) {
	s := newTestLane(t)
	s.put(appendMessage(1, 2, 1, 1, 0))
	s.run()
	for _, m := range []raftpb.Message{appendMessage(2, 3, 1, 1, 1), appendMessage(2, 4, 2, 0, 3)} {
		for i := range m.Entries {
			m.Entries[i].Data = make([]byte, 700)
		}
		s.put(m)
	}
	s.RunOnce() // the write; the sync does not come
	images := 0
	for desc, image := range s.disk.Images(2000, 1) {
		images++
		log := openLog(t, image)
		g := log.Group(theGroup)
		for i := uint64(2); i <= g.HardState().Commit && i <= g.LastIndex(); i++ {
			if term, err := g.Term(i); err != nil || term != 2 {
				t.Errorf("image %s, lost %v: entry %d of term %d is committed by %+v, where the group has one of term 2", desc.Code(), desc.Lost(), i, term, g.HardState())
			}
		}
		_ = log.Close()
	}
	if images < 4 {
		t.Errorf("only %d images", images)
	}
}

// Entries of MaxSilentBytes are written without a commit index, and larger ones with it.
func TestEntriesWithoutACommitIndex(t *testing.T) {
	for more := range 2 {
		s := NewDurableState(raftpb.HardState{Term: 1})
		w := &wal.Write{HardState: raftpb.HardState{Term: 1, Commit: 4}, Entries: []raftpb.Entry{{Term: 1, Index: 5, Data: make([]byte, MaxSilentBytes)}}}
		for workqueue.EntryBytes(w.Entries) > MaxSilentBytes+int64(more) {
			w.Entries[0].Data = w.Entries[0].Data[1:]
		}
		if !s.Complete(w) || workqueue.EntryBytes(w.Entries) != MaxSilentBytes+int64(more) || raft.IsEmptyHardState(w.HardState) != (more == 0) {
			t.Errorf("%d bytes are written with %+v", workqueue.EntryBytes(w.Entries), w.HardState)
		}
	}
}
