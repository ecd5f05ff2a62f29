package appendlane

import (
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// handClock is a clock that the test sets.
type handClock struct {
	manual
	now time.Duration
}

func (c *handClock) Now() time.Duration      { return c.now }
func (c *handClock) Boottime() time.Duration { return c.now }

// noNewSegments refuses new space, and lets preallocated space be written.
func noNewSegments(op crashfs.Op) error {
	if op.Kind == crashfs.OpPreallocate {
		return syscall.ENOSPC
	}
	return nil
}

// A round that a full disk refuses while an earlier one waits for its delayed flush needs a sync of its own:
// what a leader was told must survive a power cut.
func TestRefusedRoundIsSyncedToo(t *testing.T) {
	const delay = 30 * time.Millisecond
	s, clock := newTestLane(t), &handClock{}
	s.use(openDelayed(t, s.disk, clock, delay))
	s.later, s.q.hard = &lateTimer{}, raftpb.HardState{Term: 1}
	if err := s.Log.Append([]wal.Write{{Group: theGroup, HardState: s.q.hard}}); err != nil || s.Log.Sync() != nil {
		t.Fatal("setup: the term is not written")
	}
	s.put(appendMessage(1, 2, 1, 0, 0))
	s.run() // written; its flush may wait
	s.disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpWrite {
			return syscall.ENOSPC
		}
		return nil
	})
	s.put(appendMessage(2, 3, 1, 0, 0))
	s.run() // refused
	clock.now += delay
	s.run() // the first is flushed and answered
	s.disk.SetHook(nil)
	s.Tick() // the second is written,
	s.run()
	clock.now += delay
	s.run() // flushed and answered
	if n := len(s.peers.sent); n != 2 || s.peers.sent[1].Index != 2 {
		t.Fatalf("peers heard %v, want an answer for each round", s.peers.sent)
	}
	after := openDelayed(t, s.disk.Image(crashfs.LoseAll, nil), &handClock{}, delay)
	if last := after.Group(theGroup).LastIndex(); last != 2 {
		t.Errorf("entry 2 is acknowledged, and after a power cut the log ends at %d", last)
	}
}

// fill queues entries of term 1, each with the index before it as commit index, until there is no space for
// the last one. It returns that one's index.
func (s *testLane) fill(t *testing.T) (refused uint64) {
	t.Helper()
	s.disk.SetHook(noNewSegments)
	for i := uint64(1); i < 100; i++ {
		m := appendMessage(i, i+1, 1, 0, i-1)
		m.Entries[0].Data = make([]byte, 20<<10)
		s.forgetAnswers()
		s.put(m)
		if s.run(); len(s.peers.sent) == 0 {
			return i
		}
	}
	t.Fatal("setup: the disk does not fill")
	return 0
}

// voteFor is a vote that this member gives, as the core reports it.
func voteFor(id, term, commit uint64) raftpb.Message {
	return raftpb.Message{Term: term, Vote: id, Commit: commit, Responses: []raftpb.Message{{Type: raftpb.MsgVoteResp, From: 1, To: id, Term: term}}}
}

// A vote that is queued behind entries for which there is no space is written ahead of them and given. It is
// written with the commit index that the log has: a newer one may cover entries that were refused and would
// replace others.
func TestVoteOvertakesRefusedEntries(t *testing.T) {
	s := newTestLane(t)
	refused := s.fill(t)
	s.put(voteFor(3, 5, refused))
	s.run()
	if len(s.peers.sent) != 1 || s.peers.sent[0].Type != raftpb.MsgVoteResp {
		t.Errorf("peers heard %v, want the vote", s.peers.sent)
	}
	after := openLog(t, s.disk.Image(crashfs.LoseAll, nil)).Group(theGroup)
	if hs := after.HardState(); hs.Term != 5 || hs.Vote != 3 || hs.Commit >= refused-1 || after.LastIndex() != refused-1 {
		t.Errorf("a power cut leaves %+v and a log through %d; want term 5, vote 3, a commit index below %d, a log through %d",
			hs, after.LastIndex(), refused-1, refused-1)
	}
}

