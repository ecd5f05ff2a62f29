package leadership

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
)

// A leader whose state machine is stuck. Its group commits, but clients that read its state machine, or wait
// for a result of it, wait for ever. If only this host is to blame, another leader would do better. But a
// command that blocks every machine must not send the leadership round the cluster, from one blocked host to
// the next.
//
// The leader cannot tell the two apart by itself, because followers do not say what they have applied. So it
// asks, while nothing is applied here although something waits, and only then:
//
//	leader                                         every other member
//	nothing applied for StallTimeout ÷ 2:
//	goal := commit index
//	question 1                              ──►    in its turn, if it follows this leader in this term and
//	                                        ◄──    its disk takes entries: its applied index
//	nothing applied for StallTimeout:
//	question 2, then one in each            ──►
//	election timeout                        ◄──    applied index
//	hands over to a member that had reached the goal at an earlier question, too
//
// The goal is beyond the entry at which this leader is stuck. A member that has reached it has applied that
// entry, and what followed it. With a command that blocks every machine no member reaches it. The goal stays
// for as long as the leader is stuck, so a member that is slow reaches it one day.
//
// A member must have been ahead at two questions. So the leadership stays where it is if the machines of all
// members are slow, and one is ahead by a moment.
//
// Each leader that gives the leadership up for this reason has applied less than its goal, and its successor
// has applied it. So no host gets the leadership back for this reason until it has applied more.
//
// The member answers in a turn of the group, so an answer shows that its turns run; a lane that hangs does
// not keep it from answering. Questions and answers may be lost: the next question repeats them.

// stuckMachine is a leader's watch on its state machine. It belongs to the turn.
type stuckMachine struct {
	watch  examination.Standstill
	goal   uint64 // the commit index when the leader began to ask; 0: it does not ask
	number uint64 // of the latest question
	began  int64  // the tick of the first question
	next   int64  // of the next question
	before int64  // the tick of the question before the latest
	asked  int64  // and of the latest
	ahead  []aheadMember
}

// aheadMember is a member that has reached the goal, in its latest answer.
type aheadMember struct {
	id, applied   uint64
	match, had    uint64 // what it had durably of the log when it was asked last, and when it answered last
	first, latest uint64 // questions: since the first of them it has reached the goal
}

// If nothing is applied here for too long, checkMachine asks the members what they have applied. It hands
// over to one that is ahead. mayAct is false while another hand-over is under way, or was a moment ago.
func (l *Leader) checkMachine(now int64, mayAct bool) {
	s, bound := &l.machine, l.settings.Stall
	stalled := l.observeMachine(now)
	if l.turn.IsHalted() && stalled > 0 {
		stalled = max(stalled, bound+1) // it is known that nothing will be applied
	}
	if stalled <= bound/2 {
		s.end()
		return
	}
	if s.goal == 0 {
		s.goal, s.began, s.next = l.turn.Core().BasicStatus().Commit, now, now
	}
	if stalled > bound && mayAct && l.handOverAhead(stalled) {
		return
	}
	if now >= s.next {
		l.askApplied(now)
		if s.next = now + l.settings.Election; stalled <= bound {
			s.next = min(s.next, s.watch.Since+bound+1)
		}
	}
}

// end forgets what the members have answered.
func (s *stuckMachine) end() { s.goal, s.ahead = 0, nil }

// Due returns the tick at which Watch must look, if nothing else happens. It is called at the end
// of a turn, which may have handed something to the state machine.
func (l *Leader) Due() int64 {
	s := &l.machine
	if _, _, role := l.turn.Core().Leadership(); role != raft.StateLeader {
		return turn.Never
	}
	l.observeMachine(l.turn.Ticks())
	switch {
	case !s.watch.Busy:
		return turn.Never
	case s.goal == 0 && l.turn.IsHalted():
		return max(s.watch.Since, l.turn.Ticks()) + 1
	case s.goal == 0:
		return s.watch.Since + l.settings.Stall/2 + 1
	}
	return max(s.next, l.turn.Ticks()+1)
}

// askApplied asks every other member.
func (l *Leader) askApplied(now int64) {
	s := &l.machine
	s.number++
	s.before, s.asked = s.asked, now
	q := AppliedRecord{Group: l.settings.Group, Term: l.turn.Core().BasicStatus().Term, Number: s.number}
	question := q.Encode(control.AppliedQuestion)
	l.turn.Core().WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id != l.settings.Self {
			s.member(id).match = pr.Match
			l.turn.Send(id, question)
		}
	})
}

