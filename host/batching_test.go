package host

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/raft/raftpb"
)

// acked is a follower's acknowledgement of the log of term 1 through an index.
func acked(index uint64) raftpb.Message {
	return raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: index}
}

// sizes returns how many entries each append to one follower has.
func sizes(messages []raftpb.Message) (n []int) {
	for _, m := range messages {
		if m.To == 2 && len(m.Entries) > 0 {
			n = append(n, len(m.Entries))
		}
	}
	return n
}

// Nothing waits for the batch before, and batches are measured.
func TestBatchesAtOnce(t *testing.T) {
	l := openTestHost(t, 3)
	defer l.Close(context.Background())
	l.lead()
	for n := range 200 {
		l.submit(fmt.Sprint(n))
		l.manual.runIdle()
	}
	if sent := sizes(l.out.take(raftpb.MsgApp)); len(sent) != 200 {
		t.Errorf("%d appends left", len(sent))
	}
	if m := l.group.Metrics().Batches; m.Open != 200 {
		t.Errorf("%+v", m)
	}
	l.manual.now += 7 * time.Millisecond
	l.deliver(acked(begun + 150))
	if m := l.group.Metrics().Batches; m.Open != 50 || m.Round != 7*time.Millisecond {
		t.Errorf("%+v", m)
	}
}

// The batches of a leader that is deposed count no more.
func TestBatchesOfADeposedLeader(t *testing.T) {
	l := openTestHost(t, 3)
	defer l.Close(context.Background())
	l.lead()
	l.submit("first")
	l.manual.runIdle()
	l.manual.now += time.Millisecond
	l.deliver(acked(begun + 1))
	l.submit("second")
	l.manual.runIdle()
	if m := l.group.Metrics().Batches; m != (BatchMetrics{Open: 1, Round: time.Millisecond, Rule: batches.Immediate}) {
		t.Errorf("while it leads: %+v", m)
	}
	l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 3})
	if m := l.group.Metrics().Batches; m != (BatchMetrics{}) {
		t.Errorf("when it is deposed: %+v", m)
	}
}
