package examination

import (
	"testing"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
)

// A follower that is being sent a snapshot, or restores it, acknowledges nothing meanwhile: its disk is not
// blamed for it. It needs the snapshot until it has the entry, or until the log is enough.
func TestViewOfAMemberThatNeedsASnapshot(t *testing.T) {
	w, st := &FollowerWatch{}, raft.BasicStatus{LastIndex: 20}
	v := Follower{ID: 3, ReadingSince: -1, LostSince: -1}
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
		if w.observe(&v, &step.pr, st, int64(now), 100); v.Snapshot != step.snapshot || v.SnapshotAt != step.at {
			t.Errorf("step %d: it needs the snapshot through %d since %d, want %d since %d", now, v.Snapshot, v.SnapshotAt, step.snapshot, step.at)
		}
	}
}

// quietCore is a core that leads, or not, with a follower that says nothing.
type quietCore struct{ role raft.StateType }

func (c *quietCore) BasicStatus() (st raft.BasicStatus) {
	st.RaftState = c.role
	return st
}

func (c *quietCore) WithProgress(visit func(id uint64, kind raft.ProgressType, pr tracker.Progress)) {
	visit(2, raft.ProgressTypePeer, tracker.Progress{})
}

// A leader looks at its followers once in a tick, however many turns it has, and a member that does not lead
// forgets them.
func TestFollowersAreObservedOnceInATick(t *testing.T) {
	w, c, silent := &FollowerWatch{}, &quietCore{role: raft.StateLeader}, 0
	for _, now := range []int64{1, 90, 90, 90} {
		w.Observe(c, 1, now, 100, func(uint64) { silent++ })
	}
	if silent != 1 || len(w.Views) != 1 {
		t.Errorf("one that is silent is named %d times in a tick; %d are observed", silent, len(w.Views))
	}
	c.role = raft.StateFollower
	if w.Observe(c, 1, 91, 100, nil); w.Views != nil {
		t.Errorf("as a follower it observes %+v", w.Views)
	}
}
