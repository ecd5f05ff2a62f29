package plans

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/transport"
)

func directory(id uint64) transport.Incarnation { return transport.Incarnation{byte(id), 1} }

// founded returns the roster of members from 1 to n.
func founded(n uint64) *membership.Roster {
	var members []membership.Member
	for id := uint64(1); id <= n; id++ {
		members = append(members, membership.Member{ID: id, Incarnation: directory(id)})
	}
	return membership.Founded(members)
}

// planOf returns a plan for a roster.
func planOf(t *testing.T, r *membership.Roster, wants ...membership.Want) membership.Plan {
	t.Helper()
	stages, err := r.Make(wants)
	if err != nil {
		t.Fatal(err)
	}
	return membership.Plan{ID: membership.PlanID{9, byte(r.Changed)}, Base: r.Changed, Stages: stages}
}

func add(id uint64) membership.Want {
	return membership.Want{Op: membership.Add, Member: membership.Member{ID: id, Incarnation: directory(id)}}
}

func remove(id uint64) membership.Want {
	return membership.Want{Op: membership.Remove, Member: membership.Member{ID: id}}
}

func begins(p membership.Plan) Request {
	return RequestOf(2, append([]byte{entry.PlanKind}, p.Encode()...))
}

func cancels(id membership.PlanID) Request {
	return RequestOf(2, append([]byte{entry.CancelKind}, id[:]...))
}

// hosts is what a member knows of hosts: which are there, and which come with another directory.
type hosts struct {
	here, leftOut []uint64
	full          error
}

func (h hosts) IsHere(id uint64) bool       { return slices.Contains(h.here, id) }
func (h hosts) Excludes(id uint64) bool     { return slices.Contains(h.leftOut, id) }
func (h hosts) RejectNew(uint64) error      { return h.full }
func allHere(uint64) bool                   { return true }
func without(id uint64) func(uint64) bool   { return func(other uint64) bool { return other != id } }
func isRefused(err error, word string) bool { return err != nil && strings.Contains(err.Error(), word) }

// What hosts tell each other is read back.
func TestRecords(t *testing.T) {
	q := begins(planOf(t, founded(3), add(4)))
	group, again, err := DecodeRequest(q.Encode(7))
	again.From = q.From
	if group != 7 || err != nil || !reflect.DeepEqual(again, q) {
		t.Errorf("%+v comes back as %d, %+v, %v", q, group, again, err)
	}
	a := Answer{Group: 7, ID: q.ID, Why: "because"}
	if again, err := DecodeAnswer(a.Encode()); err != nil || again != a {
		t.Errorf("%+v comes back as %+v, %v", a, again, err)
	}
	j := JoinRefused{Group: 7, Why: "because"}
	if again, err := DecodeJoinRefused(j.Encode()); err != nil || again != j {
		t.Errorf("%+v comes back as %+v, %v", j, again, err)
	}
	long := strings.Repeat("x", control.MaxSentence+1)
	if again, err := DecodeAnswer(Answer{Why: long}.Encode()); err != nil || len(again.Why) != control.MaxSentence {
		t.Errorf("a long refusal has %d bytes, %v", len(again.Why), err)
	}
}

// A peer asks to cancel a plan whose id is all zeros, with no id in the entry. Such an entry would stop the
// leader when it is applied, and every other member refuses to append it.
func TestCancelWithoutIDIsRefused(t *testing.T) {
	for _, data := range [][]byte{{entry.CancelKind}, {entry.CancelKind, 0}, append([]byte{entry.CancelKind}, make([]byte, 17)...)} {
		if _, q, err := DecodeRequest(Request{Data: data}.Encode(1)); err == nil {
			t.Errorf("%x is a request, with the entry %x", data, q.Data)
		}
	}
}

