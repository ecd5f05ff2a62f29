package proposals

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
)

// A batch is open from the turn that puts it into the log until its last entry is committed, while its leader
// leads. Batches that are committed take no memory.
func TestBatchesAreMeasured(t *testing.T) {
	var b Batching
	now := time.Duration(0)
	st := raft.BasicStatus{}
	turn := func() { b.Measure(st, func() time.Duration { return now }) }
	st.RaftState, st.Term = raft.StateLeader, 2
	for last := uint64(1); last <= 200; last++ {
		b.Record(last, 2, 2)
		turn()
	}
	turn() // nothing was put
	if c := b.Counts(); c != (BatchCounts{Open: 200}) {
		t.Errorf("before a commit: %+v", c)
	}
	now, st.Commit = 7*time.Millisecond, 150
	turn()
	if c := b.Counts(); c != (BatchCounts{Open: 50, Round: 7 * time.Millisecond}) || len(b.open) > 60 {
		t.Errorf("after a commit: %+v, %d are kept", c, len(b.open))
	}
	st.RaftState = raft.StateFollower
	b.Record(201, 2, 2)
	turn()
	if c := b.Counts(); c != (BatchCounts{}) {
		t.Errorf("when it is deposed: %+v", c)
	}
	if b.Shrink(); b.open != nil {
		t.Error("the array is kept")
	}
}

// in is the status of a member in a term.
func in(role raft.StateType, term uint64) (st raft.BasicStatus) {
	st.RaftState, st.Term = role, term
	return st
}

// Commands of this host are never held behind batches that have none of them: others may forward commands
// without a pause. And a batch of others makes no client wait for those that come back to another host.
func TestBatchesOfOthersHoldNothing(t *testing.T) {
	b := Batching{Kind: batches.Cohorts}
	now := time.Second
	st := in(raft.StateLeader, 2)
	turn := func(last uint64, commands, own int) {
		now += time.Millisecond
		b.Record(last, commands, own)
		b.Measure(st, func() time.Duration { return now })
	}
	ask := func(waiting int) batches.Verdict { return b.Ask(batches.State{Now: now, Waiting: waiting}) }
	if turn(1, 1, 1); ask(1).Begins {
		t.Fatal("a command does not wait for the batch of this host")
	}
	for last := uint64(2); last < 10; last++ {
		st.Commit = last - 1
		if turn(last, 5, 0); !b.MustAsk(func() time.Duration { return now }) {
			t.Fatal("the rule is not asked, and a command waits")
		}
		if v := ask(1); !v.Begins {
			t.Fatalf("a command waits behind those of another host: %+v", v)
		}
		if v := ask(0); b.Holds() || v.Again > 0 {
			t.Fatalf("it waits for clients of another host: %+v", v)
		}
	}
}

// Whatever comes in whatever order, under each rule: a command is held for one commit, that of the batch of
// this host that was open when it came. Then it is held for a millisecond at most. Nothing is held that is
// deposed. Turns come as a host has them: when the rule is due, at its alarm, and with each commit and each
// batch of others.
func TestACommandIsHeldForOneCommitAtMost(t *testing.T) {
	waits := 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 5))
		b := Batching{Kind: batches.Kind(random.IntN(3))}
		st, now, last := in(raft.StateLeader, 2), time.Second, uint64(0)
		var came []time.Duration // of the commands that wait
		var behind []uint64      // the batch of this host that each waits for
		var free []time.Duration // when that was committed, or the command came; 0: it is not
		own, wake := uint64(0), 1
		turn := func() {
			b.Measure(st, func() time.Duration { return now })
			for i := range came {
				if free[i] == 0 && behind[i] <= st.Commit {
					free[i] = now
				}
			}
			for asks := 0; len(came) >= max(wake, 1) || b.MustAsk(func() time.Duration { return now }); asks++ {
				if asks > 3 {
					t.Fatalf("seed %d: it asks again and again", seed)
				}
				var v batches.Verdict
				if st.RaftState != raft.StateLeader {
					v = b.Pass()
				} else {
					v = b.Ask(batches.State{Now: now, Waiting: len(came), Bytes: int64(len(came)) << 10})
				}
				if wake = v.Wake; v.Begins && len(came) > 0 {
					if st.RaftState == raft.StateLeader && random.IntN(20) > 0 { // else it is refused
						last++
						own = last
						b.Record(last, len(came), len(came))
					}
					came, behind, free = nil, nil, nil
				}
				b.Measure(st, func() time.Duration { return now })
			}
		}
		for range 400 {
			before := now
			now += time.Duration(random.Int64N(int64(300 * time.Microsecond)))
			if random.IntN(10) == 0 {
				now += 3 * time.Millisecond
			}
			if b.again > before && b.again <= now { // its alarm
				turn()
			}
			switch random.IntN(12) {
			case 0, 1, 2, 3, 4:
				came, behind, free = append(came, now), append(behind, own), append(free, 0)
				if n := len(came); own <= st.Commit {
					free[n-1] = now
				}
				if len(came) >= wake {
					turn()
				}
			case 5, 6:
				last++
				b.Record(last, 1+random.IntN(5), 0)
				turn()
			case 7, 8, 9:
				st.Commit = min(last, st.Commit+uint64(random.IntN(3)))
				turn()
			case 10:
				turn()
			case 11:
				if random.IntN(5) == 0 {
					st.RaftState, st.Term = raft.StateFollower, st.Term+1
					if turn(); len(came) > 0 {
						t.Fatalf("seed %d: %d commands stay with a leader that was deposed", seed, len(came))
					}
					st.RaftState, st.Commit, own = raft.StateLeader, last, 0
					st.Term++
					turn()
				}
			}
			if len(came) > 0 && b.again > 0 {
				waits++
			}
			for i := range came {
				if free[i] > 0 && now > free[i]+time.Millisecond {
					t.Fatalf("seed %d, %v: a command that came at %v, and was free at %v, waits at %v until %v", seed, b.Kind, came[i], free[i], now, b.again)
				}
			}
		}
	}
	if waits < 500 {
		t.Errorf("commands wait for clients after %d steps: the test sees little", waits)
	}
}

