package host

import (
	"time"

	"github.com/millrace/millrace/raft"
)

// A group that waits says so in the log, and for whom: after two election timeouts, and then at growing
// distances. Without it a log says only that connections fail, and a cluster whose third host was never
// started looks as if it hung. The turns that expire election timeouts look, so a line costs no timer.

// sayWhatIsMissing logs what the group waits for if it is not founded or knows no leader, and once that it
// waits no more.
func (g *Group) sayWhatIsMissing() (again bool) {
	w, now := &g.life.waiting, g.core.at.Ticks-g.core.at.Missed
	isFounded := g.members.founding.IsFounded() && !(g.members.Joins && !g.members.IsBound())
	waited := time.Duration(now-w.since) * g.host.config.tickPeriod()
	switch isWaiting := !isFounded || g.core.node.BasicStatus().Lead == raft.None; {
	case !isWaiting && !w.waits:
	case !isWaiting:
		if w.said {
			g.host.env.logger.Info("the group waits no more", "group", g.id, "host", g.self, "waited", waited)
		}
		*w = waitingLine{}
	case !w.waits:
		w.waits, w.since = true, now
	case now-w.since > 2*int64(g.host.config.electionTicks()):
		if _, ok := w.gate.Admit(time.Duration(now) * g.host.config.tickPeriod()); !ok {
			return true
		}
		missing := g.missingNow()
		if missing == nil {
			return true
		}
		log := g.host.env.logger.Warn
		if w.said = true; !isFounded {
			log = g.host.env.logger.Info // a part of every first start
		}
		log("the group waits", "group", g.id, "host", g.self, "waited", waited, "cause", missing)
	}
	return w.waits
}