// No body makes a decoder panic, and what is decoded is encoded to what is decoded again.
func FuzzRecords(f *testing.F) {
	f.Add(Answer{Group: 1, Why: "no"}.Encode())
	f.Add(JoinRefused{Group: 1, Why: "no"}.Encode())
	f.Add(cancels(membership.PlanID{1}).Encode(1))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) == 0 {
			return // the transport delivers none
		}
		group, q, err := DecodeRequest(body)
		if err == nil {
			if g, again, err := DecodeRequest(q.Encode(group)); g != group || err != nil || !reflect.DeepEqual(again, q) {
				t.Errorf("%x: %+v comes back as %+v, %v", body, q, again, err)
			}
		}
		a, err := DecodeAnswer(body)
		if err == nil {
			if again, err := DecodeAnswer(a.Encode()); err != nil || again != a {
				t.Errorf("%x: %+v comes back as %+v, %v", body, a, again, err)
			}
		}
		j, err := DecodeJoinRefused(body)
		if err == nil {
			if again, err := DecodeJoinRefused(j.Encode()); err != nil || again != j {
				t.Errorf("%x: %+v comes back as %+v, %v", body, j, again, err)
			}
		}
	})
}

// One member begins a plan and cancels it in the same turn: both requests stay. No peer fills the memory.
func TestRequestsThatWait(t *testing.T) {
	var p Requests
	id := membership.PlanID{1}
	for _, kind := range []byte{entry.CancelKind, entry.PlanKind, entry.PlanKind} {
		p.Enqueue(Request{From: 1, ID: id, Data: []byte{kind}})
	}
	if have := p.Dequeue(); len(have) != 2 || len(p.Dequeue()) != 0 {
		t.Errorf("%d requests were left, want 2", len(have))
	}
	for i := range 100 {
		p.Enqueue(Request{From: 1, ID: membership.PlanID{byte(i)}, Data: []byte{entry.PlanKind}})
	}
	if have := p.Dequeue(); len(have) != maxRequests {
		t.Errorf("%d requests wait, want %d", len(have), maxRequests)
	}
}

