package outbox

import (
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/raft/raftpb"
)

// clock has one timer, which fires when the test says so.
type clock struct {
	env.Clock
	now time.Duration
	f   func()
	at  time.Duration // 0: not set
}

func (c *clock) Now() time.Duration       { return c.now }
func (c *clock) Timer(f func()) env.Timer { c.f = f; return c }
func (c *clock) Set(after time.Duration)  { c.at = c.now + after }
func (c *clock) Stop()                    { c.at = 0 }
func (c *clock) fire()                    { c.now, c.at = c.at, 0; c.f() }
func commit(index uint64) *raftpb.Message {
	return &raftpb.Message{Type: raftpb.MsgApp, To: 2, Commit: index}
}
func entries(commit uint64) *raftpb.Message {
	return &raftpb.Message{Type: raftpb.MsgApp, To: 2, Commit: commit, Entries: span(1, 1, 1)}
}

// An append with a commit index only waits for the timer, which wakes the group once, and leaves in that
// turn.
func TestCommitIndexIsDelayed(t *testing.T) {
	c, out, wakes := &clock{now: time.Second}, &record{}, 0
	o, d := Batches{To: out, HoldEmpty: true}, CommitDelay{Alarm: sched.Alarm{Clock: c, Wake: func() { wakes++ }}}
	o.Enqueue(1, commit(4))
	o.Flush()
	if d.Step(&o, false, c.Now) || len(out.sent) > 0 || c.at != c.now+maxHold {
		t.Fatalf("%d messages were sent, and the timer is set to %v", len(out.sent), c.at)
	}
	c.fire()
	if d.Step(&o, false, c.Now); wakes != 1 || len(out.sent) != 1 || out.sent[0].Commit != 4 || c.at != 0 {
		t.Errorf("%d wakes, sent %v, the timer is set to %v", wakes, out.sent, c.at)
	}
}

// If entries follow, they carry the commit index. The timer that was set finds nothing, or what was held
// back since then, for which it is set again.
func TestEntriesCarryTheCommitIndex(t *testing.T) {
	for _, later := range []bool{false, true} {
		c, out, wakes := &clock{now: time.Second}, &record{}, 0
		o, d := Batches{To: out, HoldEmpty: true}, CommitDelay{Alarm: sched.Alarm{Clock: c, Wake: func() { wakes++ }}}
		o.Enqueue(1, commit(4))
		d.Step(&o, false, c.Now)
		o.Enqueue(1, entries(5))
		o.Flush()
		d.Step(&o, false, c.Now)
		if len(out.sent) != 1 || out.sent[0].Commit != 5 {
			t.Fatalf("sent %v, want the entries only", out.sent)
		}
		at := c.at
		if later {
			c.now += maxHold / 2
			o.Enqueue(1, commit(6))
			d.Step(&o, false, c.Now)
		}
		c.fire()
		if wakes != 0 || c.now != at || later != (c.at == at+maxHold/2) {
			t.Errorf("later %t: %d wakes, and the timer is set to %v", later, wakes, c.at)
		}
	}
}

// While other groups wait, the rest leaves with a turn before long, and no timer is set.
func TestCrowdedGroupSetsNoTimer(t *testing.T) {
	c, out := &clock{now: time.Second}, &record{}
	o, d := Batches{To: out, HoldEmpty: true}, CommitDelay{Alarm: sched.Alarm{Clock: c}}
	o.Enqueue(1, commit(4))
	if again := d.Step(&o, true, c.Now); !again || c.at != 0 || len(out.sent) > 0 {
		t.Errorf("again %t, sent %v, the timer is set to %v", again, out.sent, c.at)
	}
	c.now += maxHold
	if again := d.Step(&o, true, c.Now); again || len(out.sent) != 1 {
		t.Errorf("after the delay: again %t, sent %v", again, out.sent)
	}
}
