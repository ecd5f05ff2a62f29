package appendlane

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// A round is bounded: one piece of work takes at most so much from the queue, and the rest stays.
func TestRoundIsBounded(t *testing.T) {
	s := newTestLane(t)
	s.replaceLog(t, 16<<20)
	log := s.wal
	const entryBytes, messages = 64 << 10, 100 // of 1 MiB each
	data := make([]byte, entryBytes)
	next := uint64(1)
	for range messages {
		m := appendMessage(next, next+16, 1, 0, 0)
		for i := range m.Entries {
			m.Entries[i].Data = data
		}
		next += 16
		s.put(m)
	}
	if held := s.q.Held(); held < messages<<20 {
		t.Errorf("%d bytes are held, want at least %d", held, messages<<20)
	}
	for last, more := uint64(0), true; more; {
		more = s.RunOnce()
		now := log.Group(theGroup).LastIndex()
		if bytes := (now - last) * entryBytes; bytes > workqueue.MaxRoundBytes {
			t.Fatalf("one round wrote %d bytes, at most %d are allowed", bytes, workqueue.MaxRoundBytes)
		}
		last = now
	}
	if last := log.Group(theGroup).LastIndex(); last != next-1 {
		t.Errorf("wrote through %d of %d", last, next-1)
	}
	if held := s.q.Held(); held != 0 {
		t.Errorf("%d bytes are held when all is done", held)
	}
	s.put(raftpb.Message{Type: raftpb.MsgStorageAppend, To: raft.LocalAppendThread, Entries: []raftpb.Entry{{Index: next, Term: 1, Data: make([]byte, workqueue.MaxRoundBytes+1)}}})
	s.run()
	if last := log.Group(theGroup).LastIndex(); last != next {
		t.Errorf("a message larger than a round does not go alone: wrote through %d of %d", last, next)
	}
}

// Whatever is merged, the log ends as if each message had been written alone. After each piece of work it
// holds a hard state of the core. The last acknowledgements of both kinds are given.
func TestMergedMessagesWriteTheSame(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 5))
		merged, plain := newTestLane(t), newTestLane(t)
		told := []raftpb.HardState{{}}
		hs, last := raftpb.HardState{Term: 1}, uint64(0)
		for range 40 {
			m := raftpb.Message{Type: raftpb.MsgStorageAppend, To: raft.LocalAppendThread}
			if rng.IntN(3) == 0 {
				m = appendMessage(last+1, last+2+rng.Uint64N(3), hs.Term, hs.Vote, hs.Commit)
				last = m.Entries[len(m.Entries)-1].Index
			}
			if rng.IntN(2) == 0 {
				hs.Commit = min(last, hs.Commit+rng.Uint64N(2))
				if rng.IntN(4) == 0 {
					hs = raftpb.HardState{Term: hs.Term + 1, Vote: rng.Uint64N(3), Commit: hs.Commit}
				}
				m.Term, m.Vote, m.Commit = hs.Term, hs.Vote, hs.Commit
			}
			m.Responses = append(m.Responses, raftpb.Message{Type: raftpb.MsgAppResp, From: 1, To: 2, Term: hs.Term, Index: last, Reject: rng.IntN(4) == 0})
			merged.put(m)
			plain.put(m)
			plain.run()
			told = append(told, plain.q.hard)
			if rng.IntN(5) == 0 {
				for merged.RunOnce() {
					if got := merged.wal.Group(theGroup).HardState(); !slices.Contains(told, got) {
						t.Fatalf("seed %d: hard state %+v was never told", seed, got)
					}
				}
			}
		}
		merged.run()
		a, b := merged.wal.Group(theGroup), plain.wal.Group(theGroup)
		if a.LastIndex() != b.LastIndex() || raft.MustSync(a.HardState(), b.HardState(), 0) || merged.q.hard != plain.q.hard {
			t.Fatalf("seed %d: merged ends at %d, %+v; one by one at %d, %+v", seed, a.LastIndex(), a.HardState(), b.LastIndex(), b.HardState())
		}
		if x, y := lastAccept(merged.peers.sent), lastAccept(plain.peers.sent); x.Index != y.Index || x.Term != y.Term {
			t.Fatalf("seed %d: the last answer is %v, one by one %v", seed, x, y)
		}
		if x, y := lastAccept(merged.toGroup()), lastAccept(plain.toGroup()); x.Index != y.Index {
			t.Fatalf("seed %d: the group heard %v last, one by one %v", seed, x, y)
		}
	}
}

// lastAccept returns the last message that is not a rejection.
func lastAccept(sent []raftpb.Message) (last raftpb.Message) {
	for _, m := range sent {
		if !m.Reject {
			last = m
		}
	}
	return last
}
