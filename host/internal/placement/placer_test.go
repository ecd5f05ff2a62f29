package placement

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
)

// Priority comes before zone, the first zone before the others, and priority 0 after all.
func TestRanks(t *testing.T) {
	p := &Preference{Priorities: map[uint64]int{1: 2, 2: 2, 5: 0}, Zones: []string{"a", "b"}}
	order := []string{"2 in a", "1 in b", "1 in c", "3 in a", "4 in b", "4 in ", "5 in a", "5 in c"}
	last := 1 << 30
	for _, text := range order {
		var id uint64
		zone := ""
		_, _ = fmt.Sscanf(text, "%d in %s", &id, &zone)
		rank := p.rank(id, zone)
		if rank >= last {
			t.Errorf("member %s ranks %d, and the one before it %d", text, rank, last)
		}
		last = rank
	}
	if (*Preference)(nil).rank(1, "a") != 0 {
		t.Error("without a preference members differ")
	}
}

// scripted is a host, one of three, and its one group, which leads. It implements Wiring, Group and Turn.
type scripted struct {
	now    int64
	roster *membership.Roster
	sent   int
	left   *Wish
	seat   sched.Seat

	core    raft.BasicStatus
	level   map[uint64]uint64 // what the other members hold
	refuses error
	changes bool
	given   []uint64
}

const (
	election  = 10
	heartbeat = 2
)

// open begins with a group that leads, and a host that has been there for long.
func open(balance bool, preference *Preference) (*scripted, *Placer, *Member) {
	s := &scripted{
		now: 2 * SteadyTimeouts * election, roster: membership.Founded([]membership.Member{{ID: 1}, {ID: 2}, {ID: 3}}),
		level: map[uint64]uint64{2: 7, 3: 7},
	}
	s.core.RaftState, s.core.LastIndex = raft.StateLeader, 7
	shard := sched.New(sched.Settings{Hasten: func() {}, Outbox: func() sched.Outbox { return nil }})
	shard.Start(func(env.Worker) env.Task { return asleep{} })
	shard.Enter(&s.seat, nil, func(sched.Time) {})
	p, m := new(Placer), new(Member)
	p.Open(Settings{Self: 1, Tick: time.Second, Heartbeat: heartbeat, Election: election}, s, balance)
	m.Open(p, s, preference)
	p.Add(m)
	return s, p, m
}

// asleep is the worker of a shard that runs no turn: the test does.
type asleep struct{}

func (asleep) Wake() {}
func (asleep) Stop() {}

func (s *scripted) Now() int64                      { return s.now }
func (s *scripted) Others() []uint64                { return []uint64{2, 3} }
func (s *scripted) HeardSince(uint64) (int64, bool) { return 0, true }
func (s *scripted) Send(uint64, []byte)             { s.sent++ }
func (s *scripted) Fitness() Unfitness              { return Fit }
func (s *scripted) Err() error                      { return nil }
func (s *scripted) Roster() *membership.Roster      { return s.roster }
func (s *scripted) Voters() []uint64                { return s.roster.Voters() }
func (s *scripted) LeadsSince() int64               { return 0 }
func (s *scripted) Excludes(uint64) bool            { return false }
func (s *scripted) Leave(w *Wish)                   { s.left = w }
func (s *scripted) Seat() *sched.Seat               { return &s.seat }
func (s *scripted) Core() Core                      { return s }
func (s *scripted) Ticks() int64                    { return s.now }
func (s *scripted) Discards() bool                  { return false }
func (s *scripted) Rests() bool                     { return false }
func (s *scripted) ChangesMembers() bool            { return s.changes }
func (s *scripted) Lacks(uint64) string             { return "" }
func (s *scripted) Refused(error)                   {}
func (s *scripted) HandedOver(to uint64, _ string)  { s.given = append(s.given, to) }
func (s *scripted) BasicStatus() raft.BasicStatus   { return s.core }
func (s *scripted) TransferLeader(uint64) error     { return s.refuses }

func (s *scripted) WithProgress(f func(uint64, raft.ProgressType, tracker.Progress)) {
	for id, match := range s.level {
		f(id, raft.ProgressTypePeer, tracker.Progress{Match: match, RecentActive: true, State: tracker.StateReplicate})
	}
}

// survey lets a survey pass, in which both other hosts answer.
func (s *scripted) survey(p *Placer, zone map[uint64]string) {
	p.Beat() // asks
	for id := range s.level {
		p.Answered(id, Load{Number: p.number, Zone: zone[id]})
	}
	s.now += election
	p.Beat() // looks
}

