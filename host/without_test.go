package host

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"pgregory.net/rapid"
)

// controlTransport is a recordingTransport that also records control bodies.
type controlTransport struct {
	*recordingTransport
	bodies []controlBody
}

type controlBody struct {
	to   uint64
	body []byte
}

func (c *controlTransport) SendBytes(to uint64, kind transport.Kind, body []byte) bool {
	if kind == transport.Control {
		c.bodies = append(c.bodies, controlBody{to, slices.Clone(body)})
	}
	return true
}

// told returns the hosts that were sent a body, since the last call, in ascending order.
func (c *controlTransport) told(body []byte) (ids []uint64) {
	for _, b := range c.bodies {
		if slices.Equal(b.body, body) && !slices.Contains(ids, b.to) {
			ids = append(ids, b.to)
		}
	}
	c.bodies = nil
	slices.Sort(ids)
	return ids
}

// openAlone opens host 1 of a number of hosts, which has met none of the others.
func openAlone(t *testing.T, n int, options ...Option) (*testHost, *controlTransport) {
	t.Helper()
	c := &controlTransport{recordingTransport: &recordingTransport{}}
	l := openTestHost(t, n, append(options, WithTransport(c))...)
	l.out = c.recordingTransport
	l.reopen()
	for _, p := range l.meetings.all() {
		p.met.Store(false)
	}
	l.out.take(0)
	c.bodies = nil
	return l, c
}

// reopen closes the group and opens it again.
func (l *testHost) reopen() {
	l.t.Helper()
	l.reopenAs(GroupConfig{ID: theGroup, MaxCommandBytes: 1 << 10})
	l.manual.runIdle()
}

// reopenAs closes the group and opens it again with another configuration. Its first turn has not run.
func (l *testHost) reopenAs(c GroupConfig) {
	l.t.Helper()
	if err := l.group.Close(over()); err != nil && !errors.Is(err, context.Canceled) {
		l.t.Fatal(err)
	}
	l.manual.runIdle()
	g, err := l.OpenGroup(l.t.Context(), c, l.machine)
	if err != nil {
		l.t.Fatal(err)
	}
	l.group = g
}

// bindingWithout is bindingOf for all hosts, with some left out.
func (l *testHost) bindingWithout(leaves ...uint64) (b binding) {
	for _, id := range sortedIDs(l.config.Members) {
		i := incarnationOf(id)
		switch {
		case slices.Contains(leaves, id):
			i = transport.Incarnation{}
		case id == l.self():
			i = l.incarnation()
		}
		b = append(b, boundMember{id, i})
	}
	return b
}

func foundedAt(index, term uint64) raftpb.Entry {
	return raftpb.Entry{Index: index, Term: term, Type: raftpb.EntryHost, Data: encodeFounded()}
}

func (g *Group) votersInForce() []uint64 { return g.node.Status().Config.ConfState().Voters }

// control passes a control body of a host.
func (l *testHost) control(from uint64, body []byte) {
	(*inbound)(l.Host).Deliver(from, transport.Control, body)
	l.manual.runIdle()
}

