package host

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
)

// openHolding opens a host that leads, that holds commands as a batches.Cohort does, and whose disk takes
// 200 µs for a sync.
func openHolding(t *testing.T) *testHost { return openHoldingWith(t, func(*Config) {}) }

func openHoldingWith(t *testing.T, change func(*Config)) *testHost {
	t.Helper()
	return openHoldingBy(t, batches.Cohorts, change)
}

func openHoldingBy(t *testing.T, k batches.Kind, change func(*Config)) *testHost {
	t.Helper()
	l := openTestHostWith(t, 3, change, WithBatches(k))
	l.disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync {
			l.manual.now += 200 * time.Microsecond
		}
		return nil
	})
	l.lead()
	return l
}

// last returns the end of the log.
func (l *testHost) last() uint64 { return l.group.core.node.BasicStatus().LastIndex }

// put hands in commands, and runs what can run.
func (l *testHost) put(n int) (all []Pending) {
	for range n {
		all = append(all, l.submit("a command"))
	}
	l.manual.runIdle()
	return all
}

// ack commits the log through an index, 100 µs later.
func (l *testHost) ack(index uint64) {
	l.manual.now += 100 * time.Microsecond
	l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: index})
}

// Commands that come while a batch is under way wait for it, and then for the clients that it answers. All
// leave together when the last one is back. If it does not come back, they leave after half a round.
func TestHeldCommandsLeaveTogether(t *testing.T) {
	for _, comesBack := range []bool{true, false} {
		l := openHolding(t)
		l.put(1)
		l.put(2)
		if l.last() != begun+1 {
			t.Fatalf("the log ends at %d: a command has left while a batch is under way", l.last())
		}
		l.ack(begun + 1)
		if l.last() != begun+1 || l.group.inbox.commands.Load() != 2 {
			t.Fatalf("the log ends at %d, and %d commands wait; want 2, for the third client", l.last(), l.group.inbox.commands.Load())
		}
		turns := l.turns()
		if comesBack {
			l.put(1)
		} else {
			l.group.work.held.Alarm.Clear() // it would wake the group, too
			l.manual.fireTimers()
		}
		want := uint64(begun + 3)
		if comesBack {
			want++
		}
		if l.last() != want {
			t.Errorf("the client comes back: %t; the log ends at %d, want %d", comesBack, l.last(), want)
		}
		if n := l.turns() - turns; n > 3 {
			t.Errorf("%d turns for one batch", n)
		}
	}
}

// A command that is held is not proposed if its client gives up, for certain. It is answered when the host
// closes, when the leader is deposed, and when the core takes no commands.
func TestHeldCommandsAreAnswered(t *testing.T) {
	l := openHolding(t)
	l.put(1)
	ctx, cancel := context.WithCancel(t.Context())
	proposed := make(chan error, 1)
	go func() {
		_, err := l.group.Propose(ctx, []byte("given up"))
		proposed <- err
	}()
	for l.group.inbox.commands.Load() == 0 {
		select {
		case err := <-proposed:
			t.Fatal("the command is not held: ", err)
		default:
		}
	}
	cancel()
	if err := <-proposed; !errors.Is(err, context.Canceled) || errors.Is(err, outcome.ErrIndeterminate) {
		t.Errorf("the client gives up: %v", err)
	}
	l.ack(begun + 1)
	l.manual.fireTimers()
	if l.last() != begun+1 {
		t.Errorf("the log ends at %d: it has the command whose client has given up", l.last())
	}

	l.put(1)
	deposed := l.put(2)
	l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 7})
	for _, p := range deposed {
		if _, err := poll(t, p); !errors.Is(err, outcome.ErrNotLeader) {
			t.Errorf("the leader is deposed: %v", err)
		}
	}

	l = openHolding(t)
	l.put(1)
	held := l.put(1)
	if err := l.Close(over()); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := poll(t, held[0]); !errors.Is(err, outcome.ErrStopped) {
		t.Errorf("the host closes: %v", err)
	}
}

