package host

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/host/internal/appendlane"
	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/host/internal/placement"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/internal/storage"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft/raftpb"
)

func command(n int) proposals.Proposal { return proposals.Proposal{Command: make([]byte, n)} }

// anInbox returns the only inbox of a host with these shares. It gets half of each.
func anInbox(waiting, received int64) *inbox {
	m := &memory{}
	m.waiting.Max, m.received.Max = waiting, received
	return &inbox{memory: m, now: func() time.Duration { return 0 }, given: new(lock.Mutex)}
}

// takeAll is what a turn takes while no command is held.
func takeAll(b *inbox, in *inputs, most int64) (more bool) { return takeCalls(b, in, most, most) }

// beginTurn gives a turn what is no command, as its shard does.
func (b *inbox) beginTurn(in *inputs, most int64) {
	b.lockGiven()
	defer b.unlockGiven()
	b.begin(&in.givenInputs, most)
}

func takeCalls(b *inbox, in *inputs, most, callBytes int64) (more bool) {
	in.resetCommands()
	b.beginTurn(in, most)
	more = in.more
	_, left := b.dequeueCommands(in, most, callBytes, 0, func(batches.State) batches.Verdict { return batches.Verdict{Begins: true, Wake: 1} })
	return more || left
}

// A rule hears nothing of commands that wait for something else: it would count a batch that does not
// begin, in each turn again.
func TestTheRuleHearsNothingOfCommandsThatWaitForMore(t *testing.T) {
	for _, callBytes := range []int64{1, 1 << 20} {
		b := anInbox(1<<20, 1<<20)
		b.paused = callBytes > 1
		if _, err := b.enqueueProposal(command(10)); err != nil {
			t.Fatal(err)
		}
		var in inputs
		v, _ := b.dequeueCommands(&in, 1<<20, callBytes, time.Second, func(s batches.State) batches.Verdict {
			if s != (batches.State{Now: time.Second}) {
				t.Errorf("it is told %+v", s)
			}
			return batches.Verdict{Begins: true, Wake: 1}
		})
		if v != (batches.Verdict{}) || len(in.proposals) > 0 || !b.due.Load() {
			t.Errorf("%+v, and %d commands are taken", v, len(in.proposals))
		}
	}
}

// Proposals are bounded in bytes, and a turn makes space again.
func TestInboxBoundsProposals(t *testing.T) {
	b := anInbox(4*(10+proposals.OverheadBytes), 0)
	for i, step := range []struct {
		bytes int
		want  error
	}{
		{4*10 + 3*proposals.OverheadBytes + 1, outcome.ErrOverloaded}, // larger than the share
		{10, nil},
		{10, nil},
		{1, outcome.ErrOverloaded},
	} {
		if _, err := b.enqueueProposal(command(step.bytes)); !errors.Is(err, step.want) {
			t.Errorf("step %d: %v, want %v", i, err, step.want)
		}
	}
	var in inputs
	takeAll(b, &in, maxTurnBytes)
	for i, step := range []struct {
		bytes int
		want  error
	}{{10, nil}, {10, nil}, {1, outcome.ErrOverloaded}} {
		if _, err := b.enqueueProposal(command(step.bytes)); !errors.Is(err, step.want) {
			t.Errorf("after a turn, step %d: %v, want %v", i, err, step.want)
		}
	}
	if len(in.proposals) != 2 || len(b.waiting.proposals) != 2 {
		t.Errorf("took %d, %d wait", len(in.proposals), len(b.waiting.proposals))
	}
}

// A turn takes a bounded part of what waits, in order. The rest counts against the bound until it is taken.
func TestTurnIsBounded(t *testing.T) {
	const size = 1 << 20
	b, all := anInbox(100<<20, 100<<20), 0
	for i := range 40 {
		p := command(size)
		p.Command[0] = byte(i)
		m := raftpb.Message{Index: uint64(i), Entries: []raftpb.Entry{{Data: p.Command}}}
		if _, err := b.enqueueProposal(p); err != nil || b.enqueueMessages([]raftpb.Message{m}, heldBytes(m)) != 0 {
			t.Fatal(err)
		}
	}
	var in inputs
	for more := true; more; {
		more = takeAll(b, &in, maxTurnBytes)
		if n := len(in.proposals); n == 0 || n*size > maxTurnBytes || len(in.messages) != n {
			t.Fatalf("a turn takes %d commands and %d messages of 1 MiB", n, len(in.messages))
		}
		for i, p := range in.proposals {
			if int(p.Command[0]) != all || int(in.messages[i].Index) != all {
				t.Fatalf("command %d and message %d, want %d of both", p.Command[0], in.messages[i].Index, all)
			}
			all++
		}
	}
	if all != 40 || b.proposalBytes != 0 || b.messageBytes != 0 {
		t.Errorf("%d of 40 were taken; %d bytes of commands and %d of messages count as waiting", all, b.proposalBytes, b.messageBytes)
	}
}