// A request that was overtaken gets no answer: what the asker applies says how it went.
func TestLateRequests(t *testing.T) {
	r := founded(3)
	p := planOf(t, r, add(4))
	if q := begins(p); q.IsLate(r) || cancels(p.ID).IsLate(r) {
		t.Error("late, before the plan has begun")
	}
	begun, err := r.Begin(4, p)
	if err != nil {
		t.Fatal(err)
	}
	if !begins(p).IsLate(begun) || cancels(p.ID).IsLate(begun) {
		t.Error("under way: to begin it again is late, to end it is not")
	}
	ended, err := begun.Cancel(5, p.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !begins(p).IsLate(ended) || !cancels(p.ID).IsLate(ended) {
		t.Error("ended, and not late")
	}
	other := planOf(t, r, remove(3))
	other.ID[0]++
	later := *r
	if later.Changed++; !begins(other).IsLate(&later) {
		t.Error("a plan for an earlier roster is not late")
	}
}

// A leader refuses what would leave no quorum, a host it cannot know, and one with another directory.
func TestRejectedRequests(t *testing.T) {
	r := founded(3)
	all := hosts{here: []uint64{1, 2, 3}}
	if err := begins(planOf(t, r, add(4))).Reject(r, all); err != nil {
		t.Errorf("host 4 is added: %v", err)
	}
	if err := begins(planOf(t, r, add(4))).Reject(r, hosts{here: all.here, full: errors.New("full")}); !isRefused(err, "full") {
		t.Errorf("a host that cannot be known is added: %v", err)
	}
	two := hosts{here: []uint64{1, 2}}
	if err := begins(planOf(t, r, remove(3))).Reject(r, two); err != nil {
		t.Errorf("the member that is down is removed: %v", err)
	}
	if err := begins(planOf(t, r, remove(2))).Reject(r, two); !isRefused(err, "no quorum") {
		t.Errorf("a member is removed, and one of two is left: %v", err)
	}
	if err := cancels(membership.PlanID{1}).Reject(r, all); err == nil {
		t.Error("no plan is under way, and it is cancelled")
	}
	learner, err := r.Begin(4, planOf(t, r, membership.Want{Op: membership.Demote, Member: membership.Member{ID: 3}}))
	if err != nil {
		t.Fatal(err)
	}
	c, _ := learner.NextStage()
	for i, kind := uint64(5), c; ; i++ {
		next, err := learner.Next(i, kind.Entry())
		if err != nil {
			t.Fatal(err)
		}
		var more bool
		if learner = next; learner.Role(3) == membership.Learner && !learner.IsJoint() {
			break
		}
		if kind, more = learner.NextStage(); !more {
			t.Fatal("the stages end before member 3 is a learner")
		}
	}
	ended, err := learner.End(20, learner.Plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	promote := begins(planOf(t, ended, membership.Want{Op: membership.Promote, Member: membership.Member{ID: 3}}))
	if err := promote.Reject(ended, all); err != nil {
		t.Errorf("the learner becomes a voter: %v", err)
	}
	if err := promote.Reject(ended, hosts{here: all.here, leftOut: []uint64{3}}); !isRefused(err, "another directory") {
		t.Errorf("a learner with another directory becomes a voter: %v", err)
	}
}

// A learner is level when a round takes no longer than an election timeout. A twin that keeps the whole
// history says the same.
func TestCatchUp(t *testing.T) {
	const timeout = 10
	var c CatchUp
	c.Begin(1)
	type look struct {
		match, last uint64
		now         int64
	}
	looks := []look{{0, 100, 0}, {50, 100, 5}, {100, 200, 20}, {150, 200, 25}, {200, 250, 30}, {0, 300, 31}, {250, 300, 41}, {300, 300, 41}}
	var begun *look // of the round under way
	for i, l := range looks {
		want := begun != nil && l.match >= begun.last && l.now-begun.now <= timeout
		if begun == nil || l.match >= begun.last {
			begun = &looks[i]
		}
		if have := c.IsLevel(4, l.match, l.last, l.now, timeout); have != want {
			t.Errorf("look %d: level %t, want %t", i, have, want)
		}
	}
	if c.Begin(1); !c.IsLevel(4, 300, 300, 42, timeout) {
		t.Error("the members are the same, and a learner begins again")
	}
	if c.Begin(2); c.IsLevel(4, 300, 300, 42, timeout) {
		t.Error("the members have changed, and a learner is level at once")
	}
}

// The page says what each stage costs, or who knows.
func TestOutlook(t *testing.T) {
	r := founded(3)
	p := planOf(t, r, remove(3))
	stages, err := Judge(r, p.Stages, without(3))
	if err != nil || len(stages) != 1 || stages[0].During != 0 || stages[0].After != 0 || !slices.Equal(stages[0].Voters, []uint64{1, 2}) {
		t.Fatalf("%+v, %v", stages, err)
	}
	o := Outlook{ID: p.ID, Group: 7, Host: 1, View: 2, Absent: []uint64{3}, Stages: stages}
	if page := o.String(); !strings.Contains(page, "as host 2 says") || !strings.Contains(page, "members [3] were not heard") || !strings.Contains(page, "with voters [1 2]") {
		t.Error(page)
	}
	if o.View, o.Leader = 0, 2; !strings.Contains(o.String(), "unknown to host 1 (host 2 leads: ask there)") {
		t.Error(o)
	}
	for n, want := range map[int]string{-1: "no quorum", 1: "1 failure", 2: "2 failures"} {
		if !strings.Contains(tolerance(n), want) {
			t.Errorf("%d: %q", n, tolerance(n))
		}
	}
	if why := LeavesNoQuorum(r, p.Stages, without(3)); why != "" {
		t.Error(why)
	}
	if why := LeavesNoQuorum(r, p.Stages, allHere); why != "" {
		t.Error(why)
	}
}
