package plans

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// script is a group by hand: its roster, what its core says, and what its plans have done.
type script struct {
	hosts
	roster   *membership.Roster
	status   raft.BasicStatus
	match    map[uint64]uint64
	now      int64
	full     bool
	unmet    bool
	proposed [][]byte
	changed  []membership.Change
	handed   []uint64
	answers  map[uint64]string
}

func (s *script) Roster() *membership.Roster                               { return s.roster }
func (s *script) Err() error                                               { return nil }
func (s *script) Ask(Request)                                              {}
func (s *script) Core() Core                                               { return s }
func (s *script) BasicStatus() raft.BasicStatus                            { return s.status }
func (s *script) Now() int64                                               { return s.now }
func (s *script) LogTime() time.Duration                                   { return time.Hour }
func (s *script) MayPropose() bool                                         { return !s.full }
func (s *script) IsSettled() bool                                          { return !s.unmet }
func (s *script) Propose(data []byte)                                      { s.proposed = append(s.proposed, data) }
func (s *script) Change(c membership.Change)                               { s.changed = append(s.changed, c) }
func (s *script) HoldsObjects(uint64) bool                                 { return true }
func (s *script) ObjectsWait(*membership.Roster, []membership.Step) string { return "" }
func (s *script) HandOver(to uint64, _ string)                             { s.handed = append(s.handed, to) }
func (s *script) Unbound(id uint64, why error)                             { s.answers[id] = why.Error() }
func (s *script) Skip(Request) error                                       { return nil }
func (s *script) Upgrade(Request) error                                    { return nil }
func (s *script) Joins(uint64, Applicant)                                  {}
func (s *script) Rejects(id uint64, why error)                             { s.answers[id] = why.Error() }

func (s *script) WithProgress(visit func(id uint64, kind raft.ProgressType, pr tracker.Progress)) {
	for id, match := range s.match {
		visit(id, raft.ProgressTypePeer, tracker.Progress{State: tracker.StateReplicate, Match: match})
	}
}

func (s *script) Successor(fits func(id uint64) bool) uint64 {
	for _, id := range s.roster.IDs() {
		if id != 1 && fits(id) {
			return id
		}
	}
	return raft.None
}

func (s *script) Send(to uint64, record []byte) {
	if a, err := DecodeAnswer(record); err == nil {
		s.answers[to] = a.Why
	} else if j, err := DecodeJoinRefused(record); err == nil {
		s.answers[to] = j.Why
	}
}

// commit puts an entry in force.
func (s *script) commit(t *testing.T, e raftpb.Entry) {
	t.Helper()
	e.Index = s.roster.Version + 1
	next, _, err := entry.RosterAfter(s.roster, &e)
	if err != nil {
		t.Fatal(err)
	}
	s.roster = next
}

// lead returns the plans of member 1, which leads n members.
func lead(n uint64) (*Group, *script) {
	s := &script{roster: founded(n), match: map[uint64]uint64{}, answers: map[uint64]string{}, now: 100}
	s.here, s.status.RaftState, s.status.LastIndex = []uint64{1, 2, 3, 4}, raft.StateLeader, 50
	p := new(Group)
	p.Init(s, Settings{Group: 7, Self: 1, Election: 10, Between: 1, Applicants: new(Applicants), Running: new(atomic.Int64)})
	return p, s
}

// A leader begins a plan as it was asked, proposes the promotion when the learner has caught up and not
// before, and ends the plan.
func TestALeaderCarriesOutAPlan(t *testing.T) {
	p, s := lead(3)
	p.Requests.Enqueue(begins(planOf(t, s.roster, add(4))))
	p.Step()
	if len(s.proposed) != 1 || s.proposed[0][0] != entry.PlanKind {
		t.Fatalf("it has proposed %v", s.proposed)
	}
	s.commit(t, raftpb.Entry{Type: raftpb.EntryHost, Data: s.proposed[0]})
	if !p.Step() || len(s.changed) != 1 || s.changed[0].Steps[0].Op != membership.Add {
		t.Fatalf("it has changed %v", s.changed)
	}
	s.enter(t)
	for _, now := range []int64{101, 102} {
		s.now = now
		if p.Step(); p.Waits() != "member 4 has not caught up" || len(s.changed) != 1 {
			t.Fatalf("it waits: %q, and has changed %v", p.Waits(), s.changed)
		}
	}
	s.match[4] = s.status.LastIndex
	if p.Step(); p.Waits() != "" || len(s.changed) != 2 || s.changed[1].Steps[0].Op != membership.Promote {
		t.Fatalf("it waits: %q, and has changed %v", p.Waits(), s.changed)
	}
	s.enter(t)
	if p.Step(); len(s.proposed) != 2 || s.proposed[1][0] != entry.EndKind {
		t.Errorf("it has proposed %v", s.proposed)
	}
}