// A survey leaves a wish, and the turn carries it out when a member is level, the best first. A member that
// is behind is waited for, and after an election timeout the wish ends and says why.
func TestAWishGoesToTheBestLevelMember(t *testing.T) {
	two := &Preference{Priorities: map[uint64]int{2: 5, 3: 4}}
	for _, row := range []struct {
		name   string
		script func(*scripted)
		want   uint64 // 0: no member
		waits  string
	}{
		{"both are level", func(*scripted) {}, 2, ""},
		{"the best is behind", func(s *scripted) { s.level[2] = 6 }, 3, ""},
		{"both are behind", func(s *scripted) { s.level[2], s.level[3] = 6, 5 }, 0, "member 2 is behind: it holds entry 6 of 7"},
		{"a plan has begun", func(s *scripted) { s.roster = &membership.Roster{Conf: s.roster.Conf, Plan: &membership.Plan{}} }, 0, "the members change"},
		{"a change is noted", func(s *scripted) { s.changes = true }, 0, "the members change"},
		{"it leads no more", func(s *scripted) { s.core.RaftState = raft.StateFollower }, 0, "this member does not lead"},
		{"it hands over", func(s *scripted) { s.core.LeadTransferee = 3 }, 0, "another hand-over is under way, or was a moment ago"},
		{"the core refuses", func(s *scripted) { s.refuses = raft.ErrProposalDropped }, 0, raft.ErrProposalDropped.Error()},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, p, m := open(false, two)
			s.survey(p, nil)
			if s.sent != 2 || s.left == nil {
				t.Fatalf("%d questions, and the wish %+v", s.sent, s.left)
			}
			row.script(s)
			for again := m.Advance(s, s.left); again; again = m.Advance(s, nil) {
				s.now++
			}
			if row.want != 0 && (!slices.Equal(s.given, []uint64{row.want}) || p.Begun() != 1) || row.want == 0 && s.given != nil {
				t.Errorf("it is handed over to %v, want %d", s.given, row.want)
			}
			if behind := m.behind.Load(); row.waits != "" && (behind == nil || *behind != row.waits) || row.waits == "" && behind != nil {
				t.Errorf("it waits for %v, want %q", behind, row.waits)
			}
		})
	}
}

// A host that prefers no member and leads one group asks nothing, and balance alone moves nothing then.
func TestAHostThatMovesNothingAsksNothing(t *testing.T) {
	s, p, m := open(true, nil)
	s.survey(p, nil)
	if s.sent != 0 {
		t.Errorf("%d questions", s.sent)
	}
	m.Prefer(&Preference{Zones: []string{"near"}})
	s.survey(p, map[uint64]string{3: "near"})
	if s.left == nil || s.left.to[0].id != 3 {
		t.Errorf("the wish is %+v, want host 3", s.left)
	}
	s.left = nil
	p.Drop(m)
	s.now += 10 * election
	s.survey(p, map[uint64]string{3: "near"})
	if s.left != nil || s.sent != 2 {
		t.Errorf("a group that does not lead here should go to %+v", s.left.to)
	}
}

// A host that leads 10,000 groups looks at a bounded number of them in a step, and at all of them in a
// survey. It gives away half of what another host leads less.
func TestStepsAreBounded(t *testing.T) {
	s, p, m := open(true, nil)
	p.Drop(m)
	const groups = 10_000
	for range groups {
		m := new(Member)
		m.Open(p, s, nil)
		p.Add(m)
	}
	now := s.now
	if question, _ := p.step(now); question == nil {
		t.Fatal("a host with many groups asks nothing")
	}
	p.Answered(2, Load{Number: p.number, Leads: groups})
	p.Answered(3, Load{Number: p.number, Leads: 0})
	steps, given := 0, 0
	began := time.Now()
	for now = p.next; p.asked; steps++ {
		_, wishes := p.step(now)
		if len(wishes) > maxWishes {
			t.Fatalf("a step begins %d hand-overs", len(wishes))
		}
		for _, w := range wishes {
			if len(w.to) != 1 || w.to[0].id != 3 {
				t.Fatalf("a group should go to %+v", w.to)
			}
		}
		given += len(wishes)
	}
	t.Logf("%d hand-overs in %d steps, %v for each", given, steps, time.Since(began)/time.Duration(steps))
	if given != groups/4 || steps < groups/maxLooks {
		t.Errorf("%d groups are given away in %d steps, want %d: the other host gives as many", given, steps, groups/4)
	}
}