// A command or message larger than a turn's part is taken alone.
func TestTurnTakesAtLeastOne(t *testing.T) {
	b := anInbox(100<<20, 0)
	for range 2 {
		_, _ = b.enqueueProposal(command(2 * maxTurnBytes))
	}
	var in inputs
	for i, more := range []bool{true, false} {
		if takeAll(b, &in, maxTurnBytes) != more || len(in.proposals) != 1 {
			t.Errorf("turn %d takes %d commands", i, len(in.proposals))
		}
	}
}

// Messages are bounded in bytes, and a batch is taken whole or not at all. One that is larger than the share
// is taken beside what waits, and no other one meanwhile. Answers of the local workers are always taken.
func TestInboxDropsMessages(t *testing.T) {
	b := anInbox(0, 20)
	three := make([]raftpb.Message, 3)
	for i, step := range []struct {
		bytes   int64
		dropped int
	}{{3, 0}, {21, 0}, {1, 3}, {21, 3}} {
		if n := b.enqueueMessages(three, step.bytes); n != step.dropped {
			t.Errorf("step %d: dropped %d, want %d", i, n, step.dropped)
		}
	}
	b.enqueueAnswers(make([]raftpb.Message, 5))
	var in inputs
	takeAll(b, &in, maxTurnBytes)
	if len(in.messages) != 6 || len(in.answers) != 5 {
		t.Errorf("took %d messages and %d answers", len(in.messages), len(in.answers))
	}
	if n := b.enqueueMessages(three, 10); n != 0 {
		t.Errorf("after a turn: dropped %d", n)
	}
}

func TestInboxClose(t *testing.T) {
	b := anInbox(20+2*proposals.OverheadBytes, 20)
	if _, err := b.enqueueProposal(command(1)); err != nil {
		t.Fatal(err)
	}
	if left := b.close(); len(left) != 1 {
		t.Errorf("%d were left, want 1", len(left))
	}
	if left := b.close(); len(left) != 0 {
		t.Errorf("%d were left the second time", len(left))
	}
	if _, err := b.enqueueProposal(command(1)); !errors.Is(err, outcome.ErrStopped) {
		t.Error(err)
	}
	if n := b.enqueueMessages(make([]raftpb.Message, 2), 2); n != 2 {
		t.Errorf("dropped %d of 2", n)
	}
}

// Tiny commands count with their overhead in memory, or a queue of 256 MiB would hold 50 GB of them.
func TestInboxCountsTinyCommands(t *testing.T) {
	b, n := anInbox(1<<20, 0), 0
	for {
		if _, err := b.enqueueProposal(command(1)); err != nil {
			break
		}
		n++
	}
	if maxCommands := (1 << 20) / 180; n > maxCommands { // 187 bytes each, measured: the command, its waiter, and the places in queues
		t.Errorf("a queue of 1 MiB takes %d commands, want at most %d", n, maxCommands)
	}
}

// A group that was kept from its turn gets each request once, and nothing of a turn twice.
func TestInboxCollapses(t *testing.T) {
	b := anInbox(0, 0)
	for range 5 {
		b.recordUnreachable(2)
		b.recordUnreachable(3)
	}
	b.orderCampaign()
	var in inputs
	takeAll(b, &in, maxTurnBytes)
	if len(in.unreachable) != 2 || !in.campaign {
		t.Errorf("%+v", in)
	}
	takeAll(b, &in, maxTurnBytes)
	takeAll(b, &in, maxTurnBytes) // both buffers have been used
	if len(in.unreachable) != 0 || in.campaign {
		t.Errorf("again: %+v", in)
	}
	b.recordUnreachable(4)
	if takeAll(b, &in, maxTurnBytes); len(in.unreachable) != 1 || in.campaign {
		t.Errorf("with another input: %+v", in)
	}
}

