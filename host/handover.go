package host

import (
	"fmt"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
)

// The turn's part in placement. A survey of the host has chosen members for a group (placer); only the turn
// knows whether one of them is level. A member is level if it has authority, was active since the last check
// of the quorum, gets the log as it grows (no snapshot, no probing), and holds all that the log had a
// heartbeat interval ago. Then the transfer, in which the leader takes no commands, takes about two round
// trips. A member of an idle group is level at once.
//
// If no member of the wish is level for an election timeout, the wish ends. The next survey makes another.

// advancePlacement hands over as a wish says, when a member is level. It is part of a turn.
func (g *Group) advancePlacement() (again bool) {
	p, now := &g.leadership.placing, g.core.at.ticks
	if w := g.work.taken.wish; w != nil {
		g.work.taken.wish = nil
		w.began, w.marked, w.goal = now, now, g.core.node.BasicStatus().LastIndex
		p.wish = w
	}
	if p.wish == nil {
		return false
	}
	if why := g.rejectWish(); why != "" {
		p.end(why)
		return false
	}
	to, behind := g.levelTarget(p.wish)
	switch {
	case to != nil:
		g.handOverTo(to)
	case now-p.wish.began >= int64(g.host.config.electionTicks()):
		p.end(behind)
	}
	return p.wish != nil
}

// end gives a wish up.
func (p *groupPlacing) end(why string) {
	p.wish = nil
	p.behind.Store(&why)
}

// rejectWish says why this turn must not hand over for placement, or "".
func (g *Group) rejectWish() string {
	st := g.core.node.BasicStatus()
	switch r := g.roster(); {
	case st.RaftState != raft.StateLeader || g.writes.discarding.waitsForLane:
		return "this member does not lead"
	case st.LeadTransferee != raft.None || g.core.at.ticks < g.leadership.stalls.actAfter:
		return "another hand-over is under way, or was a moment ago"
	case r == nil || r.Plan != nil || r.IsJoint() || g.members.noted.Any():
		return "the members change"
	}
	return ""
}

// levelTarget returns the first target of a wish that is level. Until a heartbeat interval has passed since
// the end of the log was noted, only the best one counts. Otherwise it says why the best is not level.
func (g *Group) levelTarget(w *wish) (level *target, behind string) {
	waited := g.core.at.ticks-w.marked >= ticksPerHeartbeat
	for i := range w.to {
		why := g.rejectTarget(w.to[i].id, w.goal, waited)
		if why == "" {
			return &w.to[i], ""
		}
		if i == 0 {
			behind = why
		}
		if !waited {
			break
		}
	}
	if waited {
		w.marked, w.goal = g.core.at.ticks, g.core.node.BasicStatus().LastIndex
	}
	return nil, behind
}

// rejectTarget says why a member is not level, or "". goal was the end of the log at some time, and waited
// says that this is a heartbeat interval ago.
func (g *Group) rejectTarget(id, goal uint64, waited bool) string {
	kind := raft.ProgressTypeLearner
	var pr tracker.Progress
	g.core.node.WithProgress(func(other uint64, is raft.ProgressType, of tracker.Progress) {
		if other == id {
			kind, pr = is, of
		}
	})
	last := g.core.node.BasicStatus().LastIndex
	switch {
	case kind != raft.ProgressTypePeer:
		return fmt.Sprintf("member %d does not vote", id)
	case pr.WithoutAuthority:
		return fmt.Sprintf("member %d is without authority", id)
	case !pr.RecentActive:
		return fmt.Sprintf("member %d was not heard lately", id)
	case pr.State == tracker.StateSnapshot:
		return fmt.Sprintf("member %d gets a snapshot", id)
	case g.lacks(id) != "":
		return fmt.Sprintf("member %d lacks %s", id, g.lacks(id))
	case pr.State != tracker.StateReplicate, pr.Match < goal, !waited && pr.Match < last:
		return fmt.Sprintf("member %d is behind: it holds entry %d of %d", id, pr.Match, last)
	}
	return ""
}

// handOverTo begins the transfer to a target.
func (g *Group) handOverTo(to *target) {
	g.leadership.placing.wish = nil
	if err := g.core.node.TransferLeader(to.id); err != nil {
		g.noteRefusal(err)
		g.leadership.placing.end(err.Error())
		return
	}
	g.leadership.placing.behind.Store(nil)
	g.leadership.stalls.actAfter = g.core.at.ticks + int64(2*g.host.config.electionTicks())
	term := g.core.node.BasicStatus().Term
	g.noteHandedOver(term, false)
	g.life.counts.placed.Add(1)
	g.host.changes.placer.begun.Add(1)
	g.reportGivenUp(event.LeadershipGivenUp{Group: g.id, Term: term, To: to.id, Cause: g.placedBecause(to), Placement: true})
}

// placedBecause says why a target should lead.
func (g *Group) placedBecause(to *target) string {
	if !to.better {
		return fmt.Sprintf("balance: %d groups lead on this host, and %d on host %d", to.here, to.leads, to.id)
	}
	p, h := g.leadership.placing.preference.Load(), g.host
	return fmt.Sprintf("placement: host %d (%s) should rather lead than this one (%s)", to.id, p.describe(to.id, h.changes.placer.zone(to.id)), p.describe(g.self, h.config.Zone))
}

// zone returns the zone of a host, as far as it is known.
func (p *placer) zone(id uint64) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loads[id].Zone
}

// wishDue returns the tick at which a turn must look at its wish again.
func (g *Group) wishDue() int64 {
	if g.leadership.placing.wish == nil {
		return never
	}
	return g.core.at.ticks + ticksPerHeartbeat
}
