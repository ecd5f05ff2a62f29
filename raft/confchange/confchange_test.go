package confchange

import (
	"errors"
	"math/bits"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

func empty(last uint64) Changer {
	return Changer{Tracker: tracker.MakeProgressTracker(10, 0), LastIndex: last}
}

// adopt makes the result of a change the configuration of c, as the core does.
func (c *Changer) adopt(config tracker.Config, views tracker.ProgressMap, err error) error {
	if err == nil {
		c.Tracker.Config, c.Tracker.Progress = config, views
	}
	return err
}

func (c Changer) print() string {
	return c.Tracker.Config.String() + "\n" + c.Tracker.Progress.String()
}

func changes(t testing.TB, s string) []raftpb.ConfChangeSingle {
	t.Helper()
	ccs, err := raftpb.ConfChangesFromString(s)
	if err != nil {
		t.Fatal(err)
	}
	return ccs
}

func drawChanges(t *rapid.T, label string) []raftpb.ConfChangeSingle {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) raftpb.ConfChangeSingle {
		return raftpb.ConfChangeSingle{
			Type:   raftpb.ConfChangeType(rapid.Int32Range(0, 3).Draw(t, "type")),
			NodeID: rapid.Uint64Range(0, 6).Draw(t, "id"),
		}
	}), 0, 8).Draw(t, label)
}

// drawReachable walks to a random configuration, joint or not, by calls of the package, and checks each step.
func drawReachable(t *rapid.T) Changer {
	c := empty(10)
	if err := c.adopt(c.Simple(raftpb.ConfChangeSingle{NodeID: 1})); err != nil {
		t.Fatal(err)
	}
	for range rapid.IntRange(0, 8).Draw(t, "steps") {
		c.LastIndex++
		step(t, &c)
	}
	return c
}

// step tries one random operation. Whether or not it is refused, the former c must be unchanged.
func step(t *rapid.T, c *Changer) {
	before, printed := *c, c.print()
	var config tracker.Config
	var views tracker.ProgressMap
	var err error
	operation := rapid.SampledFrom([]string{"simple", "enter", "leave"}).Draw(t, "operation")
	switch operation {
	case "simple":
		config, views, err = c.Simple(drawChanges(t, "changes")...)
	case "enter":
		config, views, err = c.EnterJoint(rapid.Bool().Draw(t, "leave automatically"), drawChanges(t, "changes")...)
	case "leave":
		config, views, err = c.LeaveJoint()
	}
	if before.print() != printed {
		t.Fatalf("%s changed its input: had\n%shave\n%s", operation, printed, before.print())
	}
	if err != nil {
		return
	}
	checkOverlap(t, c.Tracker.Config, config)
	c.Tracker.Config, c.Tracker.Progress = config, views
}

// checkOverlap: "there is no point in time at which two leaders can be elected for the same term" (thesis
// §4.1). Every set of servers that decides before the change shares a server with every set that decides
// after it.
func checkOverlap(t *rapid.T, before, after tracker.Config) {
	if len(before.Voters[0]) == 0 {
		return // no set of servers could decide anything
	}
	var deciding [2][]uint
	for servers := range uint(1 << 7) {
		votes := map[uint64]bool{}
		for id := range uint64(7) {
			votes[id] = servers&(1<<id) != 0
		}
		for i, config := range []tracker.Config{before, after} {
			if wins(config, votes) {
				deciding[i] = append(deciding[i], servers)
			}
		}
	}
	for _, a := range deciding[0] {
		for _, b := range deciding[1] {
			if bits.OnesCount(a&b) == 0 {
				t.Fatalf("%s and then %s: servers %b and %b decide apart", before, after, a, b)
			}
		}
	}
}

func wins(c tracker.Config, votes map[uint64]bool) bool {
	for _, half := range c.Voters {
		granted := 0
		for id := range half {
			if votes[id] {
				granted++
			}
		}
		if len(half) > 0 && granted <= len(half)/2 {
			return false
		}
	}
	return true
}

func TestEveryStepOverlapsAndLeavesItsInputAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { drawReachable(t) })
}