// FoundWithout says why it refuses, and then nothing has changed.
func TestFoundWithoutRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		before func(l *testHost)
		leaves []uint64
		words  []string
	}{
		"none":       {nil, nil, []string{"if none is named"}},
		"unknown":    {nil, []uint64{4, 9}, []string{"host 9 is not one of its members, [1 2 3 4 5]"}},
		"itself":     {nil, []uint64{1}, []string{"it would be left out itself"}},
		"a majority": {nil, []uint64{5, 3, 4, 5}, []string{"without [3 4 5]", "2 of its members [1 2 3 4 5] would be kept, want a majority, 3"}},
		"there":      {func(l *testHost) { meet(t, l.Host, 4) }, []uint64{4, 5}, []string{"host 4 is there"}},
		"refused":    {func(l *testHost) { (*inbound)(l.Host).RefusedBy(4, "the sentence") }, []uint64{4, 5}, []string{"host 4 refuses the directory of host 1", "may be founded already", "the sentence"}},
		"other call": {func(l *testHost) {
			if err := l.group.FoundWithout(4); err != nil {
				t.Fatal(err)
			}
		}, []uint64{5}, []string{"an earlier call leaves out [4]"}},
		"other entry": {func(l *testHost) {
			l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingWithout(5))}})
		}, []uint64{4}, []string{"its founding entry leaves out [5]"}},
		"founded": {func(l *testHost) {
			l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingWithout(5)), foundedAt(3, 1)}})
		}, []uint64{4}, []string{"it is founded"}},
		"stopped": {func(l *testHost) { l.group.fail(errors.New("the reason")) }, []uint64{4}, []string{"the reason"}},
	} {
		l, _ := openAlone(t, 5)
		if row.before != nil {
			row.before(l)
		}
		was := l.group.leaves.Load()
		if err := l.group.FoundWithout(row.leaves...); err == nil || !containsEach(err.Error(), row.words) {
			t.Errorf("%s: %v", name, err)
		}
		if l.group.leaves.Load() != was {
			t.Errorf("%s: it was refused and is in force", name)
		}
	}
}

func containsEach(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// A host that was heard long ago may be left out: it may have died since.
func TestLeaveOutOneThatHasDied(t *testing.T) {
	l, _ := openAlone(t, 3)
	meet(t, l.Host, 3)
	for range l.config.electionTicks() {
		l.manual.tick()
	}
	if err := l.group.FoundWithout(3); err == nil || !strings.Contains(err.Error(), "host 3 is there") {
		t.Errorf("heard an election timeout ago: %v", err)
	}
	l.manual.tick()
	if err := l.group.FoundWithout(3); err != nil {
		t.Errorf("heard longer ago: %v", err)
	}
}

// The group of three of which host 3 never comes: host 1 is told, tells host 2, and the two found the group.
// Then host 3 comes, and is told that it is left out; it is not heard, and not counted. Host 1 starts again
// and knows it from its log.
func TestFoundWithoutOne(t *testing.T) {
	l, c := openAlone(t, 3)
	meet(t, l.Host, 2)
	l.from(2, raftpb.Message{Type: raftpb.MsgVote, Term: 1})
	if s := l.group.Status(); s.Term != 0 {
		t.Fatalf("host 3 was not met, and this host votes: %+v", s)
	}
	if err := l.group.FoundWithout(3); err != nil {
		t.Fatal(err)
	}
	l.manual.runIdle()
	says := without{theGroup, []uint64{3}}.encode()
	if to := c.told(says); !slices.Equal(to, []uint64{2}) {
		t.Errorf("hosts %v were told, want 2", to)
	}
	if f := l.group.Founding(); f.Found || !slices.Equal(f.LeftOut, []uint64{3}) || len(f.Unmet) > 0 {
		t.Errorf("the founding is %+v", f)
	}
	for range ticksPerHeartbeat {
		l.manual.tick()
	}
	if to := c.told(says); !slices.Equal(to, []uint64{2}) {
		t.Errorf("a heartbeat interval later hosts %v were told, want 2", to)
	}
	l.from(2, raftpb.Message{Type: raftpb.MsgPreVoteResp, Term: 1}) // host 1 has the lowest id and campaigns at once
	l.from(2, raftpb.Message{Type: raftpb.MsgVoteResp, Term: 1})
	if s := l.group.Status(); s.Role != raft.StateLeader || s.LastIndex != 2 {
		t.Fatalf("the host does not lead, or has not proposed found: %+v", s)
	}
	l.from(3, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: 2})
	if s := l.group.Status(); s.Committed > 0 {
		t.Fatalf("the host that is left out was counted: %+v", s)
	}
	l.from(2, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: 2})
	l.from(2, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun})
	p := l.submit("x")
	l.manual.runIdle()
	l.from(2, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 1})
	if r, err := poll(t, p); err != nil || r.Index != begun+1 {
		t.Fatalf("founded, and the command was told %v, %v", r, err)
	}
	for _, again := range []bool{false, true} {
		if again {
			l.reopen()
		}
		if f, v := l.group.Founding(), l.group.votersInForce(); !f.Founded || !slices.Equal(f.LeftOut, []uint64{3}) || !slices.Equal(v, []uint64{1, 2}) || len(f.Refused) > 0 {
			t.Errorf("opened again: %v; the founding is %+v, the voters are %v", again, f, v)
		}
	}
	for range ticksPerHeartbeat {
		l.manual.tick()
	}
	if to := c.told(says); len(to) > 0 {
		t.Errorf("the group is founded, and hosts %v are told again", to)
	}
	if n := l.meetings.leaving.Load(); n != 0 {
		t.Errorf("%d groups wait for members to be left out", n)
	}
	meet(t, l.Host, 3)
	term := l.group.Status().Term
	l.from(2, raftpb.Message{Type: raftpb.MsgHeartbeat, Term: term, Commit: begun + 1}) // so that founded is known to be committed
	l.from(3, raftpb.Message{Type: raftpb.MsgVote, Term: 9, Index: 9, LogTerm: 9})
	if s := l.group.Status(); s.Term != term || len(l.out.take(raftpb.MsgVoteResp)) > 0 {
		t.Errorf("a member that is left out is heard: %+v", s)
	}
	if to := c.told(encodeLeftOut(theGroup)); !slices.Equal(to, []uint64{3}) {
		t.Errorf("hosts %v were told that they are left out", to)
	}
}

