package host

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A program learns of changes of role, of a full disk, of entries that are forgotten then, and of the end of
// a group, in this order.
func TestEvents(t *testing.T) {
	var events []string
	l := openTestHost(t, 3, WithEvents(func(e event.Event) {
		switch e := e.(type) {
		case event.RoleChanged:
			events = append(events, fmt.Sprintf("term %d: %v, leader %d, because %s", e.Term, e.Role, e.Leader, e.Cause))
		case event.DiskFull:
			events = append(events, "disk full")
		case event.RefusedForgotten:
			events = append(events, fmt.Sprintf("forgotten behind %d", e.LastIndex))
		case event.GroupStopped:
			events = append(events, fmt.Sprintf("stopped: %t", errors.Is(e.Err, errBroken)))
		}
	}))
	defer l.Close(t.Context())
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: span(1, 3, 1), Commit: 2})
	l.disk.SetHook(noNewSegments)
	long := span(3, 4, 1)
	long[0].Data = make([]byte, 100<<10)
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Index: 2, LogTerm: 1, Entries: long, Commit: 3})
	for range l.group.writes.discarding.forgetAfterTicks + 1 {
		l.manual.tick()
	}
	l.disk.SetHook(crashfs.FailNth(crashfs.OpSync, 1, errBroken))
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Index: 2, LogTerm: 1, Entries: span(3, 4, 1), Commit: 3})
	want := []string{"term 1: follower, leader 2, because a leader was heard", "disk full", "forgotten behind 2",
		"term 1: follower, leader 0, because it follows its leader no more", "term 1: follower, leader 2, because a leader was heard", "stopped: true"}
	if !slices.Equal(events, want) {
		t.Errorf("events\n%q, want\n%q", events, want)
	}
}

var errBroken = errors.New("the disk is broken")

// A role says why it has changed: a life of one member from its first election to a later term.
func TestCausesOfRoles(t *testing.T) {
	var causes []event.RoleCause
	l := openTestHost(t, 3, WithEvents(func(e event.Event) {
		if e, ok := e.(event.RoleChanged); ok {
			causes = append(causes, e.Cause)
		}
	}))
	expect := func(what string, want ...event.RoleCause) {
		t.Helper()
		if l.manual.runIdle(); !slices.Equal(causes, want) {
			t.Fatalf("%s: the causes are %q, want %q", what, causes, want)
		}
		causes = nil
	}
	causes = nil
	for l.group.Status().Role == event.RoleFollower {
		l.manual.tick()
	}
	expect("silence", event.CauseTimeout)
	l.deliver(raftpb.Message{Type: raftpb.MsgPreVoteResp, Term: 1})
	expect("pre-vote", event.CausePreVote)
	l.deliver(raftpb.Message{Type: raftpb.MsgVoteResp, Term: 1})
	expect("votes", event.CauseElected)
	for l.group.Status().Role == event.RoleLeader {
		l.manual.tick()
	}
	expect("silence around the leader", event.CauseNoQuorum)
	l.group.Campaign()
	expect("told by the program", event.CauseTold)
	l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 7})
	expect("another leads", event.CauseLeaderHeard)
	l.deliver(raftpb.Message{Type: raftpb.MsgTimeoutNow, Term: 7})
	expect("told by the leader", event.CauseTold)
	l.deliver(raftpb.Message{Type: raftpb.MsgVoteResp, Term: 9, Reject: true})
	expect("another is ahead", event.CauseLaterTerm)
}

// A leader reports a follower that acknowledges nothing, once, and again after it has caught up.
func TestSlowMemberIsReported(t *testing.T) {
	var slow []event.MemberSlow
	p := openPulseHost(t, 3, func(*Config) {}, WithEvents(func(e event.Event) {
		if e, ok := e.(event.MemberSlow); ok {
			slow = append(slow, e)
		}
	}))
	p.leadInTerm1()
	write := func(index uint64) {
		p.submit("a command")
		p.manual.runIdle()
		p.from(2, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: index})
	}
	pass := func() {
		for range 4 * p.config.electionTicks() {
			p.manual.tick()
			p.answerFor(2)
			p.answerFor(3)
			for _, m := range p.out.take(raftpb.MsgHeartbeat) {
				p.from(m.To, raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1})
			}
		}
	}
	pass()
	if len(slow) > 0 {
		t.Fatalf("members that have everything are reported: %+v", slow)
	}
	write(begun + 1)
	pass()
	if len(slow) != 1 || slow[0].Member != 3 || slow[0].Behind != 1 || slow[0].For <= 0 {
		t.Fatalf("reported: %+v, want member 3, 1 entry behind, once", slow)
	}
	p.from(3, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 1})
	pass()
	write(begun + 2)
	pass()
	if len(slow) != 2 {
		t.Errorf("reported: %+v, want member 3 again", slow)
	}
}