func TestRestoreGivesBackWhatWasReached(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawReachable(t)
		want := c.Tracker.ConfState()
		restored := empty(c.LastIndex)
		if err := restored.adopt(Restore(restored, want)); err != nil {
			t.Fatal(err)
		}
		if have := restored.Tracker.ConfState(); !cmp.Equal(have, want) {
			t.Fatal(cmp.Diff(want, have))
		}
		// The restored configuration continues like the original.
		if !c.Tracker.IsJoint() {
			return
		}
		if err := errors.Join(c.adopt(c.LeaveJoint()), restored.adopt(restored.LeaveJoint())); err != nil {
			t.Fatal(err)
		}
		if have, want := restored.Tracker.ConfState(), c.Tracker.ConfState(); !cmp.Equal(have, want) {
			t.Fatal(cmp.Diff(want, have))
		}
	})
}

// naive is the twin: the part of each member, after one change at a time.
func naive(start tracker.Config, list []raftpb.ConfChangeSingle) raftpb.ConfState {
	role := map[uint64]raftpb.ConfChangeType{}
	for id := range start.Voters[0] {
		role[id] = raftpb.ConfChangeAddNode
	}
	for id := range start.Learners {
		role[id] = raftpb.ConfChangeAddLearnerNode
	}
	for _, change := range list {
		if change.Type != raftpb.ConfChangeUpdateNode && change.NodeID != 0 {
			role[change.NodeID] = change.Type
		}
	}
	var cs raftpb.ConfState
	for id := range uint64(10) {
		switch kind, known := role[id]; {
		case known && kind == raftpb.ConfChangeAddNode:
			cs.Voters = append(cs.Voters, id)
		case known && kind == raftpb.ConfChangeAddLearnerNode:
			cs.Learners = append(cs.Learners, id)
		}
	}
	return cs
}

func TestOneJointChangeEqualsManySimpleOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := drawReachable(t)
		if start.Tracker.IsJoint() {
			if err := start.adopt(start.LeaveJoint()); err != nil {
				t.Fatal(err)
			}
		}
		// One change at a time, without those that would remove the last voter.
		simple := start
		var list []raftpb.ConfChangeSingle
		for _, change := range drawChanges(t, "changes") {
			switch err := simple.adopt(simple.Simple(change)); {
			case err == nil:
				list = append(list, change)
			case !errors.Is(err, ErrRemovesVoters):
				t.Fatal(err)
			}
		}
		joint := start
		if err := joint.adopt(joint.EnterJoint(rapid.Bool().Draw(t, "leave automatically"), list...)); err != nil {
			t.Fatal(err)
		}
		if err := joint.adopt(joint.LeaveJoint()); err != nil {
			t.Fatal(err)
		}
		want := naive(start.Tracker.Config, list)
		for _, c := range []Changer{simple, joint} {
			if have := c.Tracker.ConfState(); !cmp.Equal(have, want) {
				t.Fatal(raftpb.ConfChangesToString(list), cmp.Diff(want, have))
			}
		}
	})
}

// A member keeps what the leader knows about it through any transition. A removed member does not.
func TestViewsFollowTheirMembers(t *testing.T) {
	c := empty(1)
	must := func(config tracker.Config, views tracker.ProgressMap, err error) {
		t.Helper()
		if err := c.adopt(config, views, err); err != nil {
			t.Fatal(err)
		}
		c.LastIndex++
	}
	must(c.Simple(changes(t, "v1")...))
	must(c.Simple(changes(t, "v2 l3")...))
	for _, view := range c.Tracker.Progress {
		view.MaybeUpdate(40)
	}
	must(c.EnterJoint(false, changes(t, "l2 v3 r1 v4")...))
	must(c.LeaveJoint())
	if want := "voters=(3 4) learners=(2)\n" +
		"2: StateProbe match=40 next=41 learner\n" +
		"3: StateProbe match=40 next=41\n" +
		"4: StateProbe match=0 next=3\n"; c.print() != want {
		t.Errorf("have\n%swant\n%s", c.print(), want)
	}
	must(c.Simple(changes(t, "r3 v3")...)) // removed and added at once: perhaps another machine
	if want := "voters=(3 4) learners=(2)\n" +
		"2: StateProbe match=40 next=41 learner\n" +
		"3: StateProbe match=0 next=5\n" +
		"4: StateProbe match=0 next=3\n"; c.print() != want {
		t.Errorf("have\n%swant\n%s", c.print(), want)
	}
}

