package tracker

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/quorum"
	"github.com/millrace/millrace/raft/raftpb"
)

// Whatever a follower answers, in whatever order, Match never goes back, Match < Next, and the window holds
// only appends between them.
func TestProgressInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last := rapid.Uint64Range(0, 20).Draw(t, "last index")
		p := &MakeMembers(MakeConfig(raftpb.ConfState{Voters: []uint64{1}}), last, 3, 0)[0].Progress
		for range 60 {
			before := *p
			index := rapid.Uint64Range(0, last).Draw(t, "index")
			switch rapid.IntRange(0, 8).Draw(t, "event") {
			case 0:
				last++
			case 1:
				if news := p.MaybeUpdate(index); news != (index > before.Match) {
					t.Fatalf("an acknowledgement of %d after %d: news %t", index, before.Match, news)
				}
				if p.State == StateReplicate {
					p.Inflights.FreeLE(p.Match)
				}
			case 2:
				hint := rapid.Uint64().Draw(t, "hint")
				if p.MaybeDecrTo(index, hint) && p.State == StateReplicate {
					p.BecomeProbe()
				} else if p.Next > before.Next {
					t.Fatalf("a rejection moved next from %d to %d", before.Next, p.Next)
				}
			case 3:
				p.BecomeProbe()
			case 4:
				p.BecomeReplicate()
			case 5:
				if n := last + 1 - p.Next; !p.IsPaused() && !p.Inflights.Full() {
					p.SentEntries(int(n), n)
				}
			case 7:
				p.BecomeSnapshot(rapid.Uint64Range(p.Match, last).Draw(t, "snapshot"))
				if !p.IsPaused() || p.Next != p.PendingSnapshot+1 {
					t.Fatalf("a snapshot is under way: %s", p)
				}
			case 8:
				if p.AbortSnapshot(); p.State == StateSnapshot {
					p.BecomeProbe()
					if p.Next != p.Match+1 {
						t.Fatalf("a snapshot was lost: %s", p)
					}
				}
			case 6:
				p.SentCommit(rapid.Uint64Range(0, last).Draw(t, "commit"))
				p.MsgAppFlowPaused = false
			}
			if p.PendingSnapshot != 0 && p.State != StateSnapshot {
				t.Fatalf("a snapshot is pending in %v", p.State)
			}
			if p.Match < before.Match || p.Match >= p.Next || p.Next > last+1 {
				t.Fatalf("match %d (was %d) < next %d <= last+1 %d", p.Match, before.Match, p.Next, last+1)
			}
			if p.State == StateProbe && p.Inflights.Count() > 0 {
				t.Fatalf("%v has a window", p)
			}
		}
	})
}

func TestMaybeDecrTo(t *testing.T) {
	for _, c := range []struct {
		name           string
		state          StateType
		match, next    uint64
		rejected, hint uint64
		moved          bool
		wantNext       uint64
	}{
		{"replicate: stale, acknowledged since", StateReplicate, 5, 10, 5, 3, false, 10},
		{"replicate: back to what is acknowledged", StateReplicate, 5, 10, 9, 9, true, 6},
		{"probe: not the one outstanding", StateProbe, 0, 10, 5, 3, false, 10},
		{"probe: the hint is taken", StateProbe, 0, 10, 9, 3, true, 4},
		{"probe: one step at least", StateProbe, 0, 10, 9, 9, true, 9},
		{"probe: never behind what is acknowledged", StateProbe, 5, 10, 9, 2, true, 6},
		{"probe: a hint beyond all", StateProbe, 0, 10, 9, 1<<64 - 1, true, 9},
		{"probe: at the beginning", StateProbe, 0, 1, 0, 0, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &Progress{State: c.state, Match: c.match, Next: c.next, Inflights: NewInflights(1, 0)}
			if moved := p.MaybeDecrTo(c.rejected, c.hint); moved != c.moved || p.Next != c.wantNext {
				t.Fatalf("moved %t to next %d, want %t to %d", moved, p.Next, c.moved, c.wantNext)
			}
		})
	}
}

func TestCanBumpCommit(t *testing.T) {
	p := &Progress{Match: 5, Next: 8, Inflights: NewInflights(1, 0)}
	p.SentCommit(4)
	for commit, want := range map[uint64]bool{3: false, 4: false, 5: true, 9: true} {
		if have := p.CanBumpCommit(commit); have != want {
			t.Errorf("commit %d after 4: have %t, want %t", commit, have, want)
		}
	}
	p.SentCommit(7) // everything that the follower was sent
	if p.CanBumpCommit(9) {
		t.Error("the follower has no entry beyond 7 that could be committed")
	}
}

func TestMembers(t *testing.T) {
	c := MakeConfig(raftpb.ConfState{Voters: []uint64{5, 1}, VotersOutgoing: []uint64{1, 3}, Learners: []uint64{9, 3}})
	members := MakeMembers(c, 10, 4, 0)
	var ids []uint64
	for _, p := range members {
		ids = append(ids, p.ID)
		if !c.IsMember(p.ID) {
			t.Errorf("%d is no member", p.ID)
		}
	}
	if len(ids) != 4 || ids[0] != 1 || ids[1] != 3 || ids[2] != 5 || ids[3] != 9 {
		t.Fatalf("have members %v, want 1 3 5 9", ids)
	}
	if members.Get(3).IsLearner || !members.Get(9).IsLearner { // 3 still votes in the outgoing half
		t.Error("9 alone is a learner")
	}
	if members.Get(2) != nil || c.IsMember(2) {
		t.Error("2 is no member")
	}
	if _, found := members.AckedIndex(2); found {
		t.Error("2 has acknowledged nothing")
	}
	if members.QuorumActive(c, 1, 0, 10) {
		t.Error("1 alone is no quorum")
	}
	members.Get(5).RecentActive = true
	if members.QuorumActive(c, 1, 0, 10) {
		t.Error("1 and 5 are no quorum of the outgoing half")
	}
	members.Get(3).RecentActive = true
	if !members.QuorumActive(c, 1, 0, 10) {
		t.Error("1, 3 and 5 are a quorum of both halves")
	}
	members.Get(3).Asked(5)
	if !members.QuorumActive(c, 1, 14, 10) {
		t.Error("3 has owed an answer for less than the timeout")
	}
	if members.QuorumActive(c, 1, 15, 10) {
		t.Error("without 3, which owes an answer, 1 and 5 are no quorum of the outgoing half")
	}
}

