package host

import (
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A follower's disk hangs, or is full, and its leader continues: appends without entries after each
// heartbeat, appends that do not fit, elections now and then. What waits for the disk does not grow.
func TestQueueStaysFlatBehindADiskThatStandsStill(t *testing.T) {
	for _, kind := range []string{"hung", "full"} {
		t.Run(kind, func(t *testing.T) {
			l := openTestHost(t, 3)
			l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: span(1, 3, 1)})
			a := l.group.writes.append
			if kind == "hung" {
				l.storage.lane.task.(*manualTask).dead = true
			} else {
				l.disk.SetHook(func(op crashfs.Op) error {
					if op.Kind == crashfs.OpWrite || op.Kind == crashfs.OpPreallocate {
						return syscall.ENOSPC
					}
					return nil
				})
			}
			l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Index: 2, LogTerm: 1, Entries: span(3, 5, 1)})
			messages, responses := 0, 0
			for i := range uint64(500) {
				term := 1 + i/50
				l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: term, Commit: 2})
				l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: term, Index: 4, LogTerm: 1, Commit: 2 + i/250})
				l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: term, Index: 9, LogTerm: term, Commit: 2})
				l.manual.tick()
				waiting := slices.Concat(a.queued, a.taken)
				messages = max(messages, len(waiting))
				for _, m := range waiting {
					responses = max(responses, len(m.Responses))
				}
			}
			if messages > 4 || responses > 16 {
				t.Errorf("up to %d messages wait for the disk, with up to %d responses each", messages, responses)
			}
		})
	}
}

// A round is bounded: one piece of work takes at most so much from the queue, and the rest stays.
func TestRoundIsBounded(t *testing.T) {
	s := newTestLane(t)
	s.replaceLog(t, 16<<20)
	log := s.log
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
	if held := s.q.held.Load(); held < messages<<20 {
		t.Errorf("%d bytes are held, want at least %d", held, messages<<20)
	}
	for last, more := uint64(0), true; more; {
		more = s.RunOnce()
		now := log.Group(theGroup).LastIndex()
		if bytes := (now - last) * entryBytes; bytes > maxRoundBytes {
			t.Fatalf("one round wrote %d bytes, at most %d are allowed", bytes, maxRoundBytes)
		}
		last = now
	}
	if last := log.Group(theGroup).LastIndex(); last != next-1 {
		t.Errorf("wrote through %d of %d", last, next-1)
	}
	if held := s.q.held.Load(); held != 0 {
		t.Errorf("%d bytes are held when all is done", held)
	}
	s.put(raftpb.Message{Type: raftpb.MsgStorageAppend, To: raft.LocalAppendThread, Entries: []raftpb.Entry{{Index: next, Term: 1, Data: make([]byte, maxRoundBytes+1)}}})
	s.run()
	if last := log.Group(theGroup).LastIndex(); last != next {
		t.Errorf("a message larger than a round does not go alone: wrote through %d of %d", last, next)
	}
}

// Whatever is merged, the log ends as if each message had been written alone, it holds a hard state of the
// core after each piece of work, and the last acknowledgements of both kinds are given.
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
					if got := merged.log.Group(theGroup).HardState(); !slices.Contains(told, got) {
						t.Fatalf("seed %d: hard state %+v was never told", seed, got)
					}
				}
			}
		}
		merged.run()
		a, b := merged.log.Group(theGroup), plain.log.Group(theGroup)
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

// What peers send is also bounded while a disk hangs, even if many leaders send: each has a window of its
// own.
func TestEntriesBehindAHungDiskAreBounded(t *testing.T) {
	l := openTestHostWith(t, 3, littleMemory)
	a, limit := l.group.writes.append, l.memory.writing.Max
	l.storage.lane.task.(*manualTask).dead = true
	for term := uint64(1); term < 200; term++ {
		l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: term, Entries: span(1, 9, term)})
	}
	if held, message := a.held.Load(), messageBytes(&raftpb.Message{Entries: span(1, 9, 1)}); held > limit+message {
		t.Errorf("%d bytes wait for the disk, at most %d are allowed, and a message of %d", held, limit, message)
	}
	l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 300})
	if s := l.group.Status(); s.Term != 300 {
		t.Errorf("a message without entries is not let in: term %d", s.Term)
	}
}

// Bytes include the overhead of a command: tiny commands do not slip through a bound for large ones.
func TestTinyEntriesCountWhole(t *testing.T) {
	const n = 1000
	m := raftpb.Message{Type: raftpb.MsgApp, Entries: make([]raftpb.Entry, n)}
	for i := range m.Entries {
		m.Entries[i].Data = []byte("x")
	}
	if bytes := messageBytes(&m); bytes < n*raft.EntryOverhead {
		t.Errorf("a message of %d one-byte entries counts as %d bytes", n, bytes)
	}
}

// A leader whose disk hangs commits by its followers' disks, and its clients are answered. What it holds
// until its own disk has caught up stays within its share of Config.MemoryBytes, however small the commands.
func TestTinyCommandsBehindAHungDiskAreBounded(t *testing.T) {
	l := openTestHostWith(t, 3, littleMemory)
	l.lead()
	l.storage.lane.task.(*manualTask).dead = true
	taken, limit := 0, int(l.memory.proposed.Max)
	for taken < limit {
		p := l.submit("x")
		l.manual.runIdle()
		ack := raftpb.Message{Type: raftpb.MsgAppResp, From: 3, To: 1, Term: 1, Index: l.group.Status().LastIndex}
		(*inbound)(l.Host).Receive(3, []transport.Envelope{{Group: theGroup, Message: ack}})
		l.deliver(ack)
		if _, err := poll(t, p); err != nil {
			if !errors.Is(err, ErrOverloaded) {
				t.Fatal(err)
			}
			break
		}
		taken++
	}
	if bytes := taken * (1 + raft.EntryOverhead); taken == 0 || bytes > limit {
		t.Errorf("%d commands of one byte are committed and not written here: about %d bytes, at most %d are allowed", taken, bytes, limit)
	}
}
