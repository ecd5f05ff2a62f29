package host

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/host/outcome"
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
				l.storage.lane.Task().(*manualTask).dead = true
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
				waiting := slices.Concat(a.Waiting(), a.Taken())
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

// What peers send is also bounded while a disk hangs, even if many leaders send: each has a window of its
// own.
func TestEntriesBehindAHungDiskAreBounded(t *testing.T) {
	l := openTestHostWith(t, 3, littleMemory)
	a, limit := l.group.writes.append, l.memory.writing.Max
	l.storage.lane.Task().(*manualTask).dead = true
	for term := uint64(1); term < 200; term++ {
		l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: term, Entries: span(1, 9, term)})
	}
	if held, message := a.Held(), workqueue.MessageBytes(&raftpb.Message{Entries: span(1, 9, 1)}); held > limit+message {
		t.Errorf("%d bytes wait for the disk, at most %d are allowed, and a message of %d", held, limit, message)
	}
	l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 300})
	if s := l.group.Status(); s.Term != 300 {
		t.Errorf("a message without entries is not let in: term %d", s.Term)
	}
}

// A leader whose disk hangs commits by its followers' disks, and its clients are answered. What it holds
// until its own disk has caught up stays within its share of Config.MemoryBytes, however small the commands.
func TestTinyCommandsBehindAHungDiskAreBounded(t *testing.T) {
	l := openTestHostWith(t, 3, littleMemory)
	l.lead()
	l.storage.lane.Task().(*manualTask).dead = true
	taken, limit := 0, int(l.memory.proposed.Max)
	for taken < limit {
		p := l.submit("x")
		l.manual.runIdle()
		ack := raftpb.Message{Type: raftpb.MsgAppResp, From: 3, To: 1, Term: 1, Index: l.group.Status().LastIndex}
		(*inbound)(l.Host).Receive(3, []transport.Envelope{{Group: theGroup, Message: ack}})
		l.deliver(ack)
		if _, err := poll(t, p); err != nil {
			if !errors.Is(err, outcome.ErrOverloaded) {
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
