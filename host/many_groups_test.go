package host_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs/crashfs"
	"go.uber.org/goleak"
)

// deaf is a host of the network that sends and does not listen.
type deaf struct{}

func (deaf) Introduce() transport.Introduction {
	return transport.Introduction{
		Cluster: 7, Incarnation: transport.Incarnation{2}, Generation: 1, Life: 1, Addr: "b",
		Members: []transport.Member{{ID: 1, Addr: "a"}, {ID: 2, Addr: "b"}},
	}
}
func (deaf) Admit(transport.Introduction, string) error { return nil }
func (deaf) Receive(uint64, []transport.Envelope)       {}
func (deaf) Unreachable(uint64)                         {}
func (deaf) Deliver(uint64, transport.Kind, []byte)     {}

// openSolo opens a host that votes alone, with host 2 on the network beside it.
func openSolo(t *testing.T, machine statemachine.Machine, options ...host.Option) (*host.Host, host.Transport) {
	t.Helper()
	network := loopback.NewNetwork()
	own, other := network.Host(1), network.Host(2)
	own.SetPeer(2, "")
	other.SetPeer(1, "")
	other.Start(deaf{})
	c := clusterConfig(1, "/data", map[uint64]string{1: "a", 2: "b"})
	c.SegmentBytes, c.Cluster = 16<<20, 7
	h, err := host.Open(t.Context(), c, append([]host.Option{host.WithTransport(own), host.WithFS(crashfs.New()), host.WithLogger(quiet)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.Close(context.Background())
		_ = other.Close()
	})
	if machine != nil {
		openLeader(t, h, theGroup, machine)
	}
	return h, other
}

// openLeader opens a group of which this host is the only member, and returns when it leads.
func openLeader(t *testing.T, h *host.Host, id uint64, machine statemachine.Machine) *host.Group {
	t.Helper()
	return openLeaderWith(t, h, host.GroupConfig{ID: id, Members: []uint64{1}}, machine)
}

func openLeaderWith(t *testing.T, h *host.Host, c host.GroupConfig, machine statemachine.Machine) *host.Group {
	t.Helper()
	g, err := h.OpenGroup(t.Context(), c, machine)
	if err != nil {
		t.Error(err)
		return nil
	}
	g.Campaign()
	if _, err := g.WaitLeader(deadline(t)); err != nil {
		t.Error(err)
	}
	return g
}

// A thousand groups are opened, written to, closed, opened again and removed by several goroutines at once,
// while another host sends messages for all of them, open or not. A group that is opened again applies what
// it was acknowledged, a removed one stays away, and all that are open take commands.
func TestManyGroups(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const groups, hands = 1000, 8
	h, other := openSolo(t, nil)
	// late sends what another member would: for a group, and for one that is open, not yet open, or removed.
	late := func(id uint64, rng *rand.Rand) {
		for _, to := range []uint64{id, 1 + rng.Uint64N(groups+10)} {
			other.Send(1, []transport.Envelope{
				{Group: to, Message: raftpb.Message{Type: raftpb.MsgHeartbeatResp, From: 2, To: 1, Term: 1}},
				{Group: to, Message: raftpb.Message{Type: raftpb.MsgAppResp, From: 2, To: 1, Term: 1, Index: 1}},
				{Group: to, Message: raftpb.Message{Type: raftpb.MsgPreVote, From: 2, To: 1, Term: 2}},
			})
		}
	}
	var all sync.WaitGroup
	for hand := range uint64(hands) {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(hand, 7))
			for id := hand + 1; id <= groups; id += hands {
				manyGroupsLife(t, h, id, rng, func() { late(id, rng) })
			}
		})
	}
	all.Wait()
	if h.TransportStats().Kinds[transport.Consensus].Received == 0 {
		t.Error("the host has heard nothing")
	}
	open := h.Groups()
	for _, id := range open {
		if id%3 == 0 {
			t.Errorf("group %d is removed, and open", id)
		}
		if _, err := h.Group(id).Propose(deadline(t), []byte("last")); err != nil {
			t.Errorf("group %d: %v", id, err)
		}
	}
	if want := groups - groups/3; len(open) != want {
		t.Errorf("%d groups are open, want %d", len(open), want)
	}
	if err := h.Close(deadline(t)); err != nil {
		t.Error(err)
	}
	_ = other.Close()
}