func TestProgressString(t *testing.T) {
	p := &Progress{Match: 1, Next: 2, IsLearner: true, Inflights: NewInflights(1, 0)}
	p.BecomeReplicate()
	p.SentEntries(1, 9)
	if have, want := p.String(), "StateReplicate match=1 next=3 learner paused inactive inflight=1[full]"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
	p.Inflights = nil // as in raft.Status
	if have, want := p.String(), "StateReplicate match=1 next=3 learner paused inactive"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
	for s, want := range map[StateType]string{StateProbe: "StateProbe", StateSnapshot: "StateSnapshot", 7: "StateType(7)"} {
		if s.String() != want {
			t.Errorf("have %v, want %s", s, want)
		}
	}
}

// What a follower owes, event by event. Each event happens at its own tick, and want is the SilentFor at tick
// 100.
func TestSilentFor(t *testing.T) {
	send := func(n int) func(*Progress, int) {
		return func(p *Progress, now int) {
			p.SentEntries(n, 1)
			p.Asked(now)
		}
	}
	ack := func(index uint64) func(*Progress, int) {
		return func(p *Progress, now int) {
			p.Answered(index, now)
			if p.MaybeUpdate(index) && p.State != StateReplicate {
				p.BecomeReplicate()
			}
			p.Inflights.FreeLE(index)
		}
	}
	reject := func(rejected uint64) func(*Progress, int) {
		return func(p *Progress, now int) {
			p.Answered(0, now)
			p.MaybeDecrTo(rejected, 0)
		}
	}
	unreachable := func(p *Progress, _ int) { p.BecomeProbe() }
	snapshot := func(p *Progress, _ int) { p.BecomeSnapshot(20) }
	type events = []func(*Progress, int)
	for name, c := range map[string]struct {
		events events
		want   int
	}{
		"nothing was sent":                 {nil, 0},
		"a probe":                          {events{send(1)}, 100},
		"a second append":                  {events{send(1), send(1)}, 100},
		"a probe, answered":                {events{send(1), ack(10)}, 0},
		"all appends, answered":            {events{send(1), ack(10), send(1), send(1), ack(12)}, 0},
		"one of two appends, answered":     {events{send(1), ack(10), send(1), send(1), ack(11)}, 96},
		"an old answer":                    {events{send(1), ack(10), send(1), send(1), ack(5)}, 96},
		"an old rejection":                 {events{send(1), ack(10), send(1), send(1), reject(5)}, 96},
		"a probe, rejected":                {events{send(1), reject(9)}, 0},
		"a probe, rejected, and the next":  {events{send(1), reject(9), send(1)}, 98},
		"unreachable":                      {events{send(1), ack(10), send(1), unreachable}, 98},
		"unreachable, and asked again":     {events{send(1), ack(10), send(1), unreachable, send(1)}, 98},
		"unreachable, and answered later":  {events{send(1), ack(10), send(1), unreachable, ack(11)}, 0},
		"a snapshot in place of an append": {events{send(1), snapshot}, 0},
	} {
		p := &Progress{Match: 0, Next: 10, Inflights: NewInflights(8, 0)}
		for now, event := range c.events {
			event(p, now)
		}
		if have := p.SilentFor(100); have != c.want {
			t.Errorf("%s: silent for %d ticks, want %d", name, have, c.want)
		}
	}
}

// The twin of QuorumActive votes: a member that is active votes in favour.
func TestQuorumActiveIsAVote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 7), 0, 5, rapid.ID[uint64])
		c := MakeConfig(raftpb.ConfState{Voters: ids.Draw(t, "voters"), VotersOutgoing: ids.Draw(t, "outgoing"), Learners: ids.Draw(t, "learners")})
		members := MakeMembers(c, 10, 4, 0)
		self, now := rapid.Uint64Range(1, 7).Draw(t, "self"), 15
		votes := map[uint64]bool{}
		for i := range members {
			p := &members[i].Progress
			p.RecentActive = rapid.Bool().Draw(t, "heard")
			asked := rapid.IntRange(0, now).Draw(t, "asked at")
			if asked > 0 {
				p.Asked(asked)
			}
			late := asked > 0 && now-asked >= 10
			votes[members[i].ID] = members[i].ID == self || p.RecentActive && !late
		}
		want := c.Voters.VoteResult(votes) == quorum.VoteWon
		if have := members.QuorumActive(c, self, now, 10); have != want {
			t.Fatalf("%v of %v: have %t, want %t", votes, c.Voters, have, want)
		}
	})
}

func TestQuorumActiveAllocatesNothing(t *testing.T) {
	c := MakeConfig(raftpb.ConfState{Voters: []uint64{1, 2, 3}})
	members := MakeMembers(c, 10, 4, 0)
	if n := testing.AllocsPerRun(100, func() { members.QuorumActive(c, 1, 0, 10) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
