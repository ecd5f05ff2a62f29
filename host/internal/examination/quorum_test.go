package examination

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/raft/raftpb"
)

// A group without a leader has a quorum that is heard, or none. Voters count, learners do not, and a host
// that is a learner does not count itself.
func TestExplainCountsVoters(t *testing.T) {
	joint := raftpb.ConfState{VotersOutgoing: []uint64{1, 2, 3}, Voters: []uint64{1, 4, 5}}
	for _, row := range []struct {
		name     string
		learners []uint64
		heard    []uint64
		code     diagnosis.Code
		says     string
		conf     *raftpb.ConfState // nil: all others are voters
	}{
		{"most of all voters, and few of the new ones", nil, []uint64{1, 3}, diagnosis.CodeNoQuorum, "of the former this host hears [1 2 3], of the latter [1]: ", &joint},
		{"few of the old voters", nil, []uint64{4, 5}, diagnosis.CodeNoQuorum, "from voters [1 2 3] to [1 4 5], which needs a quorum of both; of the former this host hears [2], of the latter [4 5]", &joint},
		{"a quorum of both", nil, []uint64{3, 4, 5}, diagnosis.CodeNoLeader, "a quorum of voters [1 2 3] and of voters [1 4 5]", &joint},
		{"all", nil, []uint64{3, 1}, diagnosis.CodeNoLeader, "hosts [1 2 3] are heard, a quorum of 3 voters", nil},
		{"one", nil, []uint64{3}, diagnosis.CodeNoLeader, "hosts [2 3] are heard, a quorum of 3 voters, and yet this member knows no leader", nil},
		{"none", nil, nil, diagnosis.CodeNoQuorum, "of 3 voters this host hears 1, itself included; a quorum is 2", nil},
		{"a learner is heard", []uint64{3}, []uint64{3}, diagnosis.CodeNoQuorum, "of 2 voters this host hears 1, itself included; a quorum is 2", nil},
		{"this host is a learner", []uint64{2}, []uint64{1}, diagnosis.CodeNoQuorum, "of 2 voters this host hears 1; a quorum is 2", nil},
		{"this host is a learner and hears both", []uint64{2}, []uint64{1, 3}, diagnosis.CodeNoLeader, "hosts [1 3] are heard", nil},
	} {
		f := follower()
		leaderless(f)
		f.Roster.Conf = raftpb.ConfState{Learners: row.learners}
		for id := uint64(1); id <= 3; id++ {
			if !slices.Contains(row.learners, id) {
				f.Roster.Conf.Voters = append(f.Roster.Conf.Voters, id)
			}
		}
		if row.conf != nil {
			f.Roster.Conf = *row.conf
		}
		silent(f, 1, 3, 4, 5)
		for _, id := range row.heard {
			f.peer(id).HeardAt = now
		}
		causes := Examine(f).Causes
		if len(causes) != 1 || causes[0].Code != row.code || !strings.Contains(causes[0].Evidence, row.says) {
			t.Errorf("%s: %+v, want %s: %q", row.name, causes, row.code, row.says)
		}
	}
}

// Without a roster all members are voters.
func TestVotersBeforeARoster(t *testing.T) {
	f := follower()
	leaderless(f)
	f.Roster = nil
	if silent(f, 1, 3); !Examine(f).Has(diagnosis.CodeNoQuorum) {
		t.Error(Examine(f))
	}
}

// A call that ends says what its group was missing at that moment.
func TestMissing(t *testing.T) {
	for _, row := range []struct {
		name   string
		facts  func() *Facts
		change func(*Facts)
		want   Want
		says   string
	}{
		{"nothing", leader, func(*Facts) {}, Nothing, ""},
		{"a quorum", follower, func(f *Facts) { silent(f, 1, 3); f.peer(3).Heard = false }, Quorum, "[2] of 3, and a quorum is 2: host 1 was heard 10s ago, host 3 was not heard since"},
		{"a leader", follower, func(f *Facts) { f.Status.Leader = 0 }, Leader, "hosts [1 2 3] are heard, a quorum of 3 voters"},
		{"a leader that is silent", follower, func(f *Facts) { silent(f, 1) }, Work, "host 1 leads, as far as this host knows, and is silent"},
		{"copies", leader, func(f *Facts) { f.Status.LastIndex = 9 }, Work, "entries through 9 wait for a quorum of durable copies: this host has entry 8 on its disk, others acknowledge less: host 2 through 8, host 3 through 8"},
		{"the machine", leader, func(f *Facts) { f.Status.Applied = 7 }, Work, "has applied entry 7 last"},
		{"an answer", follower, func(*Facts) {}, Work, "host 1 leads, and has not answered this host"},
	} {
		f := row.facts()
		row.change(f)
		if want, text := Missing(f); want != row.want || !strings.Contains(text, row.says) || row.says == "" && text != "" {
			t.Errorf("%s: %d, %q", row.name, want, text)
		}
	}
}

// A proposal that waits during a change of members says which half of the voters lacks a quorum.
func TestWaitingNamesTheHalfWithoutQuorum(t *testing.T) {
	f := follower()
	f.Roster.Conf = raftpb.ConfState{VotersOutgoing: []uint64{1, 2, 3}, Voters: []uint64{1, 4, 5}}
	silent(f, 4, 5)
	f.peer(4).Heard = false
	if want, text := Missing(f); want != Quorum || !strings.Contains(text, "of the latter [1]: host 4 was not heard") {
		t.Errorf("of the new voters only host 1 is heard: %d, %q", want, text)
	}
}

// A learner that is down takes nothing from what may fail.
func TestUnreachableLearnerIsNoLoss(t *testing.T) {
	for _, row := range []struct {
		conf raftpb.ConfState
		says string
	}{
		{raftpb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{3}}, "the group commits without it"},
		{raftpb.ConfState{Voters: []uint64{1, 2, 3}}, "one member less can fail"},
	} {
		f := leader()
		f.Roster.Conf = row.conf
		silent(f, 3)
		causes := Examine(f).Causes
		if len(causes) != 1 || causes[0].Code != diagnosis.CodeMemberUnreachable || !strings.Contains(causes[0].Fix, row.says) {
			t.Errorf("%v: %+v, want %q", row.conf, causes, row.says)
		}
	}
}

// Refusals names both directions, and nothing of the past.
func TestRefusals(t *testing.T) {
	f := follower()
	f.peer(1).RefusedBy = &Refusal{Why: "a copy"}
	f.peer(3).Refused = &Refusal{Why: "another list", Latest: now}
	if have, want := Refusals(f), "host 1 refuses this host: a copy; this host refuses host 3: another list"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
	f = follower()
	f.peer(3).Refused = &Refusal{Latest: now - 8*election - 1}
	if have := Refusals(f); have != "" {
		t.Errorf("have %q", have)
	}
}
