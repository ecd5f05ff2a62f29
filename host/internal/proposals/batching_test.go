package proposals

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

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
		b.Record(last, 2)
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
	b.Record(201, 2)
	turn()
	if c := b.Counts(); c != (BatchCounts{}) {
		t.Errorf("when it is deposed: %+v", c)
	}
	if b.Shrink(); b.open != nil {
		t.Error("the array is kept")
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
