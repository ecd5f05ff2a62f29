package host

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/storage"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/wal"
)

// While a group that is not open is removed, its place in the table is taken by one that cannot run. What
// comes for it meanwhile, or is asked of it, wakes no turn, and holds up no other group.
func TestStandInOfARemovedGroupDoesNotRun(t *testing.T) {
	h := openTestHost(t, 1)
	h.lead()
	g, err := h.groups.toRemove(h.Host, 9)
	if err != nil {
		t.Fatal(err)
	}
	(*inbound)(h.Host).Receive(2, []transport.Envelope{{Group: 9, Message: raftpb.Message{Type: raftpb.MsgVote, From: 2, To: 1, Term: 4}}})
	if g := h.Group(9); g != nil {
		t.Errorf("a group that is not open is returned, with log %v", g.writes.storage)
	}
	g.Campaign()
	h.HandOver()
	p := h.submit("a command of another group")
	h.manual.runIdle()
	if _, err := poll(t, p); err != nil {
		t.Fatal(err)
	}
	if err := g.leave(gone(t), outcome.ErrRemoved, true); err == nil {
		t.Fatal("leave has not waited for the disk")
	}
	h.manual.runIdle()
	if err := h.RemoveGroup(context.Background(), 9); err != nil {
		t.Fatal(err)
	}
}

// What a leader has read for its followers is not kept when it leads no more, also if it arrives later.
func TestDeposedLeaderKeepsNoReads(t *testing.T) {
	h := openTestHost(t, 3)
	h.lead()
	read := storage.Result{Reader: 3, Lo: 1, Entries: span(1, 9, 1)}
	h.group.inbox.enqueueFetched(read)
	h.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 2})
	if n := h.group.writes.storage.Kept(); n > 0 {
		t.Errorf("a follower keeps %d reads for others", n)
	}
	h.group.inbox.enqueueFetched(read)
	h.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 2})
	if n := h.group.writes.storage.Kept(); n > 0 {
		t.Errorf("a follower keeps %d reads for others that came late", n)
	}
}

// A group that is closed while its writes wait for a delayed flush is not released before the flush, and
// then holds nothing of the budgets.
func TestCloseDuringADelayedFlush(t *testing.T) {
	h := openTestHostWith(t, 1, func(c *Config) {
		c.Durability = wal.ModeGroupDelay(5*time.Millisecond, 0, 0)
	})
	h.group.Campaign()
	h.manual.runIdle()
	h.manual.fireTimers()
	h.submit("a command")
	h.manual.runIdle()
	if !h.storage.lane.Working.Load() {
		t.Fatal("no write waits for a flush")
	}
	if err := h.group.Close(gone(t)); err == nil {
		t.Fatal("Close has not waited")
	}
	h.manual.runIdle()
	if err := h.group.Close(gone(t)); err == nil {
		t.Fatal("the group is released while its writes wait for a flush")
	}
	h.manual.now += time.Second
	h.manual.fireTimers()
	if err := h.group.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.memory.writing.Used(); n != 0 {
		t.Errorf("the closed group holds %d bytes", n)
	}
}
