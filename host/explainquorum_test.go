package host

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// A proposal that waits during a change of members says which half of the voters lacks a quorum.
func TestWaitingNamesTheHalfWithoutQuorum(t *testing.T) {
	l := openSecond(t)
	for _, id := range []uint64{4, 5} {
		l.learn(id, "")
	}
	r := *l.group.roster()
	r.Conf = raftpb.ConfState{VotersOutgoing: []uint64{1, 2, 3}, Voters: []uint64{1, 4, 5}}
	l.group.members.roster.Store(&r)
	now := l.clock.lived()
	l.hears(now-10*int64(l.config.electionTicks()), 4, 5)
	for _, id := range []uint64{1, 3} {
		l.hears(now, id)
		l.network.handshakes.of(id).met.Store(true)
	}
	e := examination{Group: l.group, now: now, d: diagnosis.Diagnosis{Status: l.group.Status()}}
	if err := e.missingVoters(); err == nil || !strings.Contains(err.Error(), "of the latter [1]: host 4 was not heard") {
		t.Errorf("of the new voters only host 1 is heard: %v", err)
	}
}

// A follower that is being sent a snapshot, or restores it, acknowledges nothing meanwhile: its disk is not
// blamed for it. It needs the snapshot until it has the entry, or until the log is enough.
func TestViewOfAMemberThatNeedsASnapshot(t *testing.T) {
	w, st := &memberWatches{}, raft.BasicStatus{LastIndex: 20}
	v := memberView{id: 3, readingSince: -1, lostSince: -1}
	for now, step := range []struct {
		pr       tracker.Progress
		snapshot uint64
		at       int64
	}{
		{tracker.Progress{State: tracker.StateReplicate, Match: 2}, 0, 0},
		{tracker.Progress{State: tracker.StateSnapshot, Match: 2, PendingSnapshot: 9}, 9, 1},
		{tracker.Progress{State: tracker.StateSnapshot, Match: 2, PendingSnapshot: 12}, 12, 1},
		{tracker.Progress{State: tracker.StateProbe, Match: 2}, 12, 1}, // it is restored, or begins again
		{tracker.Progress{State: tracker.StateReplicate, Match: 12}, 0, 1},
		{tracker.Progress{State: tracker.StateSnapshot, Match: 2, PendingSnapshot: 14}, 14, 5},
		{tracker.Progress{State: tracker.StateProbe, Match: 14}, 0, 5},
	} {
		if w.look(&v, &step.pr, st, int64(now), 100); v.snapshot != step.snapshot || v.snapshotAt != step.at {
			t.Errorf("step %d: it needs the snapshot through %d since %d, want %d since %d", now, v.snapshot, v.snapshotAt, step.snapshot, step.at)
		}
	}
}

// A learner that is down takes nothing from what may fail.
func TestUnreachableLearnerIsNoLoss(t *testing.T) {
	l := openLeader(t)
	r := *l.group.roster()
	r.Conf = raftpb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{3}}
	l.hears(0, 3)
	for _, row := range []struct {
		conf raftpb.ConfState
		says string
	}{{r.Conf, "the group commits without it"}, {l.group.roster().Conf, "one member less can fail"}} {
		r.Conf = row.conf
		l.group.members.roster.Store(&r)
		causes := l.examine(l.clock.lived(), (*examination).lookForMembers)
		if len(causes) != 1 || causes[0].Code != diagnosis.CodeMemberUnreachable || !strings.Contains(causes[0].Fix, row.says) {
			t.Errorf("%v: %+v, want %q", row.conf, causes, row.says)
		}
	}
}
