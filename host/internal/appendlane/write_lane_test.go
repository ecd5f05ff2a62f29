package appendlane

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// Everything queued goes into one write and one sync, and each answer is given once.
func TestAppendLaneBatches(t *testing.T) {
	s := newTestLane(t)
	for i := range uint64(10) {
		s.put(appendMessage(i+1, i+2, 1, 0, i))
	}
	before := s.wal.Stats()
	if syncs := s.run(); syncs != 1 {
		t.Errorf("%d syncs for ten messages", syncs)
	}
	if after := s.wal.Stats(); after.Appends-before.Appends != 1 {
		t.Errorf("%d writes for ten messages", after.Appends-before.Appends)
	}
	if len(s.peers.sent) != 1 || s.peers.sent[0].Index != 10 || len(s.toGroup()) != 1 || s.toGroup()[0].Index != 10 {
		t.Errorf("peers heard %v, the group %v", s.peers.sent, s.toGroup())
	}
	if hs := s.wal.Group(theGroup).HardState(); hs.Commit != 9 || hs.Term != 1 {
		t.Errorf("hard state %+v", hs)
	}
}

// No answer is given between the write and the end of the sync.
func TestAppendLaneAnswersAfterSync(t *testing.T) {
	s := newTestLane(t)
	s.put(appendMessage(1, 2, 1, 0, 0))
	heard := -1
	s.disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync {
			heard = len(s.peers.sent) + len(s.toGroup())
		}
		return nil
	})
	if s.RunOnce(); len(s.peers.sent)+len(s.toGroup()) != 0 {
		t.Error("answered after the write")
	}
	s.run()
	if heard != 0 {
		t.Errorf("%d answers were heard when the sync began", heard)
	}
	if len(s.peers.sent) != 1 || len(s.toGroup()) != 1 {
		t.Error("not answered after the sync")
	}
}

// A commit index alone costs neither write nor sync, still gets its answers, and goes with a later write:
// with the next entry of a membership change, or with the entries that make enough bytes.
func TestAppendLaneKeepsCommitsBack(t *testing.T) {
	s := newTestLane(t)
	s.put(appendMessage(1, 4, 1, 2, 0))
	s.run()
	before := s.wal.Stats()
	for commit := range uint64(4) {
		s.put(appendMessage(4, 4, 1, 2, commit)) // no entries
	}
	s.put(raftpb.Message{Responses: []raftpb.Message{{Type: raftpb.MsgVoteResp, From: 1, To: 3, Term: 1}}}) // not even a hard state
	if syncs := s.run(); syncs != 0 || s.wal.Stats().Appends != before.Appends {
		t.Errorf("%d syncs and %d writes for commit indexes", syncs, s.wal.Stats().Appends-before.Appends)
	}
	if n := len(s.peers.sent); n != 3 {
		t.Errorf("peers heard %v, want the first answer, one for all commits, and the vote", s.peers.sent)
	}
	change, long := span(5, 6, 1), span(6, 7, 1)
	change[0].Type, long[0].Data = raftpb.EntryConfChangeV2, make([]byte, MaxSilentBytes)
	for _, row := range []struct {
		entries []raftpb.Entry
		told    uint64 // the commit index that comes with them, in a message of its own
		want    uint64 // the commit index of the log
	}{{span(4, 5, 1), 4, 0}, {change, 5, 5}, {long, 6, 6}} {
		s.put(raftpb.Message{Entries: row.entries}) // without a hard state of its own
		s.put(raftpb.Message{Term: 1, Vote: 2, Commit: row.told})
		if syncs := s.run(); syncs == 0 {
			t.Error("no sync")
		}
		if hs, want := s.wal.Group(theGroup).HardState(), (raftpb.HardState{Term: 1, Vote: 2, Commit: row.want}); hs != want {
			t.Errorf("after entry %d: hard state %+v, want %+v", row.entries[0].Index, hs, want)
		}
	}
}

// Term and vote are synced at once, even without entries.
func TestAppendLaneSyncsVotes(t *testing.T) {
	s := newTestLane(t)
	for i, hs := range []raftpb.HardState{{Term: 1}, {Term: 1, Vote: 2}, {Term: 2}, {Term: 2, Vote: 3, Commit: 0}} {
		s.put(raftpb.Message{Term: hs.Term, Vote: hs.Vote, Commit: hs.Commit})
		if syncs := s.run(); syncs != 1 {
			t.Errorf("step %d: %d syncs", i, syncs)
		}
		after := openLog(t, s.disk.Image(crashfs.LoseAll, nil))
		if got := after.Group(theGroup).HardState(); got != hs {
			t.Errorf("step %d: a power cut leaves %+v, want %+v", i, got, hs)
		}
	}
}

// A round that finds the disk full waits, whole and in order, and is written and answered when there is
// space.
func TestAppendLaneWaitsForRoom(t *testing.T) {
	s := newTestLane(t)
	s.disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpWrite {
			return syscall.ENOSPC
		}
		return nil
	})
	s.put(appendMessage(1, 2, 1, 0, 0))
	s.run()
	s.put(appendMessage(2, 3, 1, 0, 0))
	s.run()
	if s.failure != nil || len(s.peers.sent)+len(s.toGroup()) != 0 || s.wal.Group(theGroup).LastIndex() != 0 {
		t.Fatalf("failed with %v, said %v, wrote through %d", s.failure, s.peers.sent, s.wal.Group(theGroup).LastIndex())
	}
	s.disk.SetHook(nil)
	s.Tick()
	s.run()
	if last := s.wal.Group(theGroup).LastIndex(); last != 2 || len(s.peers.sent) == 0 {
		t.Errorf("wrote through %d, said %v", last, s.peers.sent)
	}
}