// With five members and three that are kept, the kept member that has found, and not founded, gets the votes
// of the two that are left out, and does not lead: the other two may have committed by their own quorum.
func TestVotesOfThoseLeftOutDoNotCount(t *testing.T) {
	l, _ := openAlone(t, 5)
	for id := uint64(2); id <= 5; id++ {
		meet(t, l.Host, id)
	}
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingWithout(4, 5))}})
	if v := l.group.votersInForce(); !slices.Equal(v, []uint64{1, 2, 3, 4, 5}) {
		t.Errorf("founded is not in the log, and the voters are %v", v)
	}
	l.group.Campaign()
	l.manual.runIdle()
	for _, id := range []uint64{4, 5} {
		l.from(id, raftpb.Message{Type: raftpb.MsgPreVoteResp, Term: 2})
		l.from(id, raftpb.Message{Type: raftpb.MsgVoteResp, Term: 2})
	}
	if s := l.group.Status(); s.Term != 1 || s.Role == raft.StateLeader {
		t.Fatalf("elected by members that are left out: %+v", s)
	}
	for _, id := range []uint64{2, 3} {
		l.from(id, raftpb.Message{Type: raftpb.MsgPreVoteResp, Term: 2})
	}
	l.from(2, raftpb.Message{Type: raftpb.MsgVoteResp, Term: 2})
	if s := l.group.Status(); s.Term != 2 || s.Role == raft.StateLeader {
		t.Fatalf("two of five are no quorum before founded is in the log: %+v", s)
	}
	l.from(3, raftpb.Message{Type: raftpb.MsgVoteResp, Term: 2})
	if s := l.group.Status(); s.Role != raft.StateLeader {
		t.Fatalf("elected by all kept members, and does not lead: %+v", s)
	}
	// found is committed by all three. founded is proposed then, and the quorum is two.
	l.from(2, raftpb.Message{Type: raftpb.MsgAppResp, Term: 2, Index: 3})
	if s := l.group.Status(); s.Committed != 0 || s.LastIndex != 3 {
		t.Fatalf("two of five are no quorum: %+v", s)
	}
	l.from(3, raftpb.Message{Type: raftpb.MsgAppResp, Term: 2, Index: 3})
	if s, v := l.group.Status(), l.group.votersInForce(); s.LastIndex != 4 || !slices.Equal(v, []uint64{1, 2, 3}) {
		t.Fatalf("found is on all kept members: %+v, voters %v", s, v)
	}
	l.from(2, raftpb.Message{Type: raftpb.MsgAppResp, Term: 2, Index: 4})
	if s := l.group.Status(); s.Committed != 4 || !l.group.Founding().Founded {
		t.Fatalf("two of three are a quorum: %+v", s)
	}
}

