package host

import (
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// What a group keeps from the append lane goes with its next message, and nothing else is kept.
func TestCommitIndexesWaitForTheNextMessage(t *testing.T) {
	message := func(term, vote, commit uint64, entries, responses int) raftpb.Message {
		return raftpb.Message{Term: term, Vote: vote, Commit: commit, Entries: make([]raftpb.Entry, entries), Responses: make([]raftpb.Message, responses)}
	}
	var told toldLane
	for i, step := range []struct {
		m    raftpb.Message
		kept bool
		hard raftpb.HardState // of the message that is not kept
	}{
		{message(2, 1, 0, 0, 0), false, raftpb.HardState{Term: 2, Vote: 1}},            // a term
		{message(2, 1, 4, 0, 0), true, raftpb.HardState{}},                             // a commit index
		{message(2, 1, 5, 0, 0), true, raftpb.HardState{}},                             // a later one
		{message(0, 0, 0, 1, 1), false, raftpb.HardState{Term: 2, Vote: 1, Commit: 5}}, // goes with entries
		{message(0, 0, 0, 1, 1), false, raftpb.HardState{}},                            // once
		{message(2, 1, 6, 0, 0), true, raftpb.HardState{}},
		{message(0, 0, 0, 0, 1), false, raftpb.HardState{}},                            // answers alone have nothing to write
		{message(2, 1, 7, 1, 1), false, raftpb.HardState{Term: 2, Vote: 1, Commit: 7}}, // entries with a later one
		{message(0, 0, 0, 1, 1), false, raftpb.HardState{}},
		{message(2, 1, 8, 0, 1), false, raftpb.HardState{Term: 2, Vote: 1, Commit: 8}}, // an answer waits for it
		{message(2, 1, 9, 0, 0), true, raftpb.HardState{}},
		{message(3, 0, 9, 0, 0), false, raftpb.HardState{Term: 3, Commit: 9}}, // a promise never waits
		{message(3, 2, 9, 0, 0), false, raftpb.HardState{Term: 3, Vote: 2, Commit: 9}},
	} {
		m := step.m
		if kept := told.keeps(&m); kept != step.kept {
			t.Fatalf("message %d: kept %v", i, kept)
		}
		if have := hardStateOf(&m); !step.kept && have != step.hard {
			t.Fatalf("message %d has hard state %v, want %v", i, have, step.hard)
		}
	}
}
