package host

import (
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/transport"
)

// What hosts tell each other when they meet, in bodies of kind transport.Control: greeting 1 │ flags u8.
const (
	greetsAll byte = 1 // every other host is met
	greetsAsk byte = 2 // answer this
	greetsSet byte = 4 // tell how you are set
)

// greet sends a greeting.
func (h *Host) greet(to uint64, flags byte) {
	if h.network.handshakes.AreAllMet() {
		flags |= greetsAll
	}
	h.network.transport.SendBytes(to, transport.Control, []byte{control.Greeting, flags})
}

// greetUnmet greets the hosts that were not met, or have not met all others, if a group waits for them.
func (h *Host) greetUnmet() {
	if h.network.handshakes.Unfounded.Load() == 0 {
		if h.trust.authority.WaitsForMeetings() && !h.network.handshakes.AreAllMet() {
			for _, id := range h.others() {
				if !h.network.handshakes.Has(id) {
					h.greet(id, greetsAsk)
				}
			}
		}
		return
	}
	for _, id := range h.others() {
		if p := h.network.handshakes.Of(id); p != nil && (!p.Met.Load() || !p.Ready.Load()) {
			h.greet(id, greetsAsk)
		}
	}
}

// greetRefusing greets the hosts that refuse this one, so that the end of a refusal is noticed. It is called
// once in two election timeouts.
func (h *Host) greetRefusing() {
	for _, id := range h.others() {
		if h.network.handshakes.Refusal(id) != nil {
			h.greet(id, greetsAsk)
		}
	}
}

// askSettings asks the hosts that are heard and have not said how they are set: the body may have been
// lost. A host of an earlier version does not answer. Each is asked in each heartbeat interval of the first
// two election timeouts, since a leader gives each command an entry of its own meanwhile. Then it is asked
// rarely.
func (h *Host) askSettings(rarely bool) {
	if h.config.SingleEntries {
		return
	}
	now, two := h.clock.awakeAtBeat(), int64(2*h.config.electionTicks())
	for _, id := range h.others() {
		p := h.network.handshakes.Of(id)
		if p == nil || !p.Met.Load() || p.Settings.Load() != nil || now-p.HeardAt.Load() > two {
			continue
		}
		if rarely || now-p.HeardSince.Load() <= two {
			h.greet(id, greetsSet)
		}
	}
}

// askIfAlive greets a host, at most twice in an election timeout. So Explain can tell a host that is down
// from one that is up and has nothing to say.
func (h *Host) askIfAlive(id uint64, now int64) {
	p := h.network.handshakes.Of(id)
	if p == nil {
		return
	}
	if was := p.AskedAt.Load(); now-was > int64(h.config.electionTicks()/2) && p.AskedAt.CompareAndSwap(was, now) {
		h.greet(id, greetsAsk)
	}
}

// countUnfounded counts the group among those for which hosts must meet. For the first one the host greets
// the others at once, so that the last host that comes does not cost a heartbeat interval.
func (g *Group) countUnfounded() {
	if g.members.founding.Count(true) && g.host.network.handshakes.Unfounded.Add(1) == 1 {
		g.host.greetUnmet()
	}
}
