package abuse_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"go.uber.org/goleak"
)

// SetPeer, Plan and Members are called while the host closes.
func TestSetPeerWhileClosing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ps := parties(t, 2)
	founded(t, ps...)
	var calls sync.WaitGroup
	for n := range 4 {
		calls.Go(func() {
			for i := range 200 {
				err := ps[0].SetPeer(uint64(10+i%20), fmt.Sprintf("127.0.0.1:%d", 1+n))
				if err != nil && !errors.Is(err, outcome.ErrStopped) {
					t.Error(err)
				}
				if g := ps[0].Group(theGroup); g != nil {
					g.Members()
					_, _ = g.Plan(host.DemoteMember(2))
				}
			}
		})
	}
	ps[0].close()
	calls.Wait()
	ps[1].close()
}

// A plan that was carried out is never reported as not begun, though another plan has ended since. The caller
// executes it again after a restart, as Execute says.
func TestExecuteAgainAfterAnotherPlan(t *testing.T) {
	ps := parties(t, 3)
	founded(t, ps...)
	g := ps[0].Group(theGroup)
	plan, err := g.Plan(host.DemoteMember(3))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Execute(deadline(t), plan); err != nil {
		t.Fatal(err)
	}
	ps[0].change(host.PromoteMember(3))
	if err := g.Execute(deadline(t), plan); errors.Is(err, outcome.ErrMembersUnchanged) {
		t.Errorf("it was carried out, and ends with %v", err)
	}
	for _, p := range ps {
		p.close()
	}
}

// Two callers execute one plan on two members at once, and execute it again: all are told the same.
func TestOnePlanTwice(t *testing.T) {
	ps := parties(t, 3)
	founded(t, ps...)
	plan, err := ps[1].Group(theGroup).Plan(host.DemoteMember(3))
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for n := range 6 {
		calls.Go(func() {
			if err := ps[n%3].Group(theGroup).Execute(deadline(t), plan); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if err := ps[0].Group(theGroup).Execute(deadline(t), plan); err != nil {
		t.Error(err)
	}
	for _, p := range ps {
		p.close()
	}
}

// Members restart at every stage of a plan, and come back with the roster that they had or a later one.
func TestRestartsWhileAPlanIsCarriedOut(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ps := parties(t, 4)
	list := listOf(ps...)
	for _, p := range ps[:3] {
		p.openHost(list)
		p.openGroup(1, 2, 3)
	}
	ps[3].openJoining(list, 1, 2, 3)
	write(t, ps[:3], "first")
	ps[0].remembers(3, 1)
	for round := range 6 {
		p := ps[round%3]
		g := p.Group(theGroup)
		change := host.DemoteMember(uint64((round+1)%3 + 1))
		if round%2 == 1 {
			change = host.PromoteMember(uint64(round%3 + 1))
		}
		plan, err := g.Plan(change)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(deadline(t))
		done := make(chan struct{})
		go func() { defer close(done); _ = g.Execute(ctx, plan) }()
		for _, other := range ps[:3] {
			before := other.Group(theGroup).Members().Version
			other.close()
			other.openHost(list)
			other.openGroup(1, 2, 3)
			other.waitEventAfter("the roster", func() bool { m := other.Group(theGroup).Members(); return m.Founded && m.Version >= before })
		}
		write(t, ps[:3], fmt.Sprint("round ", round))
		cancel()
		<-done
		if err := ps[0].Group(theGroup).Execute(deadline(t), plan); err != nil && !errors.Is(err, outcome.ErrMembersUnchanged) {
			t.Fatal(err)
		}
		ps[0].waitEventAfter("no plan", func() bool { return ps[0].Group(theGroup).Members().Plan == "" })
		for _, other := range ps[1:3] {
			m := ps[0].Group(theGroup).Members()
			other.waitMembers(m.Voters, m.Learners)
		}
		if round%2 == 0 {
			continue
		}
		if m := ps[0].Group(theGroup).Members(); len(m.Learners) > 0 {
			for _, id := range m.Learners {
				ps[0].change(host.PromoteMember(id))
			}
			for _, other := range ps[:3] {
				other.waitMembers([]uint64{1, 2, 3}, nil)
			}
		}
	}
	for _, p := range ps {
		p.close()
	}
}