// A spare buffer keeps nothing of the last turn alive.
func TestInboxForgetsWhatWasTaken(t *testing.T) {
	b := anInbox(20+2*proposals.OverheadBytes, 20)
	_, _ = b.enqueueProposal(command(3))
	b.enqueueMessages([]raftpb.Message{{Entries: make([]raftpb.Entry, 1)}}, 1)
	b.enqueueAnswers([]raftpb.Message{{Entries: make([]raftpb.Entry, 1)}})
	var in inputs
	takeAll(b, &in, maxTurnBytes)
	proposals, messages, answers := in.proposals, in.messages, in.answers
	takeAll(b, &in, maxTurnBytes)
	if proposals[0].Command != nil || messages[0].Entries != nil || answers[0].Entries != nil {
		t.Error("the spare still points to what was taken")
	}
}

// A group that has ended keeps nothing that takes memory, and takes nothing more.
func TestAClosedInboxKeepsNoMessages(t *testing.T) {
	b := anInbox(1<<20, 1<<20)
	give := func() {
		b.enqueueMessages(make([]raftpb.Message, 3), 300)
		b.enqueueFetched(storage.Result{})
		b.enqueueForward(proposals.Frame{})
	}
	give()
	b.close()
	give()
	var in inputs
	b.beginTurn(&in, maxTurnBytes)
	if n := len(in.messages) + len(in.fetched) + len(in.forwards); n > 0 || b.memory.received.Used() > 0 {
		t.Errorf("%d inputs and %d bytes are kept", n, b.memory.received.Used())
	}
}

