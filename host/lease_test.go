package host

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/raft/raftpb"
)

// openLeaseHost is openTestHost with a second group, which has leases.
func openLeaseHost(t *testing.T, voters int) (*testHost, *Group) {
	t.Helper()
	l := openTestHost(t, voters)
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2, Leases: true}, &commands{})
	if err != nil {
		t.Fatal(err)
	}
	l.manual.runIdle()
	return l, g
}

// A member that has answered its leader votes for no other before an election timeout has passed by its
// clock, however late the ticks of its host are, and votes for one before long.
func TestPromisesLast(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 21))
		l, g := openLeaseHost(t, 3)
		for range rng.IntN(3 * ticksPerHeartbeat) {
			l.manual.tick()
		}
		late := time.Duration(rng.Int64N(int64(pick(rng, 1, ticksPerHeartbeat, 40)) * int64(l.manual.period)))
		l.manual.now += late // no beat tells it
		heard := l.manual.now
		l.deliverTo(g.id, raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 3})
		if len(l.out.take(raftpb.MsgHeartbeatResp)) != 1 {
			t.Fatal("the heartbeat is not answered")
		}
		voted := false
		for !voted {
			l.manual.now += time.Duration(rng.Int64N(int64(l.manual.period)))
			if rng.IntN(3) > 0 {
				l.manual.tickLate(rng.IntN(2))
			}
			l.deliverTo(g.id, raftpb.Message{Type: raftpb.MsgVote, Term: 9, Index: 99, LogTerm: 8})
			voted = len(l.out.take(raftpb.MsgVoteResp)) > 0
			switch passed := l.manual.now - heard; {
			case voted && passed < l.config.ElectionTimeout:
				t.Fatalf("seed %d: heard its leader %v late, and votes for another after %v, want at least %v", seed, late, passed, l.config.ElectionTimeout)
			case !voted && passed > 4*l.config.ElectionTimeout+late:
				t.Fatalf("seed %d: heard its leader %v late, and does not vote for another after %v", seed, late, passed)
			}
		}
	}
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// askFor makes a leader ask a quorum, and returns the answer that host 2 gives to its heartbeat.
func (l *testHost) askFor(g *Group, r *Read) raftpb.Message {
	l.t.Helper()
	l.out.take(raftpb.MsgHeartbeat)
	g.StartRead(r, 0)
	return l.answerHeartbeat()
}

// answerHeartbeat returns the answer that host 2 gives to the leader's heartbeat.
func (l *testHost) answerHeartbeat() raftpb.Message {
	l.t.Helper()
	l.manual.runIdle()
	for _, m := range l.out.take(raftpb.MsgHeartbeat) {
		if m.To == 2 {
			return raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: m.Term, Context: m.Context}
		}
	}
	l.t.Fatal("the leader asks no quorum")
	return raftpb.Message{}
}

// A lease is counted from when its round was sent. It ends with the promise less the drift, with the maximal
// age, and with a transfer; an acknowledgement of an append does not renew it.
func TestLeaseIsCountedFromTheQuestion(t *testing.T) {
	l, g := openLeaseHost(t, 3)
	l.leadGroup(g)
	if _, ok := g.Lease(0, 0); ok {
		t.Fatal("a leader that has asked no quorum has a lease")
	}
	timeout := l.config.ElectionTimeout
	var r Read
	answer := l.askFor(g, &r)
	sent := l.manual.now
	l.manual.now += timeout / 4
	if _, done, _ := r.Poll(); done {
		t.Fatal("a read is done, and no other member has answered")
	}
	l.deliverTo(g.id, answer)
	if at, done, err := r.Poll(); !done || err != nil || at.Index != begun {
		t.Fatalf("the read: %+v, %t, %v", at, done, err)
	}
	lease, ok := g.Lease(0, 0.25)
	if !ok || !lease.Holds() {
		t.Fatal("no lease")
	}
	l.manual.now = sent + timeout*3/4 - 1
	if !lease.Holds() {
		t.Error("the lease has ended too early")
	}
	if _, ok := g.Lease(timeout/2, 0.25); ok {
		t.Error("a lease of half a timeout holds longer")
	}
	l.deliverTo(g.id, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun})
	l.manual.now++
	if _, ok := g.Lease(0, 0.25); ok || lease.Holds() {
		t.Error("a lease holds although its round was sent three quarters of a timeout ago, and clocks may drift by one")
	}
	// Lease has asked for another round in the background.
	l.deliverTo(g.id, l.answerHeartbeat())
	if lease, ok = g.Lease(0, 0); !ok || !lease.Holds() {
		t.Fatal("no lease after another round")
	}
	l.HandOver()
	l.manual.runIdle()
	if _, ok := g.Lease(0, 0); ok || lease.Holds() {
		t.Error("a leader that hands over has a lease")
	}
}