// What one group has queued is one write with one hard state, so it costs one record in addition to its
// entries.
func TestAppendLaneWritesARoundAtOnce(t *testing.T) {
	const messages = 300
	s := newTestLane(t)
	for i := range uint64(messages) {
		m := appendMessage(i+1, i+2, 1, 0, i)
		m.Entries[0].Data = make([]byte, 100)
		s.put(m)
	}
	before := s.wal.Stats()
	s.run()
	bytes := float64(s.wal.Stats().AppendedBytes-before.AppendedBytes) / messages
	t.Logf("%.1f bytes for an entry of 100", bytes)
	if bytes > 160 {
		t.Errorf("%.1f bytes for an entry of 100: there is more than its record", bytes)
	}
}

// In a mode that delays flushes, later messages join the round, and one sync answers all of them.
func TestAppendLaneGathersWhileTheFlushMayWait(t *testing.T) {
	s := newTestLane(t)
	log, err := wal.Open(wal.Options{FS: s.disk, Dir: "delayed", Scheduler: &manual{}, Clock: &manual{}, Mode: wal.ModeGroupDelay(time.Second, 0, 3)})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	timer := &lateTimer{}
	s.use(log)
	s.later = timer
	s.q.hard = raftpb.HardState{Term: 1} // no vote to hurry for
	if err := log.Append([]wal.Write{{Group: theGroup, HardState: s.q.hard}}); err != nil || log.Sync() != nil {
		t.Fatal(err)
	}
	for i := range uint64(2) {
		s.put(appendMessage(i+1, i+2, 1, 0, 0))
		if syncs := s.run(); syncs != 0 || len(s.peers.sent) != 0 || timer.after <= 0 || timer.after > time.Second {
			t.Errorf("%d syncs, said %v, timer %v", syncs, s.peers.sent, timer.after)
		}
	}
	s.put(appendMessage(3, 4, 1, 0, 0)) // the third entry ends the wait
	if syncs := s.run(); syncs != 1 || len(s.peers.sent) != 1 || s.peers.sent[0].Index != 3 || len(s.toGroup()) != 1 {
		t.Errorf("%d syncs, said %v and %v", syncs, s.peers.sent, s.toGroup())
	}
}

// An error of a write or of a sync is final: nothing queued before or after is answered, and nothing is tried
// again.
func TestAppendLaneStopsAtErrors(t *testing.T) {
	for _, row := range []struct {
		kind  crashfs.OpKind
		cause error
	}{{crashfs.OpSync, syscall.EIO}, {crashfs.OpWrite, syscall.EIO}} {
		t.Run(row.kind.String(), func(t *testing.T) {
			s := newTestLane(t)
			s.disk.SetHook(crashfs.FailNth(row.kind, 1, row.cause)) // the second one would succeed
			s.put(appendMessage(1, 2, 1, 0, 0))
			s.put(appendMessage(2, 3, 1, 0, 0))
			s.run()
			var failed *wal.FailedError
			if !errors.Is(s.failure, row.cause) || !errors.As(s.failure, &failed) {
				t.Errorf("failed with %v", s.failure)
			}
			s.put(appendMessage(3, 4, 1, 0, 0))
			s.put(appendMessage(4, 4, 1, 0, 1)) // needs no disk, and is not answered either
			if syncs := s.run(); syncs != 0 {
				t.Errorf("%d syncs after the failure", syncs)
			}
			if len(s.peers.sent)+len(s.toGroup()) != 0 {
				t.Errorf("peers heard %v, the group %v", s.peers.sent, s.toGroup())
			}
		})
	}
}

// A log with a backlog takes an append after a flush: no group stops, and what waited for the flush is
// answered as always.
func TestBacklogIsFlushed(t *testing.T) {
	s := newTestLane(t)
	log := &delaying{Log: s.Log, most: 2}
	s.Log = log
	for index := uint64(1); index <= 7; index++ {
		s.put(sized(index, 1<<10))
		s.RunOnce()
	}
	if s.failure != nil || log.refusals == 0 || s.last(s.q) != 7 {
		t.Fatalf("the lane failed with %v; the log refused %d appends and ends at %d, want 7", s.failure, log.refusals, s.last(s.q))
	}
	log.most = 100
	s.RunOnce()
	if through := answered(s.q); through != 7 {
		t.Errorf("answered through %d, want 7", through)
	}
}

// delaying lets its flushes wait, and refuses an append while the most that may wait for one do.
type delaying struct {
	Log
	most, waiting, refusals int
}

func (l *delaying) Append(writes []wal.Write) error {
	if l.waiting == l.most {
		l.refusals++
		return fmt.Errorf("%w: %d wait", wal.ErrBacklog, l.waiting)
	}
	l.waiting++
	return l.Log.Append(writes)
}

func (l *delaying) Sync() error {
	l.waiting = 0
	return l.Log.Sync()
}

func (l *delaying) TakeSync() (f Flush, wait time.Duration, err error) {
	if l.waiting > 0 && l.most < 100 {
		return nil, time.Hour, nil
	}
	return l.Log.TakeSync()
}