// The founding entry binds all, and then host 3 dies before it has it on its disk. FoundWithout makes the
// leader propose a second one.
func TestFoundWithoutAfterAllWereBound(t *testing.T) {
	l, _ := openAlone(t, 3)
	l.electInUnfounded()
	l.from(2, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: 2})
	if f := l.group.Founding(); !f.Found || f.Founded || !slices.Equal(f.Missing, []uint64{3}) {
		t.Fatalf("the founding is %+v", f)
	}
	for range l.config.electionTicks() + 1 {
		l.from(2, raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1})
		l.manual.tick()
	}
	if err := l.group.FoundWithout(3); err != nil {
		t.Fatal(err)
	}
	l.manual.runIdle()
	if s, f := l.group.Status(), l.group.Founding(); s.LastIndex != 3 || !slices.Equal(f.LeftOut, []uint64{3}) || !slices.Equal(f.Missing, []uint64{1, 2}) && !slices.Equal(f.Missing, []uint64{2}) {
		t.Fatalf("%+v, the founding is %+v", s, f)
	}
	l.from(2, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: 3})
	l.from(2, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: 4})
	if f, v := l.group.Founding(), l.group.votersInForce(); !f.Founded || !slices.Equal(v, []uint64{1, 2}) {
		t.Errorf("the founding is %+v, the voters are %v", f, v)
	}
}

// Who may say that members are left out: a member that is kept. What it says is checked like a call.
func TestToldToLeaveOut(t *testing.T) {
	for name, row := range map[string]struct {
		from   uint64
		leaves []uint64
		taken  bool
	}{
		"kept":        {2, []uint64{4, 5}, true},
		"left out":    {4, []uint64{4, 5}, false},
		"this host":   {2, []uint64{1, 5}, false},
		"too many":    {2, []uint64{3, 4, 5}, false},
		"no member":   {2, []uint64{6}, false},
		"of a guest":  {6, []uint64{4}, false},
		"of this one": {1, []uint64{4}, false},
	} {
		l, _ := openAlone(t, 5)
		strays := l.strays.Load()
		l.control(row.from, without{theGroup, row.leaves}.encode())
		if taken := l.group.leaves.Load() != nil; taken != row.taken {
			t.Errorf("%s: taken %v, want %v", name, taken, row.taken)
		}
		if counted := l.strays.Load() > strays; counted == row.taken {
			t.Errorf("%s: it is counted as refused: %v", name, counted)
		}
		for _, id := range []uint64{2, 3} {
			meet(t, l.Host, id)
		}
		l.from(2, raftpb.Message{Type: raftpb.MsgVote, Term: 7})
		if votes := len(l.out.take(raftpb.MsgVoteResp)) > 0; votes != row.taken {
			t.Errorf("%s: hosts 4 and 5 were not met; the host votes: %v", name, votes)
		}
	}
}

// A member that hears one that another host leaves out does not take that over. If it comes later, it stays
// left out.
func TestToldToLeaveOutOneThatIsThere(t *testing.T) {
	l, _ := openAlone(t, 3)
	says := without{theGroup, []uint64{3}}.encode()
	meet(t, l.Host, 3)
	l.control(2, says)
	if l.group.leaves.Load() != nil {
		t.Error("host 3 is there, and is left out")
	}
	for range l.config.electionTicks() + 1 {
		l.manual.tick()
	}
	l.control(2, says)
	strays := l.strays.Load()
	meet(t, l.Host, 3)
	l.control(2, says)
	if l.group.leaves.Load() == nil || l.strays.Load() > strays {
		t.Error("host 3 has come after it was left out, and that was forgotten or refused")
	}
}

