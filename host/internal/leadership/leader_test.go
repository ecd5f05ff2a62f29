package leadership

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// leading is a group in which host 1 of three leads, as a test says. It implements Turn.
type leading struct {
	*scripted
	now            int64
	full           bool
	machine        bool // has work, and applies nothing
	question       AppliedRecord
	asked          int
	placementRests bool
	given          []uint64 // to whom the leadership was given; 0: it stepped down
}

var errNotLeader = errors.New("another one leads")

const (
	election = 10
	stall    = 40
	last     = 7
)

func openLeader() (*leading, *Leader) {
	g := &leading{scripted: leader(last, map[uint64]tracker.Progress{1: {Match: last}, 2: {Match: last}, 3: {Match: last}}), now: 1000}
	g.status.Term, g.status.Commit = 3, last
	l := new(Leader)
	l.Open(Settings{Group: 1, Self: 1, Heartbeat: 2, Election: election, Stall: stall, Tick: time.Millisecond}, g)
	return g, l
}

func (g *leading) Core() LeaderCore                   { return g }
func (g *leading) Ticks() int64                       { return g.now }
func (g *leading) Disk() (bool, uint64, bool)         { return false, 0, g.full }
func (g *leading) Machine() (bool, uint64)            { return g.machine, 0 }
func (g *leading) IsHalted() bool                     { return false }
func (g *leading) MachineApplied(uint64) uint64       { return 1 }
func (g *leading) IsThere(uint64) bool                { return false }
func (g *leading) NotLeader(uint64) error             { return errNotLeader }
func (g *leading) Transferred(uint64)                 { g.placementRests = true }
func (g *leading) Lacks(uint64) string                { return "" }
func (g *leading) Refused(error)                      {}
func (g *leading) TransferLeader(to uint64) error     { g.status.LeadTransferee = to; return nil }
func (g *leading) StepDown(int)                       {}
func (g *leading) Step(raftpb.Message) error          { return nil }
func (g *leading) IsQuorum(is func(uint64) bool) bool { return is(2) && is(3) } // without host 1

func (g *leading) Send(_ uint64, body []byte) {
	g.question, _ = DecodeApplied(body)
	g.asked++
}

func (g *leading) GivenUp(_, to uint64, _ string) { g.given = append(g.given, to) }

// pass lets ticks pass, in which host 2 answers what it has applied, and both others acknowledge.
func (g *leading) pass(l *Leader, ticks int, applied uint64) {
	for range ticks {
		g.now++
		g.status.LeadTransferee = raft.None // the target has not taken over
		var answers []AppliedRecord
		if g.asked > 0 {
			a := g.question
			a.From, a.Applied, g.asked = 2, applied, 0
			answers = append(answers, a)
		}
		for _, id := range []uint64{2, 3} {
			l.Acknowledged(&raftpb.Message{Type: raftpb.MsgAppResp, Term: g.status.Term, From: id, Index: last})
		}
		l.Watch(answers)
	}
}

// A leader whose disk is full hands over, and steps down two election timeouts later if it still leads.
func TestAFullDiskGivesUp(t *testing.T) {
	g, l := openLeader()
	g.full = true
	g.pass(l, 4, 0)
	if !slices.Equal(g.given, []uint64{2}) || !l.Rests() || l.SteppedDown(3) {
		t.Errorf("given to %v", g.given)
	}
	g.pass(l, 2*election, 0)
	if !slices.Equal(g.given, []uint64{2, raft.None}) || !l.SteppedDown(3) {
		t.Errorf("given to %v, want host 2 and then none", g.given)
	}
}

// A leader whose machine is stuck asks, and hands over to the member that was ahead at two questions.
func TestAStuckMachineGoesToOneThatIsAhead(t *testing.T) {
	for _, row := range []struct {
		applied uint64
		want    []uint64
	}{{last, []uint64{2}}, {last - 1, nil}} {
		g, l := openLeader()
		g.machine = true
		if g.pass(l, stall/2, row.applied); g.question.Number != 0 {
			t.Error("it asks although its machine may only be slow")
		}
		g.pass(l, stall/2+2*election, row.applied)
		if !slices.Equal(g.given, row.want) {
			t.Errorf("host 2 has applied %d, and it gives its leadership to %v, want %v", row.applied, g.given, row.want)
		}
		if id, is := l.IsAhead(last); is != (row.want != nil) || is && id != 2 {
			t.Errorf("host %d is ahead: %t", id, is)
		}
		if due := l.Due(); !l.WatchesMachine() || due <= g.now || due > g.now+election {
			t.Errorf("it looks again at tick %d, and now is %d", due, g.now)
		}
	}
}

