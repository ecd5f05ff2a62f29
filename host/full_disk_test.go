package host

import (
	"errors"
	"syscall"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// noNewSegments refuses new space, and lets preallocated space be written.
func noNewSegments(op crashfs.Op) error {
	if op.Kind == crashfs.OpPreallocate {
		return syscall.ENOSPC
	}
	return nil
}

// A member whose disk refused entries, and that hears no leader, forgets them. Then it votes for a candidate
// that never received them.
func TestFullDiskForgetsWhatItCouldNotWrite(t *testing.T) {
	l := openTestHost(t, 3)
	defer l.Close(t.Context())
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: span(1, 3, 1), Commit: 2})
	l.disk.SetHook(noNewSegments)
	long := span(3, 4, 1)
	long[0].Data = make([]byte, 100<<10)
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Index: 2, LogTerm: 1, Entries: long, Commit: 3})
	if s := l.group.Status(); s.LastIndex != 3 || s.Durable != 2 {
		t.Fatalf("setup: %+v, want a log through 3, durable through 2", s)
	}
	for range l.group.writes.discarding.forgetAfterTicks + 1 {
		l.manual.tick()
	}
	if s := l.group.Status(); s.LastIndex != 2 || s.Durable != 2 || s.Applied != 2 || s.Term != 1 || s.Role != event.RoleFollower || l.group.Err() != nil {
		t.Fatalf("no leader for two election timeouts: %+v, error %v; want a log through 2", s, l.group.Err())
	}
	l.out.sent = nil
	l.deliver(raftpb.Message{Type: raftpb.MsgVote, Term: 2, Index: 2, LogTerm: 1})
	if n := len(l.out.sent); n != 1 || l.out.sent[0].Type != raftpb.MsgVoteResp || l.out.sent[0].Reject {
		t.Errorf("asked for its vote it says %v", l.out.sent)
	}
	l.disk.SetHook(nil)
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 2, Index: 2, LogTerm: 1, Entries: span(3, 5, 2), Commit: 4})
	if s := l.group.Status(); s.Durable != 4 || s.Applied != 4 || l.group.writes.append.Held() != 0 {
		t.Errorf("with space again: %+v, %d bytes held; want all durable and applied through 4", s, l.group.writes.append.Held())
	}
}

// What a full disk does to a follower in each pipeline: async waits for space and then has everything; basic
// and parallel stop for good and say that the disk was full.
func TestFullDiskInEachPipeline(t *testing.T) {
	for _, p := range pipeline.All {
		t.Run(p.Name(), func(t *testing.T) {
			l := openTestHost(t, 3, WithPipeline(p))
			l.disk.SetHook(func(op crashfs.Op) error {
				if op.Kind == crashfs.OpWrite {
					return syscall.ENOSPC
				}
				return nil
			})
			l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: span(1, 3, 1)})
			l.disk.SetHook(nil)
			l.manual.tick()
			if !p.AsyncStorageWrites() {
				if err := l.group.Err(); !errors.Is(err, wal.ErrDiskFull) {
					t.Errorf("stopped with %v, want wal.ErrDiskFull", err)
				}
				return
			}
			l.manual.tick() // a follower notes what is durable with its next turn
			if s := l.group.Status(); l.group.Err() != nil || s.Durable != 2 {
				t.Errorf("there is space again, and the log is durable through %d, want 2; error %v", s.Durable, l.group.Err())
			}
		})
	}
}
