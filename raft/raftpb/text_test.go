package raftpb

import (
	"fmt"
	"testing"
)

// What the text form looks like; tests/conformance compares it with that of the generated code.
func TestText(t *testing.T) {
	conf := ConfState{Voters: []uint64{1, 2}, Learners: []uint64{3}, VotersOutgoing: []uint64{1}, LearnersNext: []uint64{4}, AutoLeave: true}
	snap := Snapshot{Data: []byte("s"), Metadata: SnapshotMetadata{ConfState: conf, Index: 5, Term: 2}}
	const confText = "voters:1 voters:2 learners:3 voters_outgoing:1 learners_next:4 auto_leave:true "
	const snapText = `data:"s" metadata:<conf_state:<` + confText + `> index:5 term:2 > `
	for _, c := range []struct {
		value fmt.Stringer
		want  string
	}{
		{&Entry{}, ""},
		{(*Snapshot)(nil), "<nil>"},
		{&Entry{Term: 1, Index: 2, Type: EntryConfChange, Data: []byte("\"\\ \n\r\t\x00\x7f\xff~'é")},
			`Term:1 Index:2 Type:EntryConfChange Data:"\"\\ \n\r\t\000\177\377~'\303\251" `},
		{&Entry{Type: 9, Data: []byte{}}, `Type:9 Data:"" `},
		{&HardState{Term: 1, Vote: 2, Commit: 3}, "term:1 vote:2 commit:3 "},
		{&conf, confText},
		{&snap.Metadata, "conf_state:<" + confText + "> index:5 term:2 "},
		{&snap, snapText},
		{&SnapshotMetadata{ConfState: ConfState{Voters: []uint64{}}}, "conf_state:<> "},
		{&Message{Type: MsgApp, To: 1, From: 2, Term: 3, LogTerm: 4, Index: 5, Entries: []Entry{{}, {Term: 1}}, Commit: 6, Vote: 7,
			Snapshot: &snap, Reject: true, RejectHint: 8, Context: []byte("c"), Responses: []Message{{Snapshot: &Snapshot{}}}},
			"type:MsgApp to:1 from:2 term:3 logTerm:4 index:5 entries:<> entries:<Term:1 > commit:6 vote:7 snapshot:<" + snapText +
				`> reject:true rejectHint:8 context:"c" responses:<snapshot:<> > `},
		{&ConfChange{Type: ConfChangeRemoveNode, NodeID: 1, Context: []byte("c"), ID: 2}, `type:ConfChangeRemoveNode node_id:1 context:"c" id:2 `},
		{&ConfChangeSingle{Type: ConfChangeUpdateNode, NodeID: 1}, "type:ConfChangeUpdateNode node_id:1 "},
		{&ConfChangeV2{Transition: ConfChangeTransitionJointExplicit, Changes: []ConfChangeSingle{{NodeID: 1}}, Context: []byte{}},
			`transition:ConfChangeTransitionJointExplicit changes:<node_id:1 > context:"" `},
	} {
		if have := c.value.String(); have != c.want {
			t.Errorf("%T:\nhave %q\nwant %q", c.value, have, c.want)
		}
	}
}