// Answer answers the questions of the leader: it says how far this member has applied, if it could lead. It
// is not able to if its disk takes nothing, or its log is being discarded.
func (l *Leader) Answer(questions []AppliedRecord, able bool) {
	for _, q := range questions {
		st := l.turn.Core().BasicStatus()
		if follows := st.RaftState == raft.StateFollower && st.Lead == q.From && st.Term == q.Term; !follows || !able {
			continue
		}
		q.Applied = min(l.turn.MachineApplied(st.Applied), st.Commit)
		l.turn.Send(q.From, q.Encode(control.AppliedAnswer))
	}
}

// recordAnswers takes the answers to the latest question.
func (l *Leader) recordAnswers(answers []AppliedRecord) {
	s := &l.machine
	for _, a := range answers {
		if s.goal == 0 || a.Number != s.number || a.Term != l.turn.Core().BasicStatus().Term {
			continue
		}
		m := s.member(a.From)
		m.had = m.match
		switch m.applied, m.latest = a.Applied, a.Number; {
		case a.Applied < s.goal:
			m.first = 0
		case m.first == 0:
			m.first = a.Number
		}
	}
}

// member returns what is known of a member, now or from now on. There are as many as there are other hosts,
// at most.
func (s *stuckMachine) member(id uint64) *aheadMember {
	for i := range s.ahead {
		if s.ahead[i].id == id {
			return &s.ahead[i]
		}
	}
	s.ahead = append(s.ahead, aheadMember{id: id})
	return &s.ahead[len(s.ahead)-1]
}

// handOverAhead hands the leadership to the member with most of the log among those that are ahead. It
// reports whether a transfer has begun.
func (l *Leader) handOverAhead(stalled int64) bool {
	target := l.memberAhead()
	if target == raft.None {
		return false
	}
	st := l.turn.Core().BasicStatus()
	if err := l.turn.Core().TransferLeader(target); err != nil {
		l.turn.Refused(err)
		return false
	}
	l.Rest()
	cause := fmt.Sprintf("its state machine has applied nothing for %v, its last entry is %d, and host %d has applied entry %d",
		time.Duration(stalled)*l.settings.Tick, min(l.turn.MachineApplied(st.Applied), st.Commit), target, l.machine.member(target).applied)
	l.turn.GivenUp(st.Term, target, cause)
	return true
}

// memberAhead returns the member with most of the log among those that have answered the latest question,
// have been ahead at an earlier one, and take entries. Those have the whole log, or have acknowledged an
// append since the question before. It returns None if there is none.
func (l *Leader) memberAhead() (target uint64) {
	s, most := &l.machine, uint64(0)
	last := l.turn.Core().BasicStatus().LastIndex
	l.turn.Core().WithProgress(func(id uint64, kind raft.ProgressType, pr tracker.Progress) {
		if !hasAuthority(kind, &pr) || id == l.settings.Self || pr.Match != last && !l.acks.Since(id, s.before) {
			return
		}
		m := s.member(id)
		ahead := m.first > 0 && m.first < m.latest && m.latest == s.number
		if ahead && (target == raft.None || pr.Match > most) {
			target, most = id, pr.Match
		}
	})
	return target
}

// observeMachine returns for how many ticks the machine has had work and applied nothing.
func (l *Leader) observeMachine(now int64) (stalled int64) {
	busy, progress := l.turn.Machine()
	return l.machine.watch.Observe(busy, progress, now)
}

// WatchesMachine reports whether the state machine has work: the leader must look, at the tick of Due.
func (l *Leader) WatchesMachine() bool { return l.machine.watch.Busy }

// IsAhead returns a member that has applied an entry, as it has said; false: none has.
func (l *Leader) IsAhead(index uint64) (id uint64, is bool) {
	for _, m := range l.machine.ahead {
		if m.applied >= index {
			return m.id, true
		}
	}
	return 0, false
}

// AwaitsAnswers reports whether members may still answer what they have applied. A leader that is halted asks
// at once.
func (l *Leader) AwaitsAnswers() bool {
	s := &l.machine
	return s.goal == 0 || l.turn.Ticks() < s.began+l.settings.Election
}

// AskAgain makes a leader that asks what is applied do so at its next look.
func (l *Leader) AskAgain() { l.machine.next = min(l.machine.next, l.turn.Ticks()) }

// LackWith reports whether a majority has not applied entry index, as each has said when it had entry of the
// log durably. This host counts as one of them.
func (l *Leader) LackWith(index, entry uint64) bool {
	return l.turn.IsQuorum(func(id uint64) bool {
		if id == l.settings.Self {
			return true
		}
		for _, m := range l.machine.ahead {
			if m.id == id {
				return m.had >= entry && m.applied < index
			}
		}
		return false
	})
}
