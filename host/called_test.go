package host

import (
	"errors"
	"strings"
	"testing"
)

// calledBatch is a batch of one call.
func calledBatch() []proposal {
	c := newEchoCaller().call("x")
	c.w.call = c
	return []proposal{{waiter: &c.w}}
}

// A leader that has lost its calls and leads again, a million entries later, begins with an empty list.
func TestCalledBeginsAnew(t *testing.T) {
	var s called
	lost := calledBatch()
	s.add(2, 10, lost, 0)
	s.forget(10, lost[0].waiter.call)
	again := calledBatch()
	s.add(4, 1_000_010, again, 0)
	if s.len() != 1 {
		t.Fatalf("%d places for one call", s.len())
	}
	if got := s.takeOne(1_000_010, 4); got != again[0].waiter.call || s.n.Load() != 0 {
		t.Fatalf("takes %p, want %p; %d are left", got, again[0].waiter.call, s.n.Load())
	}
}

// A leader has forgotten entries after a full disk, leads again and proposes others in their places. Then the
// first ones are committed, which other members had: their calls get their results.
func TestCallsOfForgottenEntriesAreFound(t *testing.T) {
	var s called
	first, lost, again := calledBatch(), calledBatch(), calledBatch()
	s.add(3, 60, first, 0)
	s.add(3, 61, lost, 0)
	s.add(5, 60, again, 0)
	if got := s.takeOne(60, 3); got != first[0].waiter.call {
		t.Errorf("entry 60 of term 3 takes %p, want %p", got, first[0].waiter.call)
	}
	if got := s.takeOne(61, 6); got != nil || s.n.Load() != 0 || len(s.displaced) > 0 {
		t.Errorf("entry 61 of another term takes %p; %d are left", got, s.n.Load())
	}
}

// A snapshot that is installed ends the calls through its index, and leaves the one behind it.
func TestASnapshotLeavesTheCallsBehindIt(t *testing.T) {
	for through := uint64(9); through <= 13; through++ {
		var s called
		var calls []*Call
		for index := uint64(10); index <= 12; index++ {
			batch := calledBatch()
			calls = append(calls, batch[0].waiter.call)
			s.add(2, index, batch, 0)
		}
		s.overtaken(through)
		for i, call := range calls {
			index := uint64(10 + i)
			want := call
			if index <= through {
				want = nil
			}
			if got := s.takeOne(index, 2); got != want {
				t.Errorf("a snapshot through %d: entry %d takes %p, want %p", through, index, got, want)
			}
		}
	}
}

// A leader whose state machine is stuck refuses commands when what it has not applied takes too much memory.
// It does not try again all the time, keeps what it has taken in bounds, and goes on when the machine does.
func TestStuckMachineBoundsCalls(t *testing.T) {
	l := openTestHostWith(t, 1, func(c *Config) { c.MemoryBytes = minMemoryBytes })
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2}, Commands(&echoMachine{}, CommandOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	for g.Status().Role != RoleLeader {
		l.manual.tick()
	}
	l.manual.runIdle()
	var stuck []*manualTask
	for _, task := range l.manual.tasks {
		if _, ok := task.worker.(*applyLane); ok {
			task.dead = true
			stuck = append(stuck, task)
		}
	}
	var taken []*echoCaller
	bytes, most := int64(0), l.memory.proposed.max+l.memory.waiting.max
	for refused := 0; refused < 10; {
		e := newEchoCaller()
		c := e.call(strings.Repeat("x", 1<<10))
		switch err := g.Call(c); {
		case err == nil:
			taken, bytes = append(taken, e), bytes+c.bytes()
		case errors.Is(err, ErrOverloaded):
			refused++
		default:
			t.Fatal(err)
		}
		l.manual.runIdle() // which panics if the turns never end
		if refused > 0 {
			l.manual.tick()
		}
		if bytes > most {
			t.Fatalf("%d calls of %d bytes were taken, and none is applied; want at most %d bytes", len(taken), bytes, most)
		}
	}
	for _, task := range stuck {
		task.dead = false
		task.Wake()
	}
	l.manual.runIdle()
	for range 10 {
		l.manual.tick()
	}
	for i, e := range taken {
		if len(e.result) != 1 {
			t.Fatalf("call %d of %d has no result", i, len(taken))
		}
	}
}