// manyGroupsLife is the life of one group. Every third is removed in the end.
func manyGroupsLife(t *testing.T, h *host.Host, id uint64, rng *rand.Rand, late func()) {
	acknowledged := 0
	for range 1 + rng.IntN(3) {
		j := newJournal()
		late()
		g := openLeader(t, h, id, j)
		late()
		if g == nil {
			return
		}
		for range 1 + rng.IntN(3) {
			if _, err := g.Propose(deadline(t), fmt.Appendf(nil, "%d of %d", acknowledged, id)); err != nil {
				t.Errorf("group %d: %v", id, err)
				return
			}
			acknowledged++
		}
		j.waitFor(t, acknowledged)
		var waiting sync.WaitGroup
		waiting.Go(func() { // a client during the end
			if _, err := g.Propose(deadline(t), []byte("late")); err == nil || outcome.MayHaveCommitted(err) {
				acknowledged++ // or may be
			}
		})
		late()
		if err := g.Close(deadline(t)); err != nil {
			t.Errorf("group %d: %v", id, err)
		}
		waiting.Wait()
		acknowledged = min(acknowledged, len(j.applied)) // a client that was not answered may be there or not
	}
	if id%3 != 0 {
		j := newJournal()
		openLeader(t, h, id, j)
		j.waitFor(t, acknowledged)
		return
	}
	if rng.IntN(2) == 0 {
		openLeader(t, h, id, newJournal())
	}
	late()
	if err := h.RemoveGroup(deadline(t), id); err != nil {
		t.Errorf("group %d: %v", id, err)
	}
	late()
	if _, err := h.OpenGroup(t.Context(), host.GroupConfig{ID: id}, newJournal()); !errors.Is(err, outcome.ErrRemoved) {
		t.Errorf("group %d is removed, and OpenGroup says %v", id, err)
	}
}