// asked notes what a rule is told.
type asked struct {
	batches.AtOnce
	all []batches.State
}

func (a *asked) Next(s batches.State) batches.Verdict {
	a.all = append(a.all, s)
	return a.AtOnce.Next(s)
}

// What a rule has measured ends with the leadership, and with a time in which it was not asked: what was
// pending then would count all that time.
func TestARuleBeginsAnew(t *testing.T) {
	for _, end := range []func(*Batching){
		func(b *Batching) { b.Measure(in(raft.StateFollower, 3), nil) },
		func(b *Batching) { b.Pass() },
	} {
		first := &asked{}
		b := Batching{rule: first}
		lead := func(term uint64) {
			b.Measure(in(raft.StateLeader, term), func() time.Duration { return 1 })
		}
		b.term = 2
		b.Record(7, 5, 5)
		lead(2)
		if b.Ask(batches.State{Now: 2, Waiting: 1}); len(first.all) != 1 || first.all[0].Pending != 5 || first.all[0].Open != 1 {
			t.Fatalf("the rule is told %+v", first.all)
		}
		if c := b.Counts(); c.Rule != batches.Immediate || c.Changes != 0 {
			t.Errorf("%+v", c)
		}
		end(&b)
		lead(4)
		if b.Ask(batches.State{Now: time.Hour}); len(first.all) != 1 {
			t.Error("the rule of before is asked")
		}
	}
}

// A change of the rule is counted while this member leads. A follower has no rule.
func TestChangesOfTheRuleAreCounted(t *testing.T) {
	b := Batching{term: 2}
	for i, rule := range []batches.Rule{batches.AtOnce{}, &batches.Cohort{}, &batches.Cohort{}, batches.AtOnce{}} {
		b.rule = rule
		b.Ask(batches.State{})
		if c, want := b.Counts(), []uint64{0, 1, 1, 2}[i]; c.Rule != rule.Chosen() || c.Changes != want {
			t.Errorf("question %d: %+v, want %d changes", i, c, want)
		}
	}
	b.Measure(in(raft.StateFollower, 3), nil)
	if c := b.Counts(); c.Rule != batches.Automatic || c.Changes != 2 {
		t.Errorf("of a follower: %+v", c)
	}
}

// Commands are counted by the error that their clients got; an unknown outcome before its cause.
func TestRefusalsAreCountedByTheirCause(t *testing.T) {
	var c RefusalCounts
	c.Add(nil, 5)
	for _, err := range []error{outcome.ErrNotLeader, outcome.ErrNotFounded, outcome.ErrOverloaded, outcome.ErrTooLarge, outcome.ErrEmpty, outcome.ErrDropped, outcome.ErrStopped, errors.New("another")} {
		c.Add(fmt.Errorf("wrapped: %w", err), 2)
		c.Add(fmt.Errorf("%w: %w", outcome.ErrIndeterminate, err), 1)
	}
	for name, n := range map[string]*atomic.Uint64{
		"not leader": &c.NotLeader, "not founded": &c.NotFounded, "overloaded": &c.Overloaded, "too large": &c.TooLarge,
		"empty": &c.Empty, "dropped": &c.Dropped, "stopped": &c.Stopped, "other": &c.Other,
	} {
		if n.Load() != 2 {
			t.Errorf("%s: %d, want 2", name, n.Load())
		}
	}
	if n := c.Indeterminate.Load(); n != 8 {
		t.Errorf("%d indeterminate, want 8", n)
	}
}
