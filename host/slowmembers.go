package host

import (
	"slices"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
)

// slowMembers is a leader's watch on its followers, for event.MemberSlow. It belongs to the turn.
type slowMembers struct {
	checkedAt int64 // tick
	watches   []memberWatch
}

type memberWatch struct {
	id uint64
	examination.Standstill
	told bool
}

// checkMembers reports followers that lag and acknowledge nothing, once in a tick at most.
func (g *Group) checkMembers() (again bool) {
	w, now := &g.leadership.slow, g.core.at.ticks
	if now == w.checkedAt {
		return false
	}
	w.checkedAt = now
	st := g.core.node.BasicStatus()
	if st.RaftState != raft.StateLeader {
		w.watches = nil
		return false
	}
	bound := int64(2 * g.host.config.electionTicks())
	g.core.node.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == g.self {
			return
		}
		m := w.member(id)
		switch stalled := m.Observe(pr.Match < st.LastIndex, pr.Match, now); {
		case stalled <= bound:
			m.told = false
		case !m.told:
			m.told = true
			e := event.MemberSlow{Group: g.id, Member: id, Behind: st.LastIndex - pr.Match, For: time.Duration(stalled) * g.host.config.tickPeriod()}
			g.host.reports.events.emit(e)
			g.host.env.logger.Warn("a member has acknowledged nothing for long; look at its host and its disk", "group", e.Group, "host", g.self, "member", e.Member, "behind", e.Behind, "for", e.For)
		}
	})
	return false
}

// member returns the watch on a member. There are as many as members that the core knows.
func (w *slowMembers) member(id uint64) *memberWatch {
	i := slices.IndexFunc(w.watches, func(m memberWatch) bool { return m.id == id })
	if i < 0 {
		i = len(w.watches)
		w.watches = append(w.watches, memberWatch{id: id})
	}
	return &w.watches[i]
}
