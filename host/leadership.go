package host

import (
	"fmt"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
	"github.com/millrace/millrace/transport"
)

// lacks names something that a member must have before it leads, and lacks as far as this leader knows; "":
// nothing. The log of the member may be whole.
func (g *Group) lacks(id uint64) (what string) {
	if s := g.machine.objects.LackedBy(id); s != nil {
		return fmt.Sprintf("object %v", s.ID)
	}
	return ""
}

// reportGivenUp tells listeners that the leadership is given up.
func (g *Group) reportGivenUp(e event.LeadershipGivenUp) {
	g.life.counts.givenUp.Add(1)
	g.host.reports.events.Emit(e)
	log := g.host.env.logger.Warn
	if e.Placement {
		log = g.host.env.logger.Info
	}
	log("millrace: the leader gives its leadership up", "group", e.Group, "host", g.self, "term", e.Term, "to", e.To, "cause", e.Cause)
}

// tellMoved notes that the leadership is handed over from here, and tells the other members.
func (g *Group) tellMoved(term uint64, asked bool) {
	body := g.leadership.placing.Moves(g.id, term, asked).Encode()
	for _, id := range g.memberIDs() {
		if id != g.self {
			g.host.network.transport.SendBytes(id, transport.Control, body)
		}
	}
}

// leadingGroup implements leadership.Turn.
type leadingGroup Group

func (g *leadingGroup) Core() leadership.LeaderCore           { return g.core.node }
func (g *leadingGroup) Ticks() int64                          { return g.core.at.Ticks }
func (g *leadingGroup) IsHalted() bool                        { return g.machine.apply.Halted() != nil }
func (g *leadingGroup) Lacks(id uint64) string                { return (*Group)(g).lacks(id) }
func (g *leadingGroup) IsThere(id uint64) bool                { return g.host.isThere(id) }
func (g *leadingGroup) NotLeader(leads uint64) error          { return g.host.notLeader(leads) }
func (g *leadingGroup) Transferred(term uint64)               { (*Group)(g).tellMoved(term, true) }
func (g *leadingGroup) Refused(err error)                     { (*Group)(g).countRefusal(err) }
func (g *leadingGroup) IsQuorum(is func(id uint64) bool) bool { return g.members.IsQuorum(is) }

func (g *leadingGroup) Disk() (busy bool, rounds uint64, full bool) {
	q := g.writes.append
	return q.Held() > 0, q.Rounds(), q.Full.Load()
}

func (g *leadingGroup) Machine() (busy bool, progress uint64) {
	q := g.machine.apply
	return q.Held() > 0, q.Progress()
}

func (g *leadingGroup) MachineApplied(index uint64) uint64 {
	return g.machine.apply.MachineApplied(index)
}

func (g *leadingGroup) Send(to uint64, body []byte) {
	g.host.network.transport.SendBytes(to, transport.Control, body)
}

func (g *leadingGroup) GivenUp(term, to uint64, cause string) {
	(*Group)(g).reportGivenUp(event.LeadershipGivenUp{Group: g.id, Term: term, To: to, Cause: cause})
}

// openLeader begins the watch of a group on its own work.
func (g *Group) openLeader() {
	c := &g.host.config
	g.leadership.leader.Open(leadership.Settings{
		Group: g.id, Self: g.self, Heartbeat: ticksPerHeartbeat, Election: int64(c.electionTicks()), Stall: c.stallTicks(), Tick: c.tickPeriod(),
	}, (*leadingGroup)(g))
}

// checkStall gives the leadership up if this leader's own work stands still.
func (g *Group) checkStall() (again bool) { return g.leadership.leader.Watch(g.work.taken.applied) }

// stuckDue returns the tick at which checkStall must look, if nothing else happens.
func (g *Group) stuckDue() int64 { return g.leadership.leader.Due() }

// answerApplied answers the questions of the leader about what is applied.
func (g *Group) answerApplied() (again bool) {
	able := !g.writes.append.Full.Load() && !g.writes.discarding.waitsForLane && !g.machine.apply.MayApplyHeld()
	g.leadership.leader.Answer(g.work.taken.questions, able)
	return false
}

// receiveApplied receives a question or an answer of another host about what is applied.
func (h *Host) receiveApplied(from uint64, body []byte) error {
	r, err := leadership.DecodeApplied(body)
	if err != nil {
		return err
	}
	r.From = from
	if g := h.groups.get(r.Group); g != nil {
		g.inbox.enqueueApplied(r, body[0] == control.AppliedQuestion)
		g.wake()
	}
	return nil
}

// handOver hands the leadership to the member with most of the log, because this host is about to stop. It
// reports whether a transfer is under way.
func (g *Group) handOver() bool {
	st := g.core.node.BasicStatus()
	if st.RaftState != raft.StateLeader {
		return false
	}
	target := g.leadership.leader.Successor(func(_ uint64, pr tracker.Progress) bool { return pr.RecentActive })
	if target == raft.None {
		// The check of the quorum has just begun to count again, and no answer has come since.
		target = g.leadership.leader.Successor(func(id uint64, pr tracker.Progress) bool {
			return pr.State == tracker.StateReplicate && pr.Match == st.LastIndex && g.host.isThere(id)
		})
	}
	if target == raft.None {
		return false
	}
	if err := g.core.node.TransferLeader(target); err != nil {
		g.countRefusal(err)
		return false
	}
	g.reportGivenUp(event.LeadershipGivenUp{Group: g.id, Term: st.Term, To: target, Cause: "its host is about to stop"})
	return true
}
