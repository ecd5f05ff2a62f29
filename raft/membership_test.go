package raft

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// A leader receives proposals of changes from peers, in encoded form. A change that cannot be decoded is
// refused, and the leader stays up.
func TestChangesThatCannotBeRead(t *testing.T) {
	for name, entries := range map[string][]raftpb.Entry{
		"no ConfChange":                {{Type: raftpb.EntryConfChange, Data: []byte{7}}},
		"no ConfChangeV2":              {{Type: raftpb.EntryConfChangeV2, Data: []byte{0x12, 0xff}}},
		"a transition without a name":  {{Type: raftpb.EntryConfChangeV2, Data: []byte{0x08, 0x09}}},
		"a kind without a name":        {{Type: raftpb.EntryConfChange, Data: []byte{0x10, 0x09, 0x18, 0x02}}},
		"two at once":                  {{Type: raftpb.EntryConfChangeV2, Data: []byte{0x08, 0x01}}, {Type: raftpb.EntryConfChangeV2}},
		"one that makes no sense now":  {{Type: raftpb.EntryNormal, Data: []byte("x")}, {Type: raftpb.EntryConfChangeV2}},
		"one of a type without a name": {{Type: 9}},
	} {
		for _, validate := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) { c.DisableConfChangeValidation = !validate })
				elect(t, rn, s)
				before := rn.BasicStatus()
				err := rn.Step(raftpb.Message{Type: raftpb.MsgProp, From: 2, Entries: entries})
				if legal := !validate && strings.Contains("two at once, one that makes no sense now, a kind without a name", name); legal {
					must(t, err) // the application disabled validation
					return
				}
				if !errors.Is(err, ErrConfChangeRefused) && !errors.Is(err, ErrProposalDropped) {
					t.Fatalf("have %v", err)
				}
				if after := rn.BasicStatus(); after != before || rn.HasReady() {
					t.Errorf("refused (%v), and yet %+v became %+v", err, before, after)
				}
			})
		}
	}
}

// The address of a local worker as a member: appends and heartbeats to that member went to the node's own
// worker, which took them for writes. Such a change is refused, and if it is committed nevertheless it has no
// effect.
func TestLocalWorkersAreNoMembers(t *testing.T) {
	for _, id := range []uint64{LocalAppendThread, LocalApplyThread} {
		for _, validate := range []bool{true, false} {
			rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) { c.DisableConfChangeValidation = !validate })
			elect(t, rn, s)
			change := raftpb.ConfChange{Type: raftpb.ConfChangeAddLearnerNode, NodeID: id}
			if err := rn.ProposeConfChange(change); validate != errors.Is(err, ErrConfChangeRefused) {
				t.Errorf("member %d: have %v", id, err)
			}
			if cs := rn.ApplyConfChange(change); len(cs.Learners) != 0 || rn.raft.conf.IsMember(id) {
				t.Errorf("member %d is in %s", id, rn.raft.conf)
			}
		}
		s := NewMemoryStorage()
		s.SetConfState(raftpb.ConfState{Voters: []uint64{1, id}})
		c := testConfig(1, s)
		if _, err := NewRawNode(&c); err == nil || !strings.Contains(err.Error(), "local storage worker") {
			t.Errorf("stored member %d: have %v", id, err)
		}
	}
}

// The joint configuration must be left when the change that made it is applied. A transfer of leadership
// prevents this for some time. When the transfer is aborted nothing is applied any more, and the
// configuration must be left nevertheless.
func TestJointConfigurationIsLeftAfterATransfer(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	elect(t, rn, s)
	hear := func() {
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 1, Index: rn.BasicStatus().LastIndex}))
	}
	hear()
	work(t, rn, s)
	change := raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransitionJointImplicit, Changes: []raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeAddLearnerNode, NodeID: 4}}}
	must(t, rn.ProposeConfChange(change))
	work(t, rn, s)
	must(t, rn.TransferLeader(3))
	hear()
	for rn.HasReady() { // as in work, but the change takes effect
		rd := rn.Ready()
		for _, m := range rd.Messages {
			save(t, s, raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}, entriesToWrite(m))
			if m.To == LocalApplyThread {
				rn.ApplyConfChange(change)
			}
			for _, answer := range m.Responses {
				must(t, rn.Step(answer))
			}
		}
	}
	last := rn.BasicStatus().LastIndex
	if !rn.raft.conf.IsJoint() || !rn.raft.transferring() || last != 2 {
		t.Fatalf("want a joint configuration and a transfer, have %s, %+v", rn.raft.conf, rn.BasicStatus())
	}
	for rn.raft.transferring() {
		rn.Tick()
	}
	rn.Tick()
	if have := rn.BasicStatus().LastIndex; have != last+1 {
		t.Errorf("the log ends at %d, want the change that leaves at %d", have, last+1)
	}
}

func entriesToWrite(m raftpb.Message) []raftpb.Entry {
	if m.To == LocalAppendThread {
		return m.Entries
	}
	return nil
}

