package leadership

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// scripted is a core that says what a test wants.
type scripted struct {
	status    raft.BasicStatus
	followers map[uint64]tracker.Progress
}

func (c *scripted) BasicStatus() raft.BasicStatus { return c.status }
func (c *scripted) Leadership() (term, lead uint64, role raft.StateType) {
	return c.status.Term, c.status.Lead, c.status.RaftState
}

func (c *scripted) WithProgress(visit func(id uint64, kind raft.ProgressType, pr tracker.Progress)) {
	for id := range uint64(10) {
		if pr, is := c.followers[id]; is {
			visit(id, raft.ProgressTypePeer, pr)
		}
	}
}

func leader(last uint64, followers map[uint64]tracker.Progress) *scripted {
	c := &scripted{followers: followers}
	c.status.RaftState, c.status.LastIndex = raft.StateLeader, last
	return c
}

// A view counts for the leader and the term that it is of, and for a while. Questions keep a pace.
func TestViews(t *testing.T) {
	var v Views
	v.Store(&View{From: 2, Term: 5, At: 100, Here: []uint64{2, 3}})
	for _, row := range []struct {
		leader, term uint64
		since        int64
		is           bool
	}{{2, 5, 100, true}, {2, 5, 101, false}, {3, 5, 0, false}, {2, 6, 0, false}} {
		if have := v.Of(row.leader, row.term, row.since); (have != nil) != row.is {
			t.Errorf("%+v: %v", row, have)
		}
	}
	if asks := []bool{v.MayAsk(0, 4), v.MayAsk(3, 4), v.MayAsk(4, 4), v.MayAsk(5, 4)}; !slices.Equal(asks, []bool{true, false, true, false}) {
		t.Errorf("a question in each heartbeat: %v", asks)
	}
	if group, here, err := DecodeView(EncodeView(9, []uint64{1, 4})); err != nil || group != 9 || !slices.Equal(here, []uint64{1, 4}) {
		t.Errorf("group %d, members %v, %v", group, here, err)
	}
	if group, here, err := DecodeView(EncodeViewQuestion(9)); err != nil || group != 9 || here != nil {
		t.Errorf("group %d, members %v, %v", group, here, err)
	}
	for _, bad := range [][]byte{{control.ViewAnswer}, {control.ViewAnswer, 9, 2, 1}, {control.ViewAnswer, 9, 1, 1, 9}, {control.ViewQuestion}, {control.ViewQuestion, 9, 0}} {
		if _, _, err := DecodeView(bad); !errors.Is(err, control.ErrBad) {
			t.Errorf("%v is a view: %v", bad, err)
		}
	}
}

// A member that led tries again after two, four and eight heartbeats, not while it has promised its vote, and
// not when another leads. The only voter waits for its promise alone.
func TestResume(t *testing.T) {
	r, tries := Resume{Voted: true}, []int64{}
	for now := int64(1); now < 100; now++ {
		if r.Voted && r.Step(now, 4, 0, false, false) {
			tries = append(tries, now)
		}
	}
	if !slices.Equal(tries, []int64{9, 17, 33}) || r.Voted || r.Due(100, 4, 0, false) != turn.Never {
		t.Errorf("it campaigns at %v, and goes on: %v", tries, r.Voted)
	}
	r = Resume{Voted: true}
	if r.Step(50, 4, 7, true, false) || r.Due(50, 4, 7, true) != 57 || !r.Step(57, 4, 0, true, false) {
		t.Error("the only voter does not campaign at the end of its promise")
	}
	if r = (Resume{Voted: true}); r.Step(50, 4, 0, true, true) || r.Voted {
		t.Error("it campaigns against a leader")
	}
}

// A quorum is ready without the leader when enough members have acknowledged since a tick, or wait for the
// leader's disk. Of these, the one with most of the log is next.
func TestReadyWithout(t *testing.T) {
	var a Acks
	two := func(has func(id uint64) bool) bool { // of three voters
		return has(1) && has(2) || has(2) && has(3) || has(1) && has(3)
	}
	core := leader(10, map[uint64]tracker.Progress{1: {Match: 10}, 2: {Match: 7}, 3: {Match: 9}})
	a.Record(2, 5)
	if to := a.ReadyWithout(core, 1, 4, two); to != raft.None {
		t.Errorf("one of three is a quorum: %d", to)
	}
	a.Record(3, 5)
	if to := a.ReadyWithout(core, 1, 4, two); to != 3 {
		t.Errorf("host %d is next, want 3", to)
	}
	if a.Record(3, 6); a.ReadyWithout(core, 1, 5, two) != raft.None || !a.Since(3, 5) || a.Since(2, 5) {
		t.Error("an old acknowledgement counts")
	}
	core.followers[2] = tracker.Progress{Match: 8, EntriesPending: true, RecentActive: true}
	if to := a.ReadyWithout(core, 1, 5, two); to != 3 {
		t.Errorf("host %d is next while host 2 waits for the leader's disk, want 3", to)
	}
	core.followers[3] = tracker.Progress{Match: 9, WithoutAuthority: true}
	if a.ReadyWithout(core, 1, 5, two) != raft.None {
		t.Error("a member without authority is ready")
	}
	if a.Forget(); a.Since(3, 0) {
		t.Error("what was forgotten counts")
	}
}

// In a joint configuration both halves must be ready: most of all voters may be none of one of them.
func TestReadyWithoutInAJointConfiguration(t *testing.T) {
	var a Acks
	jointVoters := &membership.Roster{Conf: raftpb.ConfState{VotersOutgoing: []uint64{1, 2, 3}, Voters: []uint64{4, 5, 6}}}
	quorum := func(has func(id uint64) bool) bool { return jointVoters.Spare(has) >= 0 }
	core := leader(10, map[uint64]tracker.Progress{1: {Match: 10}, 2: {Match: 9}, 3: {Match: 8}, 4: {Match: 8}, 5: {}, 6: {}})
	for _, id := range []uint64{2, 3, 4} {
		a.Record(id, 5)
	}
	if to := a.ReadyWithout(core, 1, 4, quorum); to != raft.None {
		t.Errorf("host %d is next, though of voters 4, 5 and 6 only 4 is ready", to)
	}
	a.Record(5, 5)
	if to := a.ReadyWithout(core, 1, 4, quorum); to != 2 {
		t.Errorf("host %d is next, want 2", to)
	}
}

// A follower that acknowledges nothing is reported once, and again after it has gone on.
func TestSlowMembers(t *testing.T) {
	var w SlowMembers
	var told []int64
	core := leader(10, map[uint64]tracker.Progress{1: {Match: 10}, 2: {Match: 3}})
	look := func(from, to int64) {
		for now := from; now <= to; now++ {
			for range 2 { // once in a tick
				w.Observe(core, 1, now, 5, func(id, behind uint64, stalled int64) {
					if told = append(told, now); id != 2 || behind != 10-core.followers[2].Match || stalled != 6 {
						t.Errorf("at %d: host %d is behind by %d for %d", now, id, behind, stalled)
					}
				})
			}
		}
	}
	look(1, 20)
	core.followers[2] = tracker.Progress{Match: 4}
	look(21, 40)
	core.status.RaftState = raft.StateFollower
	look(41, 60)
	if !slices.Equal(told, []int64{7, 27}) {
		t.Errorf("reported at %v", told)
	}
}