// A read that begins while a round is under way waits for the next one.
func TestReadsWaitForTheNextRound(t *testing.T) {
	l, g := openLeaseHost(t, 3)
	l.leadGroup(g)
	var first, second Read
	one := l.askFor(g, &first)
	g.StartRead(&second, 0)
	l.manual.runIdle()
	l.deliverTo(g.id, one)
	if _, done, err := first.Poll(); !done || err != nil {
		t.Fatalf("the first read: %t, %v", done, err)
	}
	if _, done, _ := second.Poll(); done {
		t.Fatal("the second read is done by the round before it began")
	}
	l.deliverTo(g.id, l.answerHeartbeat())
	if _, done, err := second.Poll(); !done || err != nil {
		t.Fatalf("the second read: %t, %v", done, err)
	}
}

// foundWithPromise is an entry found of a group with leases.
func (l *testHost) foundWithPromise(index, term uint64, promise time.Duration) raftpb.Entry {
	e := foundAt(index, term, l.bindingOf(0))
	e.Data[0] |= entry.FoundPromises
	e.Data = binary.LittleEndian.AppendUint64(e.Data, uint64(promise))
	return e
}

// A lease lasts no longer than the promises of the other members. Hosts may have other election timeouts than
// the leader, or get them at their next start, so the length of a promise is bound when the group is founded.
func TestLeaseIsNoLongerThanThePromisesOfOthers(t *testing.T) {
	l := openTestHostWith(t, 3, func(c *Config) { c.ElectionTimeout = 3 * time.Second })
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2, Leases: true}, &commands{})
	if err != nil {
		t.Fatal(err)
	}
	l.manual.runIdle()
	promise := time.Second
	l.deliverTo(2, raftpb.Message{Type: raftpb.MsgApp, Term: 1, Commit: 3, Entries: []raftpb.Entry{
		{Index: 1, Term: 1}, l.foundWithPromise(2, 1, promise), {Index: 3, Term: 1, Type: raftpb.EntryHost, Data: entry.EncodeFounded()}}})
	for range 8 * int(l.config.ElectionTimeout/l.manual.period) {
		if l.manual.tick(); len(l.out.take(raftpb.MsgPreVote)) > 0 {
			break
		}
	}
	for _, m := range []raftpb.Message{{Type: raftpb.MsgPreVoteResp, Term: 2}, {Type: raftpb.MsgVoteResp, Term: 2}, {Type: raftpb.MsgAppResp, Term: 2, Index: 4}} {
		l.deliverTo(2, m)
	}
	if s := g.Status(); s.Leader != 1 || s.Committed != 4 {
		t.Fatalf("the host does not lead: %+v", s)
	}
	var r Read
	answer, sent := l.askFor(g, &r), l.manual.now
	l.deliverTo(2, answer)
	lease, ok := g.Lease(0, 0)
	if !ok {
		t.Fatal("no lease")
	}
	l.manual.now = sent + promise - 1
	if !lease.Holds() {
		t.Error("the lease ends before the promise")
	}
	l.manual.now++
	if _, ok := g.Lease(0, 0); ok || lease.Holds() {
		t.Errorf("members of the group promise %v, the leader's election timeout is %v, and its lease holds after the promise has ended", promise, l.config.ElectionTimeout)
	}
}

// A member whose promises would be too short stops, before it has acknowledged the entry found, and at its
// next start.
func TestShortPromisesAreRefused(t *testing.T) {
	l, g := openLeaseHost(t, 3)
	l.out.take(0)
	found := l.foundWithPromise(2, 1, l.config.ElectionTimeout+1)
	l.deliverTo(2, raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, found}})
	const want = "millrace: group 2 was founded with leases, under which members promise to elect no other leader for 1.000000001s, and Config.ElectionTimeout of host 1 makes it 1s; set it to 1.000000001s or more on every host"
	if err := g.Err(); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if len(l.out.take(raftpb.MsgAppResp)) > 0 {
		t.Error("the entry is acknowledged")
	}
}
