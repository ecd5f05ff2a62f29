package raftpb

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestEnterAndLeaveJoint(t *testing.T) {
	one := []ConfChangeSingle{{ConfChangeAddNode, 1}}
	two := append(one, ConfChangeSingle{ConfChangeRemoveNode, 2})
	for _, row := range []struct {
		name                        string
		change                      ConfChangeV2
		joint, leavesAlone, isLeave bool
	}{
		{"nothing", ConfChangeV2{}, false, false, true},
		{"nothing but a context", ConfChangeV2{Context: []byte("why")}, false, false, true},
		{"nothing, in a slice", ConfChangeV2{Changes: []ConfChangeSingle{}}, false, false, true},
		{"one", ConfChangeV2{Changes: one}, false, false, false},
		{"two", ConfChangeV2{Changes: two}, true, true, false},
		{"one, implicit", ConfChangeV2{Transition: ConfChangeTransitionJointImplicit, Changes: one}, true, true, false},
		{"one, explicit", ConfChangeV2{Transition: ConfChangeTransitionJointExplicit, Changes: one}, true, false, false},
		{"two, explicit", ConfChangeV2{Transition: ConfChangeTransitionJointExplicit, Changes: two}, true, false, false},
		{"none, explicit", ConfChangeV2{Transition: ConfChangeTransitionJointExplicit}, true, false, false},
		{"a transition that a peer made up", ConfChangeV2{Transition: -7, Changes: one}, true, false, false},
	} {
		leavesAlone, joint := row.change.EnterJoint()
		if joint != row.joint || leavesAlone != row.leavesAlone || row.change.LeaveJoint() != row.isLeave {
			t.Errorf("%s: joint %v, leaves by itself %v, is a leave %v; want %+v", row.name, joint, leavesAlone, row.change.LeaveJoint(), row)
		}
	}
}

// The entry of a change returns the form in which the change was written.
func TestMarshalConfChangeKeepsTheForm(t *testing.T) {
	v1 := ConfChange{Type: ConfChangeAddLearnerNode, NodeID: 3, Context: []byte("c"), ID: 9}
	v2 := v1.AsV2()
	if want := (ConfChangeV2{Changes: []ConfChangeSingle{{ConfChangeAddLearnerNode, 3}}, Context: []byte("c")}); !cmp.Equal(v2, want) {
		t.Fatal(cmp.Diff(want, v2))
	}

	kind, data, err := MarshalConfChange(v1)
	var v1Again ConfChange
	if err != nil || kind != EntryConfChange || v1Again.Unmarshal(data) != nil || !cmp.Equal(v1, v1Again) {
		t.Fatal(kind, err, cmp.Diff(v1, v1Again))
	}
	kind, data, err = MarshalConfChange(v2)
	var v2Again ConfChangeV2
	if err != nil || kind != EntryConfChangeV2 || v2Again.Unmarshal(data) != nil || !cmp.Equal(v2, v2Again.AsV2()) {
		t.Fatal(kind, err, cmp.Diff(v2, v2Again))
	}
	kind, data, err = MarshalConfChange(nil)
	var none ConfChangeV2
	if err != nil || kind != EntryConfChangeV2 || data != nil || none.Unmarshal(data) != nil || !none.LeaveJoint() {
		t.Fatal(kind, data, err)
	}
}

func TestEquivalentIgnoresOrderAndNothingElse(t *testing.T) {
	ids := func(ids ...uint64) []uint64 { return ids }
	full := ConfState{Voters: ids(1, 2), Learners: ids(3, 4), VotersOutgoing: ids(5, 6), LearnersNext: ids(6, 5), AutoLeave: true}
	for _, row := range []struct {
		name string
		a, b ConfState
		same bool
	}{
		{"itself", full, full, true},
		{"another order", full, ConfState{ids(2, 1), ids(4, 3), ids(6, 5), ids(5, 6), true}, true},
		{"nil and empty", ConfState{}, ConfState{Voters: ids()}, true},
		{"other voters", full, ConfState{ids(1, 7), ids(3, 4), ids(5, 6), ids(6, 5), true}, false},
		{"a voter less", full, ConfState{ids(1), ids(3, 4), ids(5, 6), ids(6, 5), true}, false},
		{"a voter twice", ConfState{Voters: ids(1, 1)}, ConfState{Voters: ids(1)}, false},
		{"other learners", full, ConfState{ids(1, 2), ids(3), ids(5, 6), ids(6, 5), true}, false},
		{"other outgoing voters", full, ConfState{ids(1, 2), ids(3, 4), ids(5), ids(6, 5), true}, false},
		{"other learners to be", full, ConfState{ids(1, 2), ids(3, 4), ids(5, 6), nil, true}, false},
		{"stays joint", full, ConfState{ids(1, 2), ids(3, 4), ids(5, 6), ids(6, 5), false}, false},
	} {
		if have := row.a.Equivalent(row.b) == nil; have != row.same {
			t.Errorf("%s: have %v", row.name, have)
		}
		if have := row.b.Equivalent(row.a) == nil; have != row.same {
			t.Errorf("%s, the other way round: have %v", row.name, have)
		}
	}
	unsorted := ConfState{Voters: ids(3, 1, 2)}
	if unsorted.Equivalent(ConfState{Voters: ids(1, 2, 3)}) != nil || !cmp.Equal(unsorted.Voters, ids(3, 1, 2)) {
		t.Error("comparing reorders the caller's slice")
	}
}

func TestNotationOfChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []ConfChangeSingle
		for range rapid.IntRange(0, 5).Draw(t, "changes") {
			want = append(want, ConfChangeSingle{
				ConfChangeType(rapid.Int32Range(0, 3).Draw(t, "type")), rapid.Uint64().Draw(t, "id"),
			})
		}
		have, err := ConfChangesFromString(" " + ConfChangesToString(want) + "\n")
		if err != nil || !cmp.Equal(want, have) {
			t.Fatal(err, cmp.Diff(want, have))
		}
	})
	for _, bad := range []string{"v", "x1", "v-1", "v1 ", "v1  v2", "1", "v1,v2", "v99999999999999999999", "\x00"} {
		if changes, err := ConfChangesFromString("r1 " + bad + " u2"); err == nil {
			t.Errorf("%q: have %v", bad, changes)
		}
	}
	if have := ConfChangesToString([]ConfChangeSingle{{9, 1}}); have != "unknown1" {
		t.Error(have)
	}
}

// Of the types of entries only those of a membership change, and those that are not known, count as one.
func TestChangesMembers(t *testing.T) {
	for typ, want := range map[EntryType]bool{EntryNormal: false, EntryHost: false, EntryBatch: false, EntryConfChange: true, EntryConfChangeV2: true, 3: true, 255: true} {
		if typ.ChangesMembers() != want {
			t.Errorf("%v changes members: %v", typ, !want)
		}
	}
}