// Each turn of a group with calls asks whether commands wait, twice. While none waits that takes no lock:
// here the lock is held, and the turn would hang.
func TestATurnLooksForCommandsWithoutALock(t *testing.T) {
	b := anInbox(1<<20, 0)
	if _, err := b.enqueueProposal(command(10)); err != nil || !b.hasProposals() {
		t.Fatal(err, "or no command waits")
	}
	if gone := b.dequeueIf(func(proposals.Proposal) bool { return true }); len(gone) != 1 {
		t.Fatalf("%d commands are taken", len(gone))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, waits := b.firstProposal(); waits || b.hasProposals() {
		t.Error("a command waits that was taken")
	}
}

// What says without a lock how many commands wait follows each change.
func TestWaitingCommandsAreCounted(t *testing.T) {
	b := anInbox(1<<20, 1<<20)
	check := func(after string, want int) {
		t.Helper()
		if n, _ := b.waitingCommands(); n != want || b.commands.Load() != int64(want) {
			t.Errorf("after %s %d commands wait, and %d are counted; want %d", after, n, b.commands.Load(), want)
		}
	}
	put := func() {
		for range 3 {
			if _, err := b.enqueueProposal(command(100)); err != nil {
				t.Fatal(err)
			}
		}
	}
	put()
	check("three puts", 3)
	var in inputs
	takeAll(b, &in, 1)
	check("a turn that takes one", 2)
	takeCalls(b, &in, maxTurnBytes, 0)
	check("a turn that takes none", 2)
	takeAll(b, &in, maxTurnBytes)
	check("a turn that takes all", 0)
	put()
	b.dropProposals()
	check("a drop", 0)
	put()
	b.close()
	check("the end", 0)
}

// Commands that a rule holds stay, and wake the group when they are as many, or as many bytes, as it said.
func TestHeldCommandsWakeLate(t *testing.T) {
	b := anInbox(80<<20, 80<<20)
	says := func(v batches.Verdict) (taken int) {
		var in inputs
		b.beginTurn(&in, maxTurnBytes)
		b.dequeueCommands(&in, maxTurnBytes, maxTurnBytes, 0, func(batches.State) batches.Verdict { return v })
		return len(in.proposals)
	}
	put := func(n, bytes int) (wakes int) {
		for range n {
			woken, err := b.enqueueProposal(command(bytes))
			if err != nil {
				t.Fatal(err)
			}
			if woken {
				wakes++
			}
		}
		return wakes
	}
	if n := put(2, 10); n != 1 {
		t.Errorf("%d of 2 commands wake the group that no rule has kept, want the first", n)
	}
	says(batches.Verdict{Wake: 5, WakeBytes: 1 << 20})
	if n := put(2, 10); n != 0 {
		t.Errorf("%d commands wake the group before the fifth", n)
	}
	if n := put(1, 10); n != 1 {
		t.Error("the fifth command does not wake the group")
	}
	if n := says(batches.Verdict{Begins: true, Wake: 100, WakeBytes: 1 << 20}); n != 5 {
		t.Errorf("%d of 5 commands are taken", n)
	}
	if n := put(3, 300<<10); n != 0 {
		t.Errorf("%d commands wake the group with less than a MiB", n)
	}
	if n := put(1, 300<<10); n != 1 {
		t.Error("a MiB of commands does not wake the group")
	}
}

// Whatever comes alone is found by the next turn, though a turn that finds only commands takes no lock for
// the rest.
func TestEachInputIsFound(t *testing.T) {
	var empty inputs
	for name, put := range map[string]func(b *inbox){
		"a message":              func(b *inbox) { b.enqueueMessages(make([]raftpb.Message, 1), 1) },
		"another directory":      func(b *inbox) { b.recordReplaced(2) },
		"an answer":              func(b *inbox) { b.enqueueAnswers(make([]raftpb.Message, 1)) },
		"an unreachable peer":    func(b *inbox) { b.recordUnreachable(2) },
		"the end of a snapshot":  func(b *inbox) { b.enqueueSnapshotStatus(snapshotStatus{}) },
		"a question":             func(b *inbox) { b.enqueueApplied(leadership.AppliedRecord{}, true) },
		"an answer to it":        func(b *inbox) { b.enqueueApplied(leadership.AppliedRecord{}, false) },
		"a campaign":             func(b *inbox) { b.orderCampaign() },
		"a hand-over":            func(b *inbox) { b.orderHandOver() },
		"a follower not covered": func(b *inbox) { b.recordNotCovered() },
		"entries of a reader":    func(b *inbox) { b.enqueueFetched(storage.Result{}) },
		"a log that was cut":     func(b *inbox) { b.recordForgot(appendlane.NotAsked + 1) },
		"a forward":              func(b *inbox) { b.enqueueForward(proposals.Frame{}) },
		"a refusal":              func(b *inbox) { b.enqueueRefusal(proposals.Refusal{}) },
		"a wish":                 func(b *inbox) { b.leaveWish(&placement.Wish{}) },
		"a transfer":             func(b *inbox) { b.leaveTransfer(&leadership.Transfer{}) },
	} {
		b, in := anInbox(1<<20, 1<<20), inputs{}
		b.beginTurn(&in, maxTurnBytes)
		put(b)
		if b.beginTurn(&in, maxTurnBytes); reflect.DeepEqual(in, empty) {
			t.Errorf("%s waits until something else comes", name)
		}
		if b.filled.Load() {
			t.Errorf("%s is looked for again", name)
		}
	}
}

// A command that comes after the rule was asked may wake no turn, by the verdict before. It is found when the
// new verdict stands.
func TestAVerdictFindsWhatCameMeanwhile(t *testing.T) {
	b := anInbox(1<<20, 1<<20)
	if b.setVerdict(batches.Verdict{Wake: 3, WakeBytes: 1 << 10}) {
		t.Error("nothing waits")
	}
	if wakes, err := b.enqueueProposal(command(1)); wakes || err != nil {
		t.Fatal("setup: one command of three wakes the group", err)
	}
	for _, c := range []struct {
		wake int
		due  bool
	}{{3, false}, {2, false}, {1, true}} {
		if due := b.setVerdict(batches.Verdict{Wake: c.wake, WakeBytes: 1 << 10}); due != c.due {
			t.Errorf("one command waits, %d must: due %t", c.wake, due)
		}
	}
}

// enqueueAnswers is putAnswers for a caller that does not hold the lock.
func (b *inbox) enqueueAnswers(answers []raftpb.Message) {
	b.fill()
	defer b.unlockGiven()
	b.putAnswers(answers)
}

// Commands wake their group once for all that come before its next turn begins. One that comes later wakes it
// again, although the turn has not looked at the commands yet.
func TestCommandsWakeOnce(t *testing.T) {
	b := anInbox(1<<20, 1<<20)
	enqueue := func(want bool) {
		t.Helper()
		if wakes, err := b.enqueueProposal(command(10)); err != nil || wakes != want {
			t.Errorf("wakes %t, %v; want %t", wakes, err, want)
		}
	}
	enqueue(true)
	enqueue(false)
	if _, wakes, err := b.enqueueProposals([]proposals.Proposal{command(1), command(1)}); wakes || err != nil {
		t.Errorf("several wake it again: %v", err)
	}
	var in inputs
	b.beginTurn(&in, 1<<20)
	enqueue(true)
	enqueue(false)
	takeAll(b, &in, 1<<20)
	if len(in.proposals) != 6 {
		t.Errorf("a turn gets %d commands, want 6", len(in.proposals))
	}
	enqueue(true)
}
