package host

import (
	"fmt"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
)

// lacks names something that a member must have before it leads, and lacks as far as this leader knows; "":
// nothing. The log of the member may be whole.
func (g *Group) lacks(id uint64) (what string) {
	if s := g.machine.objects.LackedBy(id); s != nil {
		return fmt.Sprintf("object %v", s.ID)
	}
	return ""
}

// successor returns the other member with most of the log among those that fit, or None. One that is known to
// lack an object that commands may name does not.
func (g *Group) successor(fits func(id uint64, pr tracker.Progress) bool) (target uint64) {
	most := uint64(0)
	g.core.node.WithProgress(func(id uint64, kind raft.ProgressType, pr tracker.Progress) {
		if hasAuthority(kind, &pr) && id != g.self && fits(id, pr) && g.lacks(id) == "" && (target == raft.None || pr.Match > most) {
			target, most = id, pr.Match
		}
	})
	return target
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
