package host

// A host that was removed from a group here, and is a member of no other one, is forgotten when it has been
// silent for departedTimeouts election timeouts: it is dialed no more, asked nothing, and named neither by
// Explain nor by metrics. It may still come. Then it is told that it was removed (refusals.go,
// rosterquery.go), and is known again for as long as it speaks.
//
// Rejected: to forget a host as soon as it is removed. It may have missed that, and asks. Rejected: to refuse
// its connections. It would never learn why.

// departedTimeouts is how long, in election timeouts, a removed host is silent before it is forgotten.
const departedTimeouts = 16

// forgetDeparted forgets the hosts that have gone for good. It is called once in two election timeouts.
func (h *Host) forgetDeparted() {
	now := h.clock.awakeAtBeat()
	for _, id := range h.others() {
		p := h.network.handshakes.Of(id)
		if p != nil && now-p.HeardAt.Load() > departedTimeouts*int64(h.config.electionTicks()) && h.isDeparted(id) {
			h.forget(id)
		}
	}
}

// isDeparted reports whether a host was removed from a group here and is needed by none.
func (h *Host) isDeparted(id uint64) bool {
	departed := false
	for _, g := range h.groups.all() {
		if g.needs(id) {
			return false
		}
		departed = departed || g.members.HasRemoved(id)
	}
	return departed && !h.changes.applicants.Has(id)
}

// needs reports whether a host is a member of the group, leads it, or is about to become a member.
func (g *Group) needs(id uint64) bool {
	return g.members.Has(id) || g.life.status.Load().Leader == id || g.members.View().WillHave(id)
}

// forget makes a host unknown. Its read lane stays, for the day when it is known again.
func (h *Host) forget(id uint64) {
	if h.network.peers.Forget(id) {
		h.env.logger.Info("a host is forgotten: it was removed, and is silent", "host", h.config.ID, "peer", id)
	}
}
