package host

import (
	"context"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
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
	g.Campaign()
	h.HandOver()
	p := h.submit("a command of another group")
	h.manual.runIdle()
	if _, err := poll(t, p); err != nil {
		t.Fatal(err)
	}
	if err := g.leave(gone(t), ErrRemoved, true); err == nil {
		t.Fatal("leave has not waited for the disk")
	}
	h.manual.runIdle()
	if err := h.RemoveGroup(context.Background(), 9); err != nil {
		t.Fatal(err)
	}
}