// enter puts the last change in force.
func (s *script) enter(t *testing.T) {
	t.Helper()
	kind, data, err := raftpb.MarshalConfChange(s.changed[len(s.changed)-1].Entry())
	if err != nil {
		t.Fatal(err)
	}
	s.commit(t, raftpb.Entry{Type: kind, Data: data})
}

// A member that asks for what cannot be learns why. A member that does not lead, or whose log takes
// nothing, proposes nothing.
func TestRequestsThatAreNotForThisMember(t *testing.T) {
	p, s := lead(3)
	s.here = []uint64{1, 2}
	p.Requests.Enqueue(begins(planOf(t, s.roster, remove(2))))
	if p.Step(); len(s.proposed) != 0 || s.answers[2] == "" {
		t.Errorf("it has proposed %v and answered %v", s.proposed, s.answers)
	}
	for _, unfit := range []func(){func() { s.full = true }, func() { s.full, s.unmet = false, true }, func() { s.unmet, s.status.RaftState = false, raft.StateFollower }} {
		p, s = lead(3)
		unfit()
		p.Requests.Enqueue(begins(planOf(t, s.roster, add(4))))
		if p.Step(); len(s.proposed)+len(s.changed)+len(s.answers) != 0 {
			t.Errorf("it has proposed %v and answered %v", s.proposed, s.answers)
		}
	}
}

// A stage that takes the vote of the leader waits for another leader, which is asked once in an election
// timeout.
func TestALeaderThatGoesHandsOver(t *testing.T) {
	p, s := lead(3)
	s.commit(t, raftpb.Entry{Type: raftpb.EntryHost, Data: begins(planOf(t, s.roster, remove(1))).Data})
	for range 25 {
		p.Step()
		s.now++
	}
	if len(s.handed) != 3 || s.handed[0] != 2 || len(s.changed) != 0 {
		t.Errorf("it has handed over to %v and changed %v", s.handed, s.changed)
	}
}

// A host that comes with a token which the roster does not have is told once.
func TestAnApplicantIsTold(t *testing.T) {
	p, s := lead(3)
	if _, err := p.settings.Applicants.Record(4, []Applicant{{Group: 7, Incarnation: directory(4)}}); err != nil {
		t.Fatal(err)
	}
	if !p.Step() || s.answers[4] == "" {
		t.Fatal("it is not told")
	}
	delete(s.answers, 4)
	if p.Step(); s.answers[4] != "" || len(s.proposed) != 0 {
		t.Errorf("it is told again: %q", s.answers[4])
	}
}

// A member is bound to the key that it names itself, unless another one has that key.
func TestRekey(t *testing.T) {
	key := membership.Key{1}
	for _, row := range []struct {
		id, from   uint64
		has        membership.Key // of member 3
		proposed   int
		isAnswered bool
	}{{2, 2, membership.Key{}, 1, false}, {3, 2, membership.Key{}, 0, true}, {2, 2, key, 0, true}} {
		p, s := lead(3)
		s.roster.Members[2].Keys[0] = row.has
		k := membership.Rekey{ID: row.id, Incarnation: directory(row.id), Key: key}
		p.Requests.Enqueue(RequestOf(row.from, append([]byte{entry.RekeyKind}, k.Encode()...)))
		if p.Step(); len(s.proposed) != row.proposed || (s.answers[row.from] != "") != row.isAnswered {
			t.Errorf("%+v: it has proposed %v and answered %v", row, s.proposed, s.answers)
		}
	}
}