// Whatever comes in whatever order: while nothing is under way and no alarm is set, no command waits. While a
// batch is under way, no more wait than the rule allows.
func TestNoCommandIsHeldForEver(t *testing.T) {
	oneGoroutine(t)
	held := 0
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 3))
		l := openHolding(t)
		if seed%2 == 1 {
			l = openHoldingWith(t, littleMemory) // so that batches are refused
		}
		term := uint64(1)
		for range 60 {
			switch st := l.group.core.node.BasicStatus(); random.IntN(9) {
			case 0, 1, 2:
				l.offer(1 + random.IntN(5))
			case 3:
				l.offer(300)
			case 4, 5:
				l.manual.now += 100 * time.Microsecond
				l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: term, Index: st.Commit + uint64(random.Int64N(int64(st.LastIndex-st.Commit+1)))})
			case 6:
				l.manual.fireTimers()
			case 7:
				l.manual.tick()
				l.manual.runIdle()
			case 8:
				l.group.StartTransfer(2)
				l.manual.runIdle()
			}
			if l.group.Status().Role != event.RoleLeader {
				break
			}
			waiting, st := l.group.inbox.commands.Load(), l.group.core.node.BasicStatus()
			if waiting > 0 {
				held++
			}
			switch {
			case waiting >= 256:
				t.Fatalf("seed %d: %d commands wait", seed, waiting)
			case waiting > 0 && st.Commit == st.LastIndex && st.LeadTransferee == raft.None && l.group.proposals.alarm.At() == 0:
				t.Fatalf("seed %d: %d commands wait, and nothing is under way", seed, waiting)
			}
		}
	}
	if held < 100 {
		t.Errorf("commands were held after %d steps: the test sees little", held)
	}
}

// offer is put for commands that may be refused.
func (l *testHost) offer(n int) {
	for range n {
		_, _ = l.group.Submit(make([]byte, 1<<10))
	}
	l.manual.runIdle()
}

// Other hosts may forward commands without a pause, so a batch of theirs is always under way. A command of
// this host waits for at most one commit, and for half a round, or a whole one while clients come back.
func TestForwardedCommandsHoldNone(t *testing.T) {
	l := openHolding(t)
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2}, Commands(&echoMachine{}, statemachine.CommandOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	l.manual.runIdle()
	l.leadGroup(g)
	frame, under := uint64(0), g.Status().LastIndex // under way
	forward := func() {
		frame++
		body := proposals.AppendForward(nil, proposals.Forward{Group: 2, Term: 1, Frame: frame})
		body = proposals.AppendCommand(body, session.Header{Mark: session.Mark{ID: session.ID{Client: [16]byte{1, 2, 3}, Birth: time.Second}, Number: frame, Low: 1}, HasMark: true}, []byte("x"))
		if err := l.receiveForward(2, transport.Control, body); err != nil {
			t.Fatal(err)
		}
		l.manual.now += 100 * time.Microsecond
		l.manual.runIdle()
		l.deliverTo(2, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: under})
		under = g.Status().LastIndex
	}
	for n := range 20 {
		forward()
		if err := g.Call(newEchoCaller().call("x")); err != nil {
			t.Fatal(err)
		}
		l.manual.runIdle()
		forward()
		l.manual.fireTimers()
		if forward(); g.inbox.hasProposals() {
			t.Fatalf("command %d is held while others forward theirs", n+1)
		}
	}
}

// A batch that is refused has not begun. So the command after it wakes the group, and leaves at once.
func TestARefusedBatchHoldsNothing(t *testing.T) {
	l := openHolding(t)
	taken := l.memory.proposed.Max
	l.memory.proposed.Hold(taken) // by another group
	for _, p := range l.put(3) {
		if _, err := poll(t, p); !errors.Is(err, outcome.ErrOverloaded) {
			t.Fatalf("the batch is not refused: %v", err)
		}
	}
	l.memory.proposed.Hold(-taken)
	if l.put(1); l.last() != begun+1 {
		t.Error("a command waits for a batch that was refused")
	}
}

// A host with little memory takes as many commands under each rule: none is refused because others are held.
func TestHeldCommandsCostNoSpace(t *testing.T) {
	taken := map[batches.Kind]int{}
	for _, k := range []batches.Kind{batches.Immediate, batches.Cohorts} {
		l := openHoldingBy(t, k, littleMemory)
		for range 200 {
			p, err := l.group.Submit(make([]byte, 1<<10))
			if l.manual.runIdle(); err != nil {
				break
			}
			if _, done, _ := p.Poll(); done { // it is refused
				break
			}
			taken[k]++
		}
	}
	if taken[batches.Cohorts] < taken[batches.Immediate] || taken[batches.Immediate] < 5 {
		t.Errorf("%d commands are taken at once, and %d by one that holds them", taken[batches.Immediate], taken[batches.Cohorts])
	}
}
