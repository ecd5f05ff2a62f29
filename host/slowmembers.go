package host

import (
	"time"

	"github.com/millrace/millrace/host/event"
)

// checkMembers reports followers that lag and acknowledge nothing, once in a tick at most.
func (g *Group) checkMembers() (again bool) {
	g.leadership.slow.Observe(g.core.node, g.self, g.core.at.Ticks, int64(2*g.host.config.electionTicks()), g.reportSlow)
	return false
}

func (g *Group) reportSlow(id, behind uint64, stalled int64) {
	e := event.MemberSlow{Group: g.id, Member: id, Behind: behind, For: time.Duration(stalled) * g.host.config.tickPeriod()}
	g.host.reports.events.Emit(e)
	g.host.env.logger.Warn("a member has acknowledged nothing for long; look at its host and its disk", "group", e.Group, "host", g.self, "member", e.Member, "behind", e.Behind, "for", e.For)
}

// watchMembers looks at the followers, once in a tick at most. It is part of a turn.
func (g *Group) watchMembers() (again bool) {
	now := g.core.at.Ticks - g.core.at.Missed
	g.life.views.Observe(g.core.node, g.self, now, int64(g.host.config.electionTicks()), func(id uint64) { g.host.askIfAlive(id, now) })
	return false
}
