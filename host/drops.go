package host

import "github.com/millrace/millrace/host/event"

// noteDropped counts, reports and logs messages that were dropped.
func (g *Group) noteDropped(n int, why string) {
	before := g.proposals.dropped.Add(uint64(n)) - uint64(n)
	// Once for each power of two that is passed.
	if after := before + uint64(n); before == 0 || before^after > before {
		g.host.reports.events.emit(event.MessagesDropped{Group: g.id, Count: after, Cause: why})
		g.host.env.logger.Warn("messages dropped", "group", g.id, "host", g.self, "why", why, "dropped", after)
	}
}

// noteRefusal counts and logs an input that the core refused without a change of its state.
func (g *Group) noteRefusal(err error) {
	if err == nil {
		return
	}
	// Powers of two: the first is seen at once, and a flood does not fill the log.
	if n := g.proposals.refused.Add(1); n&(n-1) == 0 {
		g.host.env.logger.Warn("input refused", "group", g.id, "host", g.self, "cause", err, "refused", n)
	}
}