// A member that is told that it is left out stops with that sentence. Only a member can tell it, and not if
// its own log says that the group is founded and keeps it. It stops, too, before it takes the entry that
// leaves it out.
func TestMemberThatIsLeftOutStops(t *testing.T) {
	words := "group 1 was founded without host 1"
	l, _ := openAlone(t, 3)
	l.control(4, encodeLeftOut(theGroup))
	l.control(1, encodeLeftOut(theGroup))
	if err := l.group.Err(); err != nil {
		t.Fatalf("told by a host that is no member: %v", err)
	}
	l.control(2, encodeLeftOut(theGroup))
	if err := l.group.Err(); err == nil || !containsEach(err.Error(), []string{words, "host 2 says so", "AddMember"}) {
		t.Errorf("it has stopped with %v", err)
	}

	l, _ = openAlone(t, 3)
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingWithout(3)), foundedAt(3, 1)}})
	l.control(2, encodeLeftOut(theGroup))
	if err := l.group.Err(); err != nil {
		t.Errorf("its own log says that it is kept: %v", err)
	}

	l, _ = openAlone(t, 3)
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingWithout(1))}})
	if err := l.group.Err(); err == nil || !strings.Contains(err.Error(), words) || l.log.Group(theGroup).LastIndex() > 0 {
		t.Errorf("it has stopped with %v, its log ends at %d", err, l.log.Group(theGroup).LastIndex())
	}
}

// A founder that was down when its directory was removed may not know that the group is founded: its log ends
// with the entry found. It stops nevertheless when two others say so, but not for another directory, not
// before it is bound, and not while it hears a leader.
func TestRemovalOfAFounderThatKnowsOfNoRoster(t *testing.T) {
	l, _ := openAlone(t, 3)
	tell := func(i transport.Incarnation) {
		for _, id := range []uint64{2, 3} {
			l.control(id, removal{theGroup, 9, i}.encode())
		}
	}
	wait := func() {
		for range 2*l.config.electionTicks() + 2 {
			l.manual.tick()
		}
	}
	wait()
	tell(l.incarnation())
	if err := l.group.Err(); err != nil {
		t.Fatalf("it is not bound yet, and has stopped with %v", err)
	}
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingOf(0))}})
	tell(l.incarnation())
	if err := l.group.Err(); err != nil {
		t.Fatalf("it hears a leader, and has stopped with %v", err)
	}
	wait()
	tell(transport.Incarnation{9})
	if err := l.group.Err(); err != nil {
		t.Fatalf("another directory was removed, and it has stopped with %v", err)
	}
	tell(l.incarnation())
	if err := l.group.Err(); !errors.Is(err, ErrMemberRemoved) {
		t.Errorf("its directory was removed, and it has stopped with %v", err)
	}
}

// Only a member knows to which directory a group is bound.
func TestRefusalOfANonMember(t *testing.T) {
	l := openTestHost(t, 3)
	wrong := refusal{theGroup, transport.Incarnation{9}}.encode()
	for _, id := range []uint64{1, 4} {
		l.control(id, wrong)
		if err := l.group.Err(); err != nil {
			t.Fatalf("host %d has stopped a group of hosts 1, 2 and 3: %v", id, err)
		}
	}
	l.control(2, wrong)
	if err := l.group.Err(); err == nil || !strings.Contains(err.Error(), "host 2 says so") {
		t.Errorf("a member says it, and the group has stopped with %v", err)
	}
}

// An append of an earlier term is refused by the core, so a binding in it stops nothing: also if the later
// term comes in the same turn.
func TestBindingOfAnEarlierTermStopsNothing(t *testing.T) {
	stale := func(l *testHost) raftpb.Message {
		return raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingOf(1))}}
	}
	for name, deliver := range map[string]func(l *testHost){
		"later turn": func(l *testHost) {
			l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 3})
			l.deliver(stale(l))
		},
		"same turn": func(l *testHost) { l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 3}, stale(l)) },
	} {
		l := openTestHost(t, 3)
		deliver(l)
		if err := l.group.Err(); err != nil {
			t.Errorf("%s: the group has stopped: %v", name, err)
		}
		if s := l.group.Status(); s.Term != 3 || s.LastIndex != 0 {
			t.Errorf("%s: %+v", name, s)
		}
		if answers := l.out.take(raftpb.MsgAppResp); len(answers) != 1 || answers[0].Term != 3 {
			t.Errorf("%s: the answers are %v", name, answers)
		}
	}
}

