package host

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
	"github.com/millrace/millrace/transport"
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
// That a member must have been ahead at two questions keeps the leadership where it is if the machines of all
// members are slow, and one is ahead by a moment.
//
// Each leader that gives the leadership up for this reason has applied less than its goal, and its successor
// has applied it. So no host gets the leadership back for this reason until it has applied more.
//
// The member answers in a turn of the group, so an answer shows that its turns run; a lane that hangs does
// not keep it from answering. Questions and answers may be lost: the next question repeats them.

// checkApply asks the members what they have applied, if nothing is applied here for too long, and hands over
// to one that is ahead. mayAct is false while another hand-over is under way, or was a moment ago.
func (g *Group) checkApply(now int64, mayAct bool) {
	s, bound := &g.leadership.stalls.machine, g.host.config.stallTicks()
	stalled := s.watch.Observe(g.applyWaits(), g.machine.apply.Progress(), now)
	if g.machine.apply.Halted() != nil && stalled > 0 {
		stalled = max(stalled, bound+1) // it is known that nothing will be applied
	}
	if stalled <= bound/2 {
		s.end()
		return
	}
	if s.goal == 0 {
		s.goal, s.began, s.next = g.core.node.BasicStatus().Commit, now, now
	}
	if stalled > bound && mayAct && g.handOverAhead(stalled) {
		return
	}
	if now >= s.next {
		g.askApplied(now)
		if s.next = now + int64(g.host.config.electionTicks()); stalled <= bound {
			s.next = min(s.next, s.watch.Since+bound+1)
		}
	}
}

// applyWaits reports whether committed entries wait for the state machine, or are in it.
func (g *Group) applyWaits() bool { return g.machine.apply.Held() > 0 }

// end forgets what the members have answered.
func (s *stuckApply) end() { s.goal, s.ahead = 0, nil }

// stuckDue returns the tick at which checkApply must look, if nothing else happens. It is called at the end
// of a turn, which may have handed something to the state machine.
func (g *Group) stuckDue() int64 {
	s := &g.leadership.stalls.machine
	if g.core.node.BasicStatus().RaftState != raft.StateLeader {
		return never
	}
	s.watch.Observe(g.applyWaits(), g.machine.apply.Progress(), g.core.at.Ticks)
	switch {
	case !s.watch.Busy:
		return never
	case s.goal == 0 && g.machine.apply.Halted() != nil:
		return max(s.watch.Since, g.core.at.Ticks) + 1
	case s.goal == 0:
		return s.watch.Since + g.host.config.stallTicks()/2 + 1
	}
	return max(s.next, g.core.at.Ticks+1)
}

// askApplied asks every other member.
func (g *Group) askApplied(now int64) {
	s := &g.leadership.stalls.machine
	s.number++
	s.before, s.asked = s.asked, now
	q := leadership.AppliedRecord{Group: g.id, Term: g.core.node.BasicStatus().Term, Number: s.number}
	question := q.Encode(control.AppliedQuestion)
	g.core.node.WithProgress(func(id uint64, _ raft.ProgressType, _ tracker.Progress) {
		if id != g.self {
			g.host.network.transport.SendBytes(id, transport.Control, question)
		}
	})
}

// answerApplied answers the questions of the leader: it says how far this member has applied, if it could
// lead.
func (g *Group) answerApplied() (again bool) {
	for _, q := range g.work.taken.questions {
		st := g.core.node.BasicStatus()
		follows := st.RaftState == raft.StateFollower && st.Lead == q.From && st.Term == q.Term
		if !follows || g.writes.append.Full.Load() || g.writes.discarding.waitsForLane {
			continue
		}
		q.Applied = min(g.machine.apply.MachineApplied(st.Applied), st.Commit)
		g.host.network.transport.SendBytes(q.From, transport.Control, q.Encode(control.AppliedAnswer))
	}
	return false
}

// noteApplied takes the answers to the latest question.
func (g *Group) noteApplied() {
	s := &g.leadership.stalls.machine
	for _, a := range g.work.taken.applied {
		if s.goal == 0 || a.Number != s.number || a.Term != g.core.node.BasicStatus().Term {
			continue
		}
		m := s.member(a.From)
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
func (s *stuckApply) member(id uint64) *aheadMember {
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
func (g *Group) handOverAhead(stalled int64) bool {
	target := g.memberAhead()
	if target == raft.None {
		return false
	}
	st := g.core.node.BasicStatus()
	if err := g.core.node.TransferLeader(target); err != nil {
		g.noteRefusal(err)
		return false
	}
	g.leadership.stalls.actAfter = g.core.at.Ticks + int64(2*g.host.config.electionTicks())
	cause := fmt.Sprintf("its state machine has applied nothing for %v, its last entry is %d, and host %d has applied entry %d",
		time.Duration(stalled)*g.host.config.tickPeriod(), g.Status().Applied, target, g.leadership.stalls.machine.member(target).applied)
	g.reportGivenUp(event.LeadershipGivenUp{Group: g.id, Term: st.Term, To: target, Cause: cause})
	return true
}

// memberAhead returns the member with most of the log among those that have answered the latest question,
// have been ahead at an earlier one, and take entries: they have the whole log, or have acknowledged an
// append since the question before. It returns None if there is none.
func (g *Group) memberAhead() (target uint64) {
	s, most := &g.leadership.stalls.machine, uint64(0)
	last := g.core.node.BasicStatus().LastIndex
	g.core.node.WithProgress(func(id uint64, kind raft.ProgressType, pr tracker.Progress) {
		if !hasAuthority(kind, &pr) || id == g.self || pr.Match != last && !g.leadership.stalls.acks.Since(id, s.before) {
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

// takeApplied takes a question or an answer of another host.
func (h *Host) takeApplied(from uint64, body []byte) error {
	r, err := leadership.DecodeApplied(body)
	if err != nil {
		return err
	}
	r.From = from
	if g := h.groups.get(r.Group); g != nil {
		g.inbox.putApplied(r, body[0] == control.AppliedQuestion)
		g.wake()
	}
	return nil
}
