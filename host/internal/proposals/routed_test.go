package proposals

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/budget"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// owner hears the outcome of calls of a test.
type owner struct {
	committed  []outcome.Receipt
	failed     []error
	duplicates int
}

func (o *owner) Committed(r outcome.Receipt)             { o.committed = append(o.committed, r) }
func (o *owner) Failed(err error)                        { o.failed = append(o.failed, err) }
func (o *owner) Duplicate(outcome.Receipt, []byte, bool) { o.duplicates++ }

// owners tells owners without containment.
type owners struct{}

func (owners) Committed(o outcome.Caller, r outcome.Receipt) { o.Committed(r) }
func (owners) Failed(o outcome.Caller, err error)            { o.Failed(err) }
func (owners) Duplicate(o outcome.Caller, r outcome.Receipt, result []byte, kept bool) {
	o.Duplicate(r, result, kept)
}

// callQueue is the queue of a group with calls.
func callQueue() *Queue {
	sessions := byte(0)
	return NewQueue(Settings{
		Budget: &budget.Budget{Max: 1 << 30}, MaxBytes: 1 << 10, Clock: func() time.Duration { return 1 }, Callers: owners{},
		DrawSession: func() session.ID { sessions++; return session.ID{Client: [16]byte{sessions}} },
		Freed:       func() {}, Wake: func() {},
		MaxNumbers: 8, FrameBytes: 1 << 20, ElectionTicks: 10, HeartbeatTicks: 5,
	})
}

func newCall(command string) (*Call, *owner) {
	o := new(owner)
	return &Call{Data: append(make([]byte, session.Room), command...), Owner: o}, o
}

// The session of a host is unknown to the group, and its last call has ended otherwise. Nothing is left to be
// sent, so the group takes no turn for it.
func TestNothingIsRoutedWithoutACall(t *testing.T) {
	q := callQueue()
	c, _ := newCall("x")
	c.Begin(q)
	m, ok := q.mark(c)
	if !ok || !q.renew(m.ID) {
		t.Fatal("the session is not given up")
	}
	if q.HasFresh() {
		t.Error("a turn without a call wants another one, and so on for ever")
	}
}

// A snapshot that is installed ends the calls through its index, and leaves the call behind it.
func TestASnapshotLeavesTheCallsBehindIt(t *testing.T) {
	for through := uint64(9); through <= 13; through++ {
		q := callQueue()
		var calls []*Call
		for index := uint64(10); index <= 12; index++ {
			c, _ := newCall("x")
			calls = append(calls, c)
			q.register(2, index, []Proposal{c.Begin(q)}, false)
		}
		q.Overtaken(through)
		for i, call := range calls {
			index := uint64(10 + i)
			want := call
			if index <= through {
				want = nil
			}
			if got := q.pop(raftpb.Position{Index: index}, 2); got != want {
				t.Errorf("a snapshot through %d: entry %d takes %p, want %p", through, index, got, want)
			}
		}
	}
}

// Commands that no turn has taken are answered and counted once, each: calls as well as plain ones.
func TestWhatNoTurnHasTakenIsCountedOnce(t *testing.T) {
	q := callQueue()
	c, o := newCall("a call")
	plain := NewWaiter()
	q.AnswerAll([]Proposal{c.Begin(q), {Command: []byte("plain"), Waiter: plain}}, outcome.ErrStopped)
	if n := q.Refusals.Stopped.Load(); n != 2 || len(o.failed) != 1 || told(plain) != outcome.ErrStopped.Error() {
		t.Errorf("%d are counted, want 2; the call is told %v, the plain command %s", n, o.failed, told(plain))
	}
}

// A machine halts in the middle of an entry, or a snapshot replaces it there. The clients behind that place
// are told that there is no result.
func TestTheRestOfABatchHears(t *testing.T) {
	for name, end := range map[string]func(q *Queue){
		"halt":     func(q *Queue) { q.EndCalls(errors.New("the machine is halted")) },
		"snapshot": func(q *Queue) { q.Overtaken(7) },
	} {
		q := callQueue()
		var clients []*twinClient
		var batch []Proposal
		for i := range 3 {
			c := &twinClient{name: string(rune('a' + i))}
			c.call = &Call{Data: append(make([]byte, session.Room), c.name...), Owner: c}
			clients, batch = append(clients, c), append(batch, c.call.Begin(q))
		}
		q.Offer(batch, 1)
		q.Accept(2, 7, q.Next(), true)
		q.AnswerOwn(2, 7, 0)
		first := []statemachine.Command{{Index: 7, Term: 2}}
		q.FindCallers(first)
		if first[0].Caller != clients[0] {
			t.Fatalf("%s: the first command is of %v", name, first[0].Caller)
		}
		q.Applied(first)
		end(q)
		for i, c := range clients {
			want := "[committed failed]"
			if i == 0 {
				want = "[committed]"
			}
			if have := fmt.Sprint(c.heard); have != want || c.receipt.Pos != uint32(i) {
				t.Errorf("%s: client %s hears %s of place %d, want %s", name, c.name, have, c.receipt.Pos, want)
			}
		}
	}
}
