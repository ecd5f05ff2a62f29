package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// Commands wait in the inbox while the rule lets no batch begin, and leave together when one is committed.
func TestHeldBatch(t *testing.T) {
	l := openTestHost(t, 3, WithBatches(batches.Depth(1)))
	defer l.Close(context.Background())
	l.lead()
	l.submit("first")
	l.manual.runIdle()
	l.manual.now += time.Millisecond
	second, third := l.submit("second"), l.submit("third")
	l.manual.runIdle()
	if sent := sizes(l.out.take(raftpb.MsgApp)); !slices.Equal(sent, []int{1}) {
		t.Fatalf("appends of %v entries left, want the first command alone", sent)
	}
	if m := l.group.Metrics(); m.Batches.Open != 1 || m.Batches.Held != 0 || m.Queues.Waiting == 0 {
		t.Errorf("while it is held: %+v, %d bytes wait", m.Batches, m.Queues.Waiting)
	}
	l.manual.now += 4 * time.Millisecond
	l.deliver(acked(begun + 1))
	if sent := sizes(l.out.take(raftpb.MsgApp)); !slices.Equal(sent, []int{2}) {
		t.Fatalf("appends of %v entries left, want one with the others", sent)
	}
	if m := l.group.Metrics().Batches; m != (BatchMetrics{Open: 1, Round: 5 * time.Millisecond, Held: 1, HeldFor: 4 * time.Millisecond}) {
		t.Errorf("when it is released: %+v", m)
	}
	l.deliver(acked(begun + 3))
	for _, p := range []Pending{second, third} {
		if _, err := poll(t, p); err != nil {
			t.Error(err)
		}
	}
	if m := l.group.Metrics().Batches; m.Open != 0 {
		t.Errorf("at the end: %+v", m)
	}
}

// A rule that names a time is asked again then, though nothing else happens.
func TestHeldBatchLeavesAtItsTime(t *testing.T) {
	l := openTestHost(t, 3, WithBatches(batches.Spaced{By: 3 * time.Millisecond}))
	defer l.Close(context.Background())
	l.lead()
	l.submit("first")
	l.manual.runIdle()
	began := l.manual.now
	l.submit("second")
	l.manual.runIdle()
	l.out.take(raftpb.MsgApp)
	if fired := l.manual.fireTimers(); fired == 0 {
		t.Fatal("no timer is set")
	}
	if sent := sizes(l.out.take(raftpb.MsgApp)); !slices.Equal(sent, []int{1}) || l.manual.now-began != 3*time.Millisecond {
		t.Errorf("after %v appends of %v entries left", l.manual.now-began, sent)
	}
}

// Without a rule nothing waits, and batches are measured all the same.
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
	if m := l.group.Metrics().Batches; m.Open != 200 || m.Held != 0 {
		t.Errorf("%+v", m)
	}
	l.manual.now += 7 * time.Millisecond
	l.deliver(acked(begun + 150))
	if m := l.group.Metrics().Batches; m.Open != 50 || m.Round != 7*time.Millisecond {
		t.Errorf("%+v", m)
	}
	if kept := len(l.group.batching.open); kept > 60 {
		t.Errorf("%d of 50 open batches are kept", kept)
	}
}

// What a leader holds back when it is deposed is answered, and the batches of its term count no more.
func TestHeldBatchOfADeposedLeader(t *testing.T) {
	l := openTestHost(t, 3, WithBatches(batches.Depth(1)))
	defer l.Close(context.Background())
	l.lead()
	l.submit("first")
	l.manual.runIdle()
	held := l.submit("second")
	l.manual.runIdle()
	l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 3})
	if _, err := poll(t, held); !errors.Is(err, ErrNotLeader) {
		t.Errorf("the command that was held: %v", err)
	}
	if m := l.group.Metrics().Batches; m.Open != 0 || m.Round != 0 {
		t.Errorf("%+v", m)
	}
}
