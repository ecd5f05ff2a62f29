package host

import (
	"slices"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
)

// What a leader has found is told to the members, so that Explain says it wherever it is asked. A finding
// counts while the member follows the leader that has told it. It is told when it is new, and then at each
// report of a member. A member that holds one says so in its reports, and is told when the members agree.
// So a record that is lost is told again.

// toldFinding is what a leader has told this member.
type toldFinding struct {
	event.Diverged
	from  uint64
	since int64 // when it was told first, in ticks
}

// tell tells all other members what was found.
func (d *divergence) tell(g *Group) {
	for _, id := range g.memberIDs() {
		if id != g.self {
			d.answer(g, id, false)
		}
	}
}

// answer tells a member what stands: a difference, or that there is none if it believes that there is one.
func (d *divergence) answer(g *Group, to uint64, told bool) {
	finding := event.Diverged{Group: g.id, In: event.DivergedOptions}
	d.mu.Lock()
	if d.latest != nil {
		finding = *d.latest
	}
	d.mu.Unlock()
	if finding.Index > 0 || told {
		g.host.transport.SendBytes(to, transport.Control, encodeFinding(&finding))
	}
}

// takeFinding takes what a leader has found, from the leader that this member follows only.
func (h *Host) takeFinding(from uint64, body []byte) error {
	if isForeign(body) {
		return nil
	}
	found, err := decodeFinding(body)
	if err != nil {
		return err
	}
	g := h.groups.get(found.Group)
	if g == nil || !g.hasCommands || from == g.self || g.status.Load().Leader != from {
		return nil
	}
	d := &g.divergence
	d.mu.Lock()
	was := d.told
	isNew := found.Index > 0 && (was == nil || was.from != from || !sameDifference(&was.Diverged, &found))
	switch {
	case found.Index == 0:
		d.told = nil
	case isNew:
		d.told = &toldFinding{found, from, h.clock.lived()}
	default:
		d.told = &toldFinding{found, from, was.since}
	}
	d.mu.Unlock()
	if isNew {
		h.env.logger.Error("members have diverged, as the leader says", "group", g.id, "host", g.self, "leader", from, "what", found.String())
	}
	return nil
}

// standing returns the difference that stands as far as this host knows, who has found it, and since when in
// ticks. It returns nil if there is none, or no leader is known.
func (g *Group) standing() (found *event.Diverged, by uint64, since int64) {
	d, leader := &g.divergence, g.status.Load().Leader
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case leader == raft.None:
		return nil, 0, 0
	case leader == g.self && d.latest != nil:
		found, since = d.latest, d.since
	case leader != g.self && d.told != nil && d.told.from == leader:
		found, since = &d.told.Diverged, d.told.since
	default:
		return nil, 0, 0
	}
	clone := *found
	clone.Members = slices.Clone(clone.Members)
	return &clone, leader, since
}

// Diverged returns the difference that stands: what this host has found as the leader, or was told by the
// leader that it follows. It is false if there is none, or no leader is known. It never waits, and any
// goroutine may call it.
func (g *Group) Diverged() (event.Diverged, bool) {
	if found, _, _ := g.standing(); found != nil {
		return *found, true
	}
	return event.Diverged{}, false
}

// divergenceMetrics returns what Metrics says of the comparison.
func (g *Group) divergenceMetrics() (m DivergenceMetrics) {
	if found, _, _ := g.standing(); found != nil {
		m.DifferAt = found.Index
	}
	d := &g.divergence
	d.mu.Lock()
	defer d.mu.Unlock()
	m.AgreedAt, m.Found = d.agreed, d.found
	return m
}

// lookForDivergence finds members whose states differ (Explain).
func (e *examination) lookForDivergence() {
	d, by, since := e.standing()
	if d == nil {
		return
	}
	member := uint64(0)
	for _, m := range d.Members {
		if m.Minority && member == 0 {
			member = m.ID
		}
	}
	fix := "find what is not the same on every host: the order of a map, the clock, chance, another program; then restart the members that are wrong with an empty state machine"
	switch d.In {
	case event.DivergedOptions:
		fix = "give all members of the group the same CommandOptions.Sessions (Machine.Sessions); those that differ from a majority stop"
	case event.DivergedCommands:
		fix = "check the disks and the logs of these hosts (millrace wal verify), and report it: this must not happen"
	}
	if by != e.self {
		e.found(CodeDiverged, member, since, fix, "host %d, which leads, says: %v", by, d)
		return
	}
	e.found(CodeDiverged, member, since, fix, "%v", d)
}
