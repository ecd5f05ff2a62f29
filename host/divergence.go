package host

import (
	"fmt"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/transport"
)

// This file wires package divergence: what it knows of a group, what it does to one, and who asks it.

// receiveDivergence receives what another member says about divergence.
func (h *Host) receiveDivergence(from uint64, body []byte) error {
	r, group, err := divergence.Decode(body)
	if r == nil {
		return err
	}
	if g := h.groups.get(group); g != nil && g.proposals.hasCommands {
		g.machine.divergence.Receive(from, r)
	}
	return nil
}

// comparison implements divergence.Wiring.
type comparison Group

func (g *comparison) Leader() uint64          { return g.life.status.Load().Leader }
func (g *comparison) Members() []uint64       { return (*Group)(g).memberIDs() }
func (g *comparison) IsMember(id uint64) bool { return g.members.Has(id) }
func (g *comparison) IsThere(id uint64) bool  { return (*Group)(g).isThere(id) }
func (g *comparison) Life(id uint64) uint64   { return g.host.trust.admission.Last(id).Life }
func (g *comparison) Now() int64              { return g.host.clock.awake() }

func (g *comparison) Voters() int {
	if r := (*Group)(g).roster(); r != nil {
		return len(r.Conf.Voters)
	}
	if b := g.members.founding.Bound(); b != nil {
		return len(*b)
	}
	return len((*Group)(g).memberIDs())
}

func (g *comparison) Send(to uint64, record []byte) {
	g.host.network.transport.SendBytes(to, transport.Control, record)
}

func (g *comparison) Found(d *event.Diverged) {
	g.host.reports.events.Emit(*d)
	g.host.env.logger.Error("members have diverged", "group", g.id, "host", g.self, "what", d.String())
}

func (g *comparison) Told(leader uint64, d *event.Diverged) {
	g.host.env.logger.Error("members have diverged, as the leader says", "group", g.id, "host", g.self, "leader", leader, "what", d.String())
}

func (g *comparison) Yield() {
	g.inbox.orderHandOver()
	(*Group)(g).wakeUrgently()
}

func (g *comparison) Stop(o *divergence.Order) {
	(*Group)(g).fail(fmt.Errorf("%w: %v", outcome.ErrDiverged, o))
}

// isThere reports whether something of a member, and of its host, was heard lately. Any goroutine of a leader
// may call it.
func (g *Group) isThere(member uint64) bool {
	for _, v := range g.life.views.Load() {
		if v.ID == member && v.At-v.ActiveAt > 2*int64(g.host.config.electionTicks()) {
			return false
		}
	}
	return g.host.isThere(member)
}

// Diverged returns the difference that stands: what this host has found as the leader, or was told by the
// leader that it follows. It is false if there is none, or no leader is known. It never waits, and any
// goroutine may call it.
func (g *Group) Diverged() (event.Diverged, bool) {
	if found, _, _ := g.machine.divergence.Standing(); found != nil {
		return *found, true
	}
	return event.Diverged{}, false
}