// A leader whose disk is full and whose state machine is stuck gives up once, not twice in one tick: the
// member to which it hands over is needed.
func TestTwoReasonsToGiveUpAreOne(t *testing.T) {
	g, l := openLeader()
	g.machine, l.restsUntil = true, 1<<60
	g.pass(l, 3*stall, last)
	g.full = true
	g.pass(l, 6, last)
	if g.given != nil || l.memberAhead() != 2 {
		t.Fatalf("setup: given to %v, member %d is ahead", g.given, l.memberAhead())
	}
	l.restsUntil = 0
	if g.pass(l, 1, last); len(g.given) != 1 {
		t.Errorf("given to %v, want one hand-over", g.given)
	}
}

// A leader that looks for a member whose disk works does not count a late acknowledgement of an earlier term,
// nor one that refuses.
func TestAcksOfAnEarlierTermDoNotCount(t *testing.T) {
	_, l := openLeader()
	l.Acknowledged(&raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, From: 2, Index: last})
	l.Acknowledged(&raftpb.Message{Type: raftpb.MsgAppResp, Term: 3, From: 2, Index: last, Reject: true})
	if l.acks.Since(2, 0) {
		t.Error("an acknowledgement of term 1, or a refusal, counts in term 3")
	}
	l.Acknowledged(&raftpb.Message{Type: raftpb.MsgAppResp, Term: 3, From: 2, Index: last})
	if !l.acks.Since(2, 0) {
		t.Error("an acknowledgement of this term does not count")
	}
}

// A follower answers its leader of this term, if it could lead.
func TestAFollowerAnswers(t *testing.T) {
	g, l := openLeader()
	g.status.RaftState, g.status.Lead, g.status.Applied = raft.StateFollower, 2, last
	ask := func(from, term uint64, able bool) int {
		g.asked = 0
		l.Answer([]AppliedRecord{{From: from, Group: 1, Term: term, Number: 9}}, able)
		return g.asked
	}
	if ask(2, 3, false) != 0 || ask(3, 3, true) != 0 || ask(2, 2, true) != 0 {
		t.Error("it answers one that does not lead, or although it could not")
	}
	if ask(2, 3, true) != 1 || g.question.Applied != 1 || g.question.Number != 9 || g.question.Encode(control.AppliedAnswer)[0] != control.AppliedAnswer {
		t.Errorf("the answer is %+v", g.question)
	}
}

// A transfer ends well when the target leads. It ends with an error when another member leads, when this
// one leads on or again, when another transfer takes its place, or when no member could lead.
func TestTransfers(t *testing.T) {
	for _, row := range []struct {
		name string
		to   uint64
		then func(*leading, *Leader)
		says string // "": it ends well
	}{
		{"the target leads", 3, func(g *leading, _ *Leader) { g.status.RaftState, g.status.Lead = raft.StateFollower, 3 }, ""},
		{"the best leads", 0, func(g *leading, _ *Leader) { g.status.RaftState, g.status.Lead = raft.StateFollower, 3 }, ""},
		{"another leads", 3, func(g *leading, _ *Leader) { g.status.RaftState, g.status.Lead = raft.StateFollower, 2 }, "is led by host 2 now, in term 3, and not by host 3"},
		{"this one leads on", 3, func(g *leading, _ *Leader) { g.status.LeadTransferee = 0 }, "in 5ms host 3 did not take over; it holds entry 7 of 7"},
		{"this one leads again", 3, func(g *leading, _ *Leader) { g.status.Term++ }, "is led by host 1 again, in term 4: host 3 was not elected"},
		{"another transfer", 3, func(_ *leading, l *Leader) { l.Transfer(NewTransfer(2)) }, "another transfer of the leadership, to host 2, took the place of this one"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g, l := openLeader()
			g.followers[2], g.followers[3] = tracker.Progress{Match: 1, RecentActive: true}, tracker.Progress{Match: last, RecentActive: true}
			x := NewTransfer(row.to)
			if again := l.Transfer(x); !again || g.status.LeadTransferee != 3 || !g.placementRests {
				t.Fatalf("setup: the leadership goes to %d", g.status.LeadTransferee)
			}
			g.now += 5
			if done, _ := x.Outcome(); done || !l.Transfer(nil) {
				t.Error("it has ended before another member leads")
			}
			row.then(g, l)
			l.Transfer(nil)
			if done, err := x.Outcome(); !done || (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Errorf("it has ended: %t, with %v, want %q", done, err, row.says)
			}
		})
	}
	g, l := openLeader()
	x := NewTransfer(0)
	if l.Transfer(x); g.status.LeadTransferee != 0 {
		t.Errorf("the leadership goes to %d, which was not heard", g.status.LeadTransferee)
	}
	if done, err := x.Outcome(); !done || err == nil || !strings.Contains(err.Error(), "no other member was heard lately") {
		t.Errorf("it has ended: %t, with %v", done, err)
	}
	g.status.RaftState = raft.StateFollower
	x = NewTransfer(2)
	l.Transfer(x)
	if _, err := x.Outcome(); !errors.Is(err, errNotLeader) {
		t.Errorf("a follower says %v", err)
	}
}