// A group whose state machine hangs is closed: Close returns when its context ends, and names what hangs.
// Other groups go on. The group cannot be opened before the state machine has come back, and can after that.
func TestCloseOfAGroupWithAHungMachine(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	b := &blocked{make(chan struct{}), make(chan struct{})}
	h, other := openSolo(t, newJournal())
	defer other.Close()
	g := openLeader(t, h, 2, b)
	if _, err := g.Propose(deadline(t), []byte("hangs in Apply")); err != nil {
		t.Fatal(err)
	}
	<-b.entered
	ctx, cancel := context.WithCancelCause(t.Context())
	tired := errors.New("the operator is tired")
	cancel(tired)
	for range 2 {
		err := g.Close(ctx)
		if want := "millrace: Close of group 2: still waiting for its state machine, which is in Apply; every client was answered: the operator is tired"; err == nil || err.Error() != want || !errors.Is(err, tired) {
			// Its turn or the disk may be at work for another moment.
			for err != nil && !strings.Contains(err.Error(), "its state machine") {
				runtime.Gosched()
				err = g.Close(ctx)
			}
			if err == nil || err.Error() != want || !errors.Is(err, tired) {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		}
	}
	if _, err := g.Propose(deadline(t), []byte("late")); !errors.Is(err, outcome.ErrStopped) || outcome.MayHaveCommitted(err) {
		t.Errorf("a late client was told %v", err)
	}
	if _, err := h.Group(theGroup).Propose(deadline(t), []byte("the others go on")); err != nil {
		t.Error(err)
	}
	openLeader(t, h, 3, newJournal())
	_, err := h.OpenGroup(t.Context(), host.GroupConfig{ID: 2, Members: []uint64{1}}, newJournal())
	if want := "millrace: group 2 is being closed and is still waiting for its state machine, which is in Apply; open it again when Close has returned nil"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	close(b.release)
	if err := g.Close(deadline(t)); err != nil {
		t.Errorf("Close, when nothing hangs any more: %v", err)
	}
	again := newJournal()
	openLeader(t, h, 2, again)
	again.waitFor(t, 1)
	if err := h.Close(deadline(t)); err != nil {
		t.Error(err)
	}
}

// More state machines hang than the host has lanes. Each is reported, and the groups beside them apply what
// they commit: lanes are started in the place of those that hang.
func TestManyHungMachinesLeaveLanes(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	stalled := make(chan uint64, 100)
	j := newJournal()
	h, other := openSolo(t, j, host.WithEvents(func(e event.Event) {
		if e, ok := e.(event.ApplyStalled); ok {
			stalled <- e.Group
		}
	}))
	defer other.Close()
	hung := runtime.GOMAXPROCS(0) + 3
	var machines []*blocked
	for i := range hung {
		b := &blocked{make(chan struct{}), make(chan struct{})}
		machines = append(machines, b)
		if _, err := openLeader(t, h, uint64(2+i), b).Submit([]byte("hangs in Apply")); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range machines {
		select {
		case <-b.entered:
		case <-deadline(t).Done():
			t.Fatal("a state machine is not called, because others hang")
		}
	}
	r, err := h.Group(theGroup).Propose(deadline(t), []byte("goes on"))
	if err != nil {
		t.Fatal(err)
	}
	j.waitForIndex(t, r.Index)
	reported := map[uint64]bool{}
	for len(reported) < hung {
		select {
		case id := <-stalled:
			if reported[id] {
				t.Errorf("group %d was reported twice", id)
			}
			reported[id] = true
		case <-deadline(t).Done():
			t.Fatalf("of %d groups that hang %d were reported", hung, len(reported))
		}
	}
	for _, b := range machines {
		close(b.release)
	}
	if s := h.Group(theGroup).Status(); s.Role != event.RoleLeader {
		t.Errorf("the group leads no more: %+v", s)
	}
	if err := h.Close(deadline(t)); err != nil {
		t.Error(err)
	}
}

// serial is a state machine that must not be called twice at a time, nor for an entry before the last one.
type serial struct {
	busy atomic.Bool
	last outcome.Position
	n    atomic.Int64
}

func (s *serial) Apply(entries []statemachine.Entry) error {
	if !s.busy.CompareAndSwap(false, true) {
		return errors.New("called while it was called")
	}
	defer s.busy.Store(false)
	for _, e := range entries {
		if at := e.Position(); at.Compare(s.last) <= 0 {
			return fmt.Errorf("command %v after %v", at, s.last)
		}
		s.last = e.Position()
		runtime.Gosched()
	}
	s.n.Add(int64(len(entries)))
	return nil
}

// A group is on one apply lane at a time, with more lanes and groups than processors.
func TestOneLaneAtATime(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const groups, clients, commands = 12, 4, 50
	h, other := openSolo(t, nil)
	defer other.Close()
	machines := map[uint64]*serial{}
	for id := uint64(1); id <= groups; id++ {
		machines[id] = &serial{}
		openLeader(t, h, id, machines[id])
	}
	var all sync.WaitGroup
	for id := uint64(1); id <= groups; id++ {
		for range clients {
			all.Go(func() {
				for range commands {
					if _, err := h.Group(id).Propose(deadline(t), []byte("x")); err != nil {
						t.Errorf("group %d: %v", id, err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	for id, m := range machines {
		if !becomes(t, func() bool { return m.n.Load() == clients*commands || h.Group(id).Err() != nil }) || h.Group(id).Err() != nil {
			t.Errorf("group %d has applied %d of %d commands, and stopped with %v", id, m.n.Load(), clients*commands, h.Group(id).Err())
		}
	}
	if err := h.Close(deadline(t)); err != nil {
		t.Error(err)
	}
}