func TestAPeerCanSendNonsense(t *testing.T) {
	c := empty(1)
	if _, _, err := c.Simple(raftpb.ConfChangeSingle{Type: 17, NodeID: 1}); !errors.Is(err, ErrUnknownChange) {
		t.Error(err)
	}
	ids := func(ids ...uint64) []uint64 { return ids }
	for name, cs := range map[string]raftpb.ConfState{
		"learners and no voter":              {Learners: ids(1)},
		"only outgoing voters":               {VotersOutgoing: ids(1)},
		"a voter twice":                      {Voters: ids(1, 1)},
		"the id 0 as a voter":                {Voters: ids(0, 1)},
		"a voter that only listens":          {Voters: ids(1, 2), Learners: ids(2)},
		"an outgoing voter that listens":     {Voters: ids(1), VotersOutgoing: ids(1, 2), Learners: ids(2)},
		"to listen next without a vote":      {Voters: ids(1), VotersOutgoing: ids(1), LearnersNext: ids(2)},
		"to listen next, outside transition": {Voters: ids(1), LearnersNext: ids(2)},
		"to listen next and to vote":         {Voters: ids(1, 2), VotersOutgoing: ids(1, 2), LearnersNext: ids(2)},
		"leaves what it has not entered":     {Voters: ids(1), AutoLeave: true},
	} {
		if config, _, err := Restore(empty(1), cs); !errors.Is(err, ErrInconsistent) {
			t.Errorf("%s: have %s, %v", name, config, err)
		}
	}
	if _, _, err := Restore(empty(1), raftpb.ConfState{}); err != nil {
		t.Error("the empty configuration is where everything starts:", err)
	}
}

func TestAnInconsistentStartIsRefused(t *testing.T) {
	member := func() Changer {
		c := empty(1)
		if err := c.adopt(c.Simple(changes(t, "v1 l2")...)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for name, spoil := range map[string]func(*Changer){
		"a member without a view":           func(c *Changer) { delete(c.Tracker.Progress, 1) },
		"a view without a member":           func(c *Changer) { c.Tracker.Progress[9] = &tracker.Progress{} },
		"a view that takes it for a voter":  func(c *Changer) { c.Tracker.Progress[2].IsLearner = false },
		"a learner that votes":              func(c *Changer) { c.Tracker.Voters[0][2] = struct{}{} },
		"waits to listen without a vote":    func(c *Changer) { c.Tracker.LearnersNext = map[uint64]struct{}{1: {}} },
		"leaves by itself what is no joint": func(c *Changer) { c.Tracker.AutoLeave = true },
	} {
		c := member()
		spoil(&c)
		_, _, simple := c.Simple()
		_, _, enter := c.EnterJoint(false)
		_, _, leave := c.LeaveJoint()
		_, _, restore := Restore(c, raftpb.ConfState{})
		if !errors.Is(simple, ErrInconsistent) || !errors.Is(enter, ErrInconsistent) || !errors.Is(leave, ErrInconsistent) || !errors.Is(restore, ErrRestoreNonEmpty) {
			t.Errorf("%s: have %v, %v, %v, %v", name, simple, enter, leave, restore)
		}
	}
}

// Each way has its own reasons to refuse, which a caller can tell apart.
func TestReasonsToRefuse(t *testing.T) {
	type operation func(Changer) (tracker.Config, tracker.ProgressMap, error)
	simple := func(s string) operation {
		return func(c Changer) (tracker.Config, tracker.ProgressMap, error) { return c.Simple(changes(t, s)...) }
	}
	enter := func(s string) operation {
		return func(c Changer) (tracker.Config, tracker.ProgressMap, error) {
			return c.EnterJoint(true, changes(t, s)...)
		}
	}
	for _, row := range []struct {
		from raftpb.ConfState
		run  operation
		want error
	}{
		{raftpb.ConfState{}, simple("l1"), ErrRemovesVoters},
		{raftpb.ConfState{}, enter("v1"), ErrNoVoters},
		{three, simple("r1 v4"), ErrTooManyVoters},
		{three, enter("r1 r2 l3"), ErrRemovesVoters},
		{three, Changer.LeaveJoint, ErrNotJoint},
		{threeToOne, simple("l9"), ErrJoint},
		{threeToOne, enter(""), ErrAlreadyJoint},
	} {
		c := empty(1)
		if err := c.adopt(Restore(c, row.from)); err != nil {
			t.Fatal(err)
		}
		if config, views, err := row.run(c); !errors.Is(err, row.want) || config.IsMember(1) || views != nil {
			t.Errorf("have %s, %v, want %v", config, err, row.want)
		}
	}
}

var (
	three      = raftpb.ConfState{Voters: []uint64{1, 2, 3}}
	threeToOne = raftpb.ConfState{Voters: []uint64{1}, VotersOutgoing: []uint64{1, 2, 3}, LearnersNext: []uint64{2}}
)
