package membership

import (
	"testing"
)

// many returns a group of the most members.
func many(n int) *Roster {
	var members []Member
	for i := range n {
		members = append(members, Member{ID: uint64(i + 1), Incarnation: directory(i + 1)})
	}
	return Founded(members)
}

// A group of the most members can lose one.
func TestLargestGroupShrinks(t *testing.T) {
	r := many(3)
	for i := 3; i < MaxMembers; i++ {
		m := Member{ID: uint64(i + 1), Incarnation: directory(i + 1)}
		r.Members, r.Conf.Learners = append(r.Members, m), append(r.Conf.Learners, m.ID)
	}
	if _, err := r.Make([]Want{{Op: Remove, Member: Member{ID: MaxMembers}}}); err != nil {
		t.Error(err)
	}
	if _, err := r.Make([]Want{{Op: Add, Learner: true, Member: Member{ID: MaxMembers + 1, Incarnation: directory(MaxMembers + 1)}}}); err == nil {
		t.Error("one more is added")
	}
}

// A roster with the most removed directories that plans lead to can be read again: a snapshot has it.
func TestRemovedStayReadable(t *testing.T) {
	r := many(10)
	for i := range MaxRemoved - 1 {
		r.Removed = append(r.Removed, Member{ID: uint64(100 + i), Incarnation: directory(100 + i)})
	}
	var wants []Want
	for i := range 5 {
		wants = append(wants, Want{Op: Remove, Member: Member{ID: uint64(i + 1)}})
	}
	stages, err := r.Make(wants)
	if err != nil {
		return // refused: the rest must stay readable
	}
	rosters, err := r.Play(stages)
	if err != nil {
		t.Fatal(err)
	}
	last := rosters[len(rosters)-1]
	last.Plan = nil
	if _, err := DecodeRoster(last.Encode()); err != nil {
		t.Errorf("with %d removed directories: %v", len(last.Removed), err)
	}
}

// All voters are exchanged: some voter stays through each stage, so that a leader can hand over to it.
func TestAllVotersAreExchanged(t *testing.T) {
	r := three()
	var wants []Want
	for id := uint64(1); id <= 3; id++ {
		wants = append(wants, Want{Op: Add, Member: Member{ID: id + 3, Incarnation: directory(int(id) + 3)}}, Want{Op: Remove, Member: Member{ID: id}})
	}
	stages, err := r.Make(wants)
	if err != nil {
		t.Fatal(err)
	}
	at := *r
	at.Plan = &Plan{Stages: stages}
	next := &at
	for i, steps := range stages {
		stays := false
		for _, id := range next.Conf.Voters {
			stays = stays || !Takes(steps, id)
		}
		if !stays {
			t.Fatalf("stage %d takes the votes of all voters, %v: %s", i+1, next.Conf.Voters, Describe(steps))
		}
		if next, err = next.Next(next.Version+1, Change{Base: next.Changed, Stage: i, Steps: steps}.Entry()); err == nil && next.IsJoint() {
			next, err = next.Next(next.Version+1, leaveJoint)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkPlayThousand(b *testing.B) {
	r := many(1000)
	stages := [][]Step{{{Op: Demote, Member: Member{ID: 7}}}}
	for b.Loop() {
		if _, err := r.Play(stages); err != nil {
			b.Fatal(err)
		}
	}
}

// A directory that was removed is never a member again: under its id, under another one, or as a replacement.
func TestRemovedDirectoryStaysRemoved(t *testing.T) {
	r := three()
	r.Members, r.Conf.Voters = r.Members[:2], r.Conf.Voters[:2]
	r.Removed = []Member{{ID: 3, Incarnation: directory(3)}}
	for _, w := range []Want{
		{Op: Add, Member: Member{ID: 4, Incarnation: directory(3)}},
		{Op: Add, Replace: true, Member: Member{ID: 2, Incarnation: directory(3)}},
	} {
		if _, err := r.Make([]Want{w}); err == nil {
			t.Errorf("host %d is added with the directory that was removed", w.ID)
		}
	}
}