// A candidate that applies its own removal gives up: it could only win by votes for a configuration that is
// no longer in force.
func TestCandidateThatIsRemoved(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	must(t, rn.Campaign())
	work(t, rn, s)
	rn.ApplyConfChange(raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode, NodeID: 1})
	if st := rn.BasicStatus(); st.RaftState != StateFollower {
		t.Errorf("have %+v", st)
	}
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgVoteResp, From: 2, Term: 1}))
	if st := rn.BasicStatus(); st.RaftState != StateFollower {
		t.Errorf("after a late vote: %+v", st)
	}
}

func TestBootstrapRefusals(t *testing.T) {
	empty := func() *RawNode { return newTestNodeOn(t, 1, NewMemoryStorage()) }
	withLog, _ := newTestNode(t, 1, nil, raftpb.HardState{Term: 1}, []uint64{1})
	withMembers, _ := newTestNode(t, 1, []uint64{1, 2}, raftpb.HardState{}, nil)
	for _, row := range []struct {
		node     *RawNode
		founders []Peer
		want     string
	}{
		{empty(), nil, "without peers"},
		{empty(), []Peer{{ID: 1}, {ID: 2}, {ID: 1}}, "peer 1 twice"},
		{empty(), []Peer{{ID: 0}}, "peer id 0"},
		{empty(), []Peer{{ID: LocalApplyThread}}, "peer id 18446744073709551614"},
		{withLog, []Peer{{ID: 1}}, "already has a log (through 1, term 1)"},
		{withMembers, []Peer{{ID: 1}}, "already holds a configuration (voters=(1 2))"},
	} {
		before := row.node.BasicStatus()
		err := row.node.Bootstrap(row.founders)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("have %v, want %q in it", err, row.want)
		}
		if after := row.node.BasicStatus(); after != before {
			t.Errorf("refused, and yet %+v became %+v", before, after)
		}
	}
	rn := empty()
	must(t, rn.Bootstrap([]Peer{{ID: 1, Context: []byte("here")}, {ID: 2}}))
	rd := rn.Ready()
	var c raftpb.ConfChange
	must(t, c.Unmarshal(rd.Entries[0].Data))
	if len(rd.Entries) != 2 || string(c.Context) != "here" || rd.HardState != (raftpb.HardState{Term: 1, Commit: 2}) {
		t.Errorf("have %s", DescribeReady(rd, nil))
	}
}

func TestWithProgress(t *testing.T) {
	s := NewMemoryStorage()
	s.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}})
	rn := newTestNodeOn(t, 1, s)
	var seen []uint64
	visit := func(id uint64, kind ProgressType, pr tracker.Progress) {
		if (kind == ProgressTypeLearner) != (id == 4) || pr.IsLearner != (id == 4) || pr.Inflights != nil {
			t.Errorf("%d is shown as %v, %s", id, kind, pr.String())
		}
		seen = append(seen, id)
	}
	rn.WithProgress(visit)
	if len(seen) != 0 {
		t.Errorf("a follower shows %v", seen)
	}
	elect(t, rn, s)
	rn.WithProgress(visit)
	if len(seen) != 4 || seen[0] != 1 || seen[3] != 4 {
		t.Errorf("a leader shows %v", seen)
	}
}

// A quiet tick brings the election nearer, and does not begin it.
func TestTickQuiesced(t *testing.T) {
	rn, _ := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	rn.SetElectionTimeout(5)
	for range 20 {
		rn.TickQuiesced()
	}
	if rn.HasReady() {
		t.Error("a quiet node campaigns")
	}
	rn.Tick()
	if !rn.HasReady() {
		t.Error("an election is overdue, and no one campaigns")
	}
}

func TestSetElectionTimeout(t *testing.T) {
	rn, _ := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	rn.SetElectionTimeout(3)
	for tick := 1; tick <= 3; tick++ {
		if rn.HasReady() {
			t.Errorf("it campaigns before tick %d", tick)
		}
		rn.Tick()
	}
	if !rn.HasReady() {
		t.Error("it does not campaign after 3 ticks")
	}
}

// The Logger receives rare events; a node without a Logger does the same work.
func TestLoggerHears(t *testing.T) {
	events := &recorder{}
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) { c.Logger = events })
	elect(t, rn, s)
	_ = rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 1, Index: 99})
	rn.ApplyConfChange(raftpb.ConfChangeV2{Changes: []raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeAddNode, NodeID: 4}}})
	rn.ApplyConfChange(nil)
	for _, want := range []string{
		"1 leads term 1",
		"refused input from peer 2: answer is about entries beyond the end of this leader's log (have 99, want 1)",
		"1 is in configuration voters=(1 2 3 4)",
		"ignores a committed membership change",
	} {
		if !strings.Contains(events.all, want) {
			t.Errorf("have no report with %q; reports:\n%s", want, events.all)
		}
	}
}
