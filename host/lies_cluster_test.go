package host

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// besieged is a group of three of which one member lies: hosts 1 and 2 are honest, and a quorum; what is said
// as host 3 is the test's. Time is the test's, too.
type besieged struct {
	*installCluster
	rng *rand.Rand
}

const theLiar = 3

var (
	// every says of how many harmless ones one is told: with 1 that takes 22 s.
	every    = flag.Int("lies-every", 8, "tell one harmless lie of this number")
	liesSeed = flag.Uint64("lies-seed", rand.Uint64(), "draw the lies that are told with this seed")
)

func newBesieged(t *testing.T, seed uint64, change func(*Config)) *besieged {
	c := newInstallCluster(t, seed)
	c.change1 = change
	b := &besieged{installCluster: c.start(), rng: rand.New(rand.NewPCG(seed, 14))}
	b.isolate(theLiar)
	b.commitMore("the honest ones elect a leader")
	return b
}

func (b *besieged) honest() []*installHost { return b.hosts[:2] }

// commitMore lets time pass until the honest hosts have committed something new.
func (b *besieged) commitMore(what string) {
	b.t.Helper()
	from := b.committed()
	b.load(what, 1, func() bool {
		l := b.leader()
		return l != nil && l.id != theLiar && b.committed() > from && l.group.Status().Committed == l.group.Status().LastIndex
	})
}

// committed returns what both honest hosts know to be committed.
func (b *besieged) committed() uint64 {
	return min(b.hosts[0].group.Status().Committed, b.hosts[1].group.Status().Committed)
}

// view returns what the liar knows when it speaks to a host.
func (b *besieged) view(to *installHost) *view {
	s := to.group.Status()
	v := &view{
		self: theLiar, to: to.id, leader: s.Leader, term: s.Term, last: s.LastIndex, committed: s.Committed, matches: 1,
		toIncarnation: to.process.incarnation(), toLife: to.process.life(), roster: to.group.roster(), mark: session.Mark{ID: session.ID{Client: [16]byte{1}}, Number: 1},
	}
	if v.lastTerm, _ = to.group.core.node.EntryTerm(v.last); v.roster == nil {
		b.t.Fatalf("the group is not founded: %s", b.describe())
	}
	return v
}

// tell delivers a lie as the transport does: it refuses messages that do not name their connection.
func (b *besieged) tell(to *installHost, l *lie) {
	switch {
	case l.m == nil:
		(*to.receiver).Deliver(theLiar, l.kind, slices.Clone(l.body))
	default:
		batch, err := transport.DecodeBody(transport.AppendMessage(nil, theGroup, l.m), nil)
		if err != nil || transport.Foreign(&batch[0].Message, theLiar, to.id) {
			return
		}
		transport.Detach(batch)
		(*to.receiver).Receive(theLiar, batch)
	}
	to.manual.runIdle()
}

// stands checks that the honest hosts are alive, and returns leader and term.
func (b *besieged) stands(after string) (leader, term uint64) {
	b.t.Helper()
	for _, h := range b.honest() {
		if err := h.group.Err(); err != nil {
			b.t.Fatalf("after the lie %q host %d has stopped: %v", after, h.id, err)
		}
		if m := h.process.Memory(); m.Waiting.Used+m.Received.Used > 1<<20 { // an acknowledgement may wait for the next tick
			b.t.Fatalf("after the lie %q host %d holds %+v", after, h.id, m)
		}
	}
	s := b.hosts[0].group.Status()
	return s.Leader, s.Term
}

// tellAll tells the lies that may do a harm, one by one, to each honest member, and calls after for each.
func (b *besieged) tellAll(h harm, which func(*lie) bool, after func(*installHost, *lie)) (told int) {
	b.t.Helper()
	from := b.rng.IntN(*every)
	for i, make := range lies(b.rng) {
		if i%*every != from && h == harmless {
			continue
		}
		for _, to := range b.honest() {
			if to.group.Err() != nil {
				continue
			}
			l := make(b.view(to))
			if l.harm != h || which != nil && !which(&l) {
				continue
			}
			told++
			b.tell(to, &l)
			b.call(1)
			b.tick()
			after(to, &l)
		}
	}
	return told
}

// Each lie that Raft can resist is told to each honest member, in turn: the leader stays, in its term.
func TestHarmlessLies(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine tells thousands of lies")
	}
	t.Logf("-lies-seed %d", *liesSeed)
	b := newBesieged(t, *liesSeed, nil)
	leader, term := b.stands("none")
	told := b.tellAll(harmless, nil, func(to *installHost, l *lie) {
		if nowLeads, nowTerm := b.stands(l.name); nowLeads != leader || nowTerm != term {
			t.Errorf("the lie %q to host %d changed the leader from %d of term %d to %d of term %d", l.name, to.id, leader, term, nowLeads, nowTerm)
			b.commitMore("after " + l.name)
			leader, term = b.stands(l.name)
		}
	})
	b.commitMore("all of them are told")
	for _, m := range b.hosts[0].group.roster().Members {
		if m.Keys != (membership.Keys{}) {
			t.Errorf("member %d is bound to a key", m.ID)
		}
	}
	t.Logf("told: %d", told)
}

// Lies that unsettle any Raft: when they end, the group commits again in a while, and no host has stopped.
func TestUnsettlingLies(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine tells thousands of lies")
	}
	b := newBesieged(t, 2, nil)
	told := b.tellAll(unsettles, nil, func(_ *installHost, l *lie) {
		b.commitMore("after " + l.name)
		b.stands(l.name)
	})
	t.Logf("told: %d; the term is now %d", told, b.hosts[0].group.Status().Term)
}

// Lies that break what Raft promises stop no process, and take no more memory than there is.
func TestCheatingLies(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine tells thousands of lies")
	}
	told := 0
	for _, kind := range []raftpb.MessageType{raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgAppResp, raftpb.MsgTimeoutNow} {
		b := newBesieged(t, 3, nil)
		told += b.tellAll(cheats, func(l *lie) bool { return l.m.Type == kind }, func(to *installHost, l *lie) {
			if err := to.group.Err(); err != nil {
				t.Logf("the lie %q has stopped host %d: %v", l.name, to.id, err)
			}
			if r := to.process.Memory().Received; r.Used > r.Share {
				t.Errorf("after the lie %q host %d holds %+v", l.name, to.id, r)
			}
		})
	}
	t.Logf("told: %d", told)
}
