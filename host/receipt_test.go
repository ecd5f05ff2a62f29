package host

import (
	"testing"
	"time"
)

// A leader's receipt says when its command passed each step, in order, and whose acknowledgement completed
// the quorum. A receipt of another host says what that host knows.
func TestReceiptHasTimes(t *testing.T) {
	c := openCallCluster(t, 3, GroupConfig{})
	l, err := c.groups[0].WaitLeader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range c.groups {
		id := uint64(i + 1)
		before := g.Now()
		e := newEchoCaller()
		if err := g.Call(e.call("x")); err != nil {
			t.Fatal(err)
		}
		<-e.result
		r, after := <-e.committed, g.Now()
		steps := []time.Duration{before, r.Queued, r.Committed, after}
		if r.Appended > 0 && id == l.ID && g.Status().Term == r.Term {
			steps = []time.Duration{before, r.Queued, r.Appended, r.Replicated, r.Committed, after}
			if r.By < 1 || r.By > 3 {
				t.Errorf("host %d completed the quorum, want one of 3", r.By)
			}
		} else if r.Appended == 0 && r.Applied == 0 {
			t.Errorf("host %d did not put it into its log, and says %+v", id, r)
		}
		for k := 1; k < len(steps); k++ {
			if steps[k] < steps[k-1] {
				t.Errorf("host %d: step %d of %+v is before the one before it", id, k, r)
			}
		}
	}
}