// The quorums of without.go, counted one by one: with up to 7 members, each way to keep a majority of them,
// each old quorum of kept members has a member in common with each new quorum.
func TestOldAndNewQuorumsMeet(t *testing.T) {
	pairs := 0
	for n := 1; n <= 7; n++ {
		for kept := range uint(1 << n) {
			if !isMajority(bits.OnesCount(kept), n) {
				continue
			}
			for old := range uint(1 << n) {
				if old&^kept != 0 || 2*bits.OnesCount(old) <= n {
					continue
				}
				for now := range uint(1 << n) {
					if now&^kept != 0 || 2*bits.OnesCount(now) <= bits.OnesCount(kept) {
						continue
					}
					if pairs++; old&now == 0 {
						t.Fatalf("of %d members %b are kept; %b and %b do not meet", n, kept, old, now)
					}
				}
			}
		}
	}
	t.Logf("%d pairs", pairs)
}

// The voters follow from the log alone: any log of founding entries, read at a start, gives the voters that a
// member has which was given the entries one by one. The naive rule: all members, or the kept ones if founded
// comes behind found. No leader proposes found behind founded (advanceFounding).
func TestVotersFollowFromTheLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l, _ := openAlone(t, 5, WithPipeline(rapid.SampledFrom(pipeline.All).Draw(rt, "pipeline")))
		l.reopenAs(GroupConfig{ID: theGroup, Volatile: rapid.Bool().Draw(rt, "volatile")})
		all := []uint64{1, 2, 3, 4, 5}
		entries := []raftpb.Entry{{Index: 1, Term: 1}}
		want, kept, found, founded := all, all, false, false
		for _, kind := range rapid.SliceOfN(rapid.IntRange(0, 2), 0, 5).Draw(rt, "entries") {
			at, term := uint64(len(entries)+1), uint64(1)
			switch {
			case kind == 0 && !founded && len(kept) == 5:
				out := rapid.SampledFrom([][]uint64{{5}, {2}, {4, 5}, {2, 3}, {}}).Draw(rt, "left out")
				found = true
				kept = slices.DeleteFunc(slices.Clone(all), func(id uint64) bool { return slices.Contains(out, id) })
				entries = append(entries, foundAt(at, term, l.bindingWithout(out...)))
			case kind == 1 && found:
				entries, want, founded = append(entries, foundedAt(at, term)), kept, true
			default:
				entries = append(entries, raftpb.Entry{Index: at, Term: term})
			}
		}
		from := uint64(2)
		if !slices.Contains(kept, 2) {
			from = 4
		}
		cut := rapid.IntRange(1, len(entries)).Draw(rt, "first message")
		commit := uint64(rapid.IntRange(0, len(entries)).Draw(rt, "committed"))
		l.from(from, raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: entries[:cut], Commit: commit})
		l.from(from, raftpb.Message{Type: raftpb.MsgApp, Term: 1, Index: uint64(cut), LogTerm: 1, Entries: entries[cut:], Commit: commit})
		if err := l.group.Err(); err != nil || l.group.Status().LastIndex != uint64(len(entries)) {
			rt.Fatalf("the log has %+v, the group has stopped with %v", l.group.Status(), err)
		}
		if v := l.group.votersInForce(); !slices.Equal(v, want) {
			rt.Fatalf("the voters are %v, want %v", v, want)
		}
		l.reopenAs(GroupConfig{ID: theGroup})
		if v := l.group.votersInForce(); !slices.Equal(v, want) {
			rt.Fatalf("opened again, the voters are %v, want %v", v, want)
		}
	})
}

