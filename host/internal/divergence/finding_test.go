package divergence

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
)

// A leader tells all members what it has found, a member that reports again is told again, and one that still
// believes it is told when it is over.
func TestLeaderTellsWhatItHasFound(t *testing.T) {
	d, group := leaderOf(Machine{Form: "f"})
	c := Checkpoint{Index: 5, Commands: 6, Results: 7, HasResults: true}
	report := func(from, results uint64, told bool, index uint64) {
		other := c
		other.Index, other.Results = index, results
		d.Receive(from, &Report{Group: 1, Options: d.options, Watch: d.watch, Told: told, Checkpoints: []Checkpoint{other}})
	}
	d.Record(c)
	report(2, 7, false, 5)
	if len(group.sent) > 0 {
		t.Fatalf("the members agree, and the leader has sent %d bodies", len(group.sent))
	}
	report(3, 9, false, 5)
	want := Finding{Group: 1, In: event.DivergedResults, Index: 5, Agreed: 5, Members: []event.DivergedMember{{ID: 1, Sum: 7}, {ID: 2, Sum: 7}, {ID: 3, Sum: 9, Minority: true}}}
	if to := group.taken(&want); !slices.Equal(to, []uint64{2, 3}) {
		t.Fatalf("hosts %v were told, want 2 and 3", to)
	}
	if agreed, found := d.Counts(); agreed != 5 || found != 1 {
		t.Errorf("agreed after %d, found %d", agreed, found)
	}
	report(2, 7, true, 5)
	if to := group.taken(&want); !slices.Equal(to, []uint64{2}) {
		t.Errorf("hosts %v were told again, want 2", to)
	}
	report(3, 7, true, 5) // it was started again
	if found, _, _ := d.Standing(); found != nil {
		t.Error("the member that differed has applied the commands again and agrees, and the difference stands")
	}
	report(2, 7, true, 5)
	report(2, 7, false, 5)
	none := &Finding{Group: 1, In: event.DivergedOptions}
	if n := len(group.sent); !slices.Equal(group.taken(none), []uint64{2, 3}) || n != 2 {
		t.Errorf("%d bodies were sent, want that it is over, once to each member that says that it was told", n)
	}
	group.leader = 2
	d.Record(Checkpoint{Index: 6})
	if d.latest != nil {
		t.Error("a member that leads no more has a finding of its own")
	}
}

// A member holds what the leader has told that it follows, and reports that it does.
func TestMemberHoldsWhatItIsTold(t *testing.T) {
	d, group := leaderOf(Machine{})
	group.leader = 2
	found := &Finding{Group: 1, In: event.DivergedState, Index: 5, Members: []event.DivergedMember{{ID: 2, Sum: 7}, {ID: 3, Sum: 9}}}
	holds := func() bool { d, _, _ := d.Standing(); return d != nil }
	d.Receive(3, found)
	if holds() || d.Report().Told {
		t.Error("a member believes a host that does not lead")
	}
	group.now = 4
	d.Receive(2, found)
	group.now = 9
	d.Receive(2, found)
	if _, by, since := d.Standing(); !holds() || by != 2 || since != 4 || len(group.told) != 1 || !d.Report().Told {
		t.Errorf("told by %d since %d, and said %d times", by, since, len(group.told))
	}
	group.leader = 3
	if holds() {
		t.Error("what an earlier leader has told stands")
	}
	group.leader = 2
	if d.Receive(2, &Finding{Group: 1}); holds() || d.Report().Told {
		t.Error("it is over, and the member holds it")
	}
}

// A record of another format is no error, and is nothing.
func TestOtherFormatIsNothing(t *testing.T) {
	for _, kind := range []byte{control.Report, control.Stop, control.Finding} {
		for _, other := range []byte{1, format + 1} {
			if r, _, err := Decode([]byte{kind, other, 2, 0, 0}); r != nil || err != nil {
				t.Errorf("kind %d in format %d: %v, %v", kind, other, r, err)
			}
		}
	}
}
