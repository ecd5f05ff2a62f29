package founding

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/transport"
)

// log is a scripted log: the terms of its entries, by index.
type log map[uint64]uint64

func (l log) EntryTerm(index uint64) (term uint64, ok bool) { term, ok = l[index]; return term, ok }

func binding(directory byte) entry.Binding {
	return entry.Binding{{ID: 1, Incarnation: transport.Incarnation{1}}, {ID: 2, Incarnation: transport.Incarnation{directory}}}
}

func newGroup() (log, *Group) {
	l, g := log{}, new(Group)
	g.Init(l)
	return l, g
}

// An entry found is in force while it is in the log. Another leader may replace it.
func TestBindingFollowsTheLog(t *testing.T) {
	l, g := newGroup()
	if g.SetBound() || g.Bound() != nil {
		t.Error("an empty log binds")
	}
	l[2] = 1
	g.Add(Entry{Index: 2, Term: 1, Bound: binding(2), Promise: time.Second})
	g.Add(Entry{Index: 2, Term: 1, Bound: binding(2), Promise: time.Second})
	if !g.SetBound() || g.SetBound() || !slices.Equal(*g.Bound(), binding(2)) || g.Promise() != time.Second || len(g.seen) != 1 {
		t.Errorf("bound to %v", g.Bound())
	}
	l[2] = 3 // another leader has another entry there
	if !g.SetBound() || g.Bound() != nil || g.Promise() != 0 {
		t.Errorf("the entry was replaced, and binds: %v", g.Bound())
	}
	l[3] = 3
	g.Add(Entry{Index: 3, Term: 3, Bound: binding(9)})
	if !g.SetBound() || !slices.Equal(*g.Bound(), binding(9)) {
		t.Errorf("bound to %v", g.Bound())
	}
}

// Commands are taken when founded is in the log, and the founding ends when it is committed.
func TestFoundingEnds(t *testing.T) {
	for _, known := range []bool{false, true} {
		l, g := newGroup()
		l[2], l[3] = 1, 1
		g.Add(Entry{Index: 2, Term: 1, Bound: binding(2)})
		if ends, _ := g.Commit(9); ends || g.TakesCommands() || g.IsFounded() {
			t.Error("founded is not in the log")
		}
		g.Add(Entry{Index: 3, Term: 1})
		if known {
			g.Open()
		}
		if ends, _ := g.Commit(2); ends || !g.TakesCommands() || g.IsFounded() {
			t.Error("founded is in the log, and not committed")
		}
		if ends, isNews := g.Commit(3); !ends || isNews == known || !g.IsFounded() {
			t.Errorf("founded is committed: %t, %t", ends, isNews)
		}
		if g.Forget(); !g.TakesCommands() {
			t.Error("a founded group takes no commands")
		}
		if ends, _ := g.Commit(4); ends {
			t.Error("the founding ends twice")
		}
	}
}

// A new leader lets commands wait for the founding for an election timeout.
func TestCommandsWaitForTheFounding(t *testing.T) {
	l, g := newGroup()
	if g.Holds(5, 10) || g.Due(5, 10) != turn.Never || g.IsUrgent() {
		t.Error("a follower holds commands")
	}
	g.Leads(true, 5)
	g.Leads(true, 9)
	if !g.Holds(14, 10) || g.Holds(15, 10) || g.Due(14, 10) != 15 || g.Due(15, 10) != turn.Never || !g.IsUrgent() {
		t.Error("commands are held until tick 15")
	}
	l[3] = 1
	if g.Add(Entry{Index: 3, Term: 1}); g.Holds(6, 10) {
		t.Error("founded is in the log, and commands are held")
	}
	g.Commit(3)
	if g.IsUrgent() || g.Due(6, 10) != turn.Never {
		t.Error("the founding has ended")
	}
}

// What is published says who is missing, and is replaced when it changes only.
func TestPublish(t *testing.T) {
	l, g := newGroup()
	unmet := []uint64{2}
	missing := func(e *Entry) []uint64 {
		return e.Missing(func(id, index uint64) bool { return id == 1 && index == 2 })
	}
	publish := func() { g.Publish(func() []uint64 { return unmet }, missing) }
	if publish(); g.Reached().Found || !slices.Equal(g.Reached().Unmet, unmet) {
		t.Errorf("%+v", g.Reached())
	}
	unmet, l[2] = nil, 1
	g.Add(Entry{Index: 2, Term: 1, Bound: binding(2)})
	g.Leads(true, 1)
	if publish(); !g.Reached().Found || g.Reached().Founded || len(g.Reached().Unmet) > 0 || !slices.Equal(g.Reached().Missing, []uint64{2}) {
		t.Errorf("%+v", g.Reached())
	}
	was := g.reached.Load()
	if publish(); g.reached.Load() != was {
		t.Error("nothing has changed, and it is published again")
	}
	g.Restore(binding(2), time.Second)
	if publish(); !g.Reached().Founded || len(g.Reached().Missing) > 0 || g.Promise() != time.Second || g.Bound() == nil {
		t.Errorf("%+v", g.Reached())
	}
}

// A group is counted once, and a member campaigns before its timeout once.
func TestOnce(t *testing.T) {
	_, g := newGroup()
	if g.Count(false) || !g.Count(true) || g.Count(true) || !g.Count(false) {
		t.Error("counted")
	}
	if g.HasCampaigned() {
		t.Error("it has not campaigned")
	}
	if g.SetCampaigned(); !g.HasCampaigned() {
		t.Error("it has campaigned")
	}
}

// A member with other leases, or shorter promises, would make the leases of all unsound.
func TestRejectPromises(t *testing.T) {
	plain, leased := entry.EncodeFound(binding(2)), entry.WithPromise(entry.EncodeFound(binding(2)), time.Second)
	for _, row := range []struct {
		leases  bool
		promise time.Duration
		found   []byte
		says    string
	}{
		{false, time.Second, plain, ""}, {true, time.Second, leased, ""}, {true, 2 * time.Second, leased, ""},
		{true, time.Second, plain, "was founded with Leases false"}, {false, time.Second, leased, "was founded with Leases true"},
		{true, time.Second / 2, leased, "set it to 1s or more"},
	} {
		err := Member{Group: 1, Self: 2, Leases: row.leases, Promise: row.promise}.RejectPromises(row.found)
		if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%+v: %v", row, err)
		}
	}
}