// hastyTransport delivers a pulse before Start returns, as a real one may.
type hastyTransport struct{ *recordingTransport }

func (h hastyTransport) Start(r transport.Receiver) {
	r.Deliver(2, transport.Pulse, (&pulseRecord{life: 1, version: 1, pulses: true}).append(nil))
	r.Receive(2, nil)
}

// What arrives while a host opens finds its clock.
func TestPulseBeforeTheFirstTick(t *testing.T) {
	l := openTestHost(t, 3, WithTransport(hastyTransport{&recordingTransport{}}))
	if !l.isThere(2) {
		t.Error("host 2 was heard, and is not there")
	}
}

// A group that is not founded stops when a majority of its members refuse this host's directory, and not
// before. A host that delivers something does not refuse any more. The log's binding is above refusals.
func TestGroupStopsWhenAMajorityRefuse(t *testing.T) {
	refuse := func(l *testHost, ids ...uint64) {
		for _, id := range ids {
			(*inbound)(l.Host).RefusedBy(id, "the sentence")
		}
	}
	l, _ := openAlone(t, 5)
	refuse(l, 2, 2, 3, 9, 1)
	(*inbound)(l.Host).Receive(3, nil)
	refuse(l, 4)
	if err := l.group.Err(); err != nil {
		t.Fatalf("two of five refuse: %v", err)
	}
	refuse(l, 5)
	if err := l.group.Err(); err == nil || !containsEach(err.Error(), []string{"hosts [2 4 5], a majority of its members", "host 5 says: the sentence"}) {
		t.Errorf("three of five refuse, and the group has stopped with %v", err)
	}
	if g := l.open(7, &commands{}); g.Err() == nil {
		t.Error("a group that is opened later goes on")
	}

	l, _ = openAlone(t, 3)
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingOf(0))}})
	refuse(l, 2, 3)
	if err := l.group.Err(); err != nil {
		t.Errorf("its log binds it to this directory: %v", err)
	}
}

// No control record stops a group that is founded, or moves more than what it is for.
func FuzzControl(f *testing.F) {
	f.Add([]byte{greetingKind, greetsAsk | greetsAll}, uint8(2))
	f.Add(refusal{theGroup, transport.Incarnation{1}}.encode(), uint8(2))
	f.Add(without{theGroup, []uint64{3}}.encode(), uint8(2))
	f.Add(encodeLeftOut(theGroup), uint8(3))
	f.Add(appliedRecord{group: theGroup, term: 1, number: 7}.encode(appliedQuestionKind), uint8(2))
	f.Add(appliedRecord{group: theGroup, term: 1, number: 7, applied: 1 << 60}.encode(appliedAnswerKind), uint8(3))
	f.Add([]byte{}, uint8(2))
	f.Add(encodePlanRequest(theGroup, planRequest{data: make([]byte, 17)}), uint8(2))
	f.Add(planAnswer{theGroup, [16]byte{1}, "no"}.encode(), uint8(2))
	f.Add([]byte{rosterQuestionKind, theGroup, 0}, uint8(3))
	f.Add(append([]byte{rosterAnswerKind, theGroup}, rosterOf(1<<63, 1, 2, 3).Encode()...), uint8(3))
	f.Add(removal{theGroup, 1 << 63, transport.Incarnation{1}}.encode(), uint8(2))
	f.Add([]byte{withoutKind, theGroup, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, uint8(2))
	f.Fuzz(func(t *testing.T, body []byte, from uint8) {
		l := openTestHost(t, 3)
		l.lead()
		before := l.group.Status()
		for range 3 {
			(*inbound)(l.Host).Deliver(uint64(from), transport.Control, body)
			l.manual.tick()
		}
		now := l.group.Status()
		if l.group.Err() != nil || now.Term != before.Term || now.Role != before.Role || now.LastIndex != before.LastIndex || !slices.Equal(l.group.voters(), []uint64{1, 2, 3}) {
			t.Fatalf("a control record of host %d has changed %+v to %+v (%v)", from, before, now, l.group.Err())
		}
	})
}