// A round that was refused before a vote overtook it is written with its own commit index, and does not undo
// the vote. Each answer is given once.
func TestRefusedRoundDoesNotPutTheVoteBack(t *testing.T) {
	s := newTestLane(t)
	s.put(appendMessage(1, 2, 1, 0, 0))
	s.run()
	s.peers.sent = nil
	s.disk.SetHook(noNewSegments)
	big := appendMessage(2, 3, 2, 0, 1)
	big.Entries[0].Data = make([]byte, 100<<10)
	s.put(big)
	s.run()
	s.put(voteFor(3, 5, 2))
	s.run()
	s.disk.SetHook(nil)
	s.Tick()
	s.RunOnce() // the write,
	s.RunOnce() // and its sync
	after := openLog(t, s.disk.Image(crashfs.LoseAll, nil)).Group(theGroup)
	if have, want := after.HardState(), (raftpb.HardState{Term: 5, Vote: 3, Commit: 1}); have != want || after.LastIndex() != 2 {
		t.Errorf("a power cut leaves %+v and a log through %d, want %+v and 2", have, after.LastIndex(), want)
	}
	s.run()
	if n := len(s.peers.sent); n != 2 || s.peers.sent[0].Type != raftpb.MsgVoteResp || s.peers.sent[1].Type != raftpb.MsgAppResp {
		t.Errorf("peers heard %v, want the vote and then the acknowledgement", s.peers.sent)
	}
	if held := s.q.Held(); held != 0 {
		t.Errorf("%d bytes are held when all is done", held)
	}
}

// If there is not even space for a vote, its answer waits, and is given once, with only the newest of its
// kind.
func TestVoteWithoutSpace(t *testing.T) {
	s := newTestLane(t)
	refused := s.fill(t)
	s.disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpWrite || op.Kind == crashfs.OpPreallocate {
			return syscall.ENOSPC
		}
		return nil
	})
	for term := uint64(5); term < 8; term++ {
		s.put(voteFor(3, term, refused))
		s.run()
	}
	if len(s.peers.sent) != 0 {
		t.Fatalf("peers heard %v, and nothing can be written", s.peers.sent)
	}
	s.disk.SetHook(nil)
	s.Tick()
	s.run()
	var votes []raftpb.Message
	for _, m := range s.peers.sent {
		if m.Type == raftpb.MsgVoteResp {
			votes = append(votes, m)
		}
	}
	if hs := s.wal.Group(theGroup).HardState(); len(votes) != 1 || votes[0].Term != 7 || hs.Term != 7 || hs.Vote != 3 {
		t.Errorf("peers heard the votes %v, the log has %+v; want one, of term 7", votes, hs)
	}
	if held := s.q.Held(); held != 0 {
		t.Errorf("%d bytes are held when all is done", held)
	}
}

// A group asks to forget what the disk refuses, and there is space by the time that the lane looks. What
// waits behind it is written, although nothing else comes.
func TestSpaceReturnsBeforeALaneForgets(t *testing.T) {
	s := newTestLane(t)
	refused := s.fill(t)
	s.put(appendMessage(refused+1, refused+2, 1, 0, refused))
	s.run()
	s.disk.SetHook(nil)
	s.retry.Store(true)
	s.q.forget.Store(true) // after the lane has begun
	s.run()
	if s.q.forget.Load() {
		t.Fatal("the group was not answered")
	}
	s.run()
	if last := s.wal.Group(theGroup).LastIndex(); last != refused+1 || s.q.Held() != 0 {
		t.Errorf("the log ends at %d, want %d; %d bytes are held", last, refused+1, s.q.Held())
	}
}

// A vote that was queued in the very round that is refused is given at once, not when there is space.
func TestVoteInTheRefusedRound(t *testing.T) {
	s := newTestLane(t)
	s.disk.SetHook(noNewSegments)
	s.put(sized(1, 100<<10))
	s.put(voteFor(3, 5, 0))
	s.run()
	if len(s.peers.sent) != 1 || s.peers.sent[0].Type != raftpb.MsgVoteResp {
		t.Errorf("peers heard %v, want the vote", s.peers.sent)
	}
	if hs := s.wal.Group(theGroup).HardState(); hs.Term != 5 || hs.Vote != 3 || s.last(s.q) != 0 {
		t.Errorf("the log has %+v and ends at %d, want term 5, vote 3 and nothing refused", hs, s.last(s.q))
	}
}

// openDelayed opens another log in mode group-delay, beside the one of openLog.
func openDelayed(t *testing.T, disk *crashfs.FS, clock *handClock, delay time.Duration) *wal.Log {
	t.Helper()
	log, err := wal.Open(wal.Options{FS: disk, Dir: "delayed", Scheduler: &manual{}, Clock: clock, Owner: 1, SegmentBytes: 64 << 10, Mode: wal.ModeGroupDelay(delay, 0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return log
}
