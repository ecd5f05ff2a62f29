package host

import (
	"slices"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/placement"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/transport"
)

// This file wires package placement: what it knows of a host and of a group, and who tells it what.

// SetBalance turns balance on or off (Config.Balance). It is safe for concurrent use.
func (h *Host) SetBalance(on bool) { h.changes.placer.Balance(on) }

// SetPlacement changes which members should lead the group, as this member sees it, until it is closed. The
// zero value makes all members equal. It acts while this member leads; set it on all members. It is safe for
// concurrent use.
func (g *Group) SetPlacement(p Placement) error {
	if err := g.Err(); err != nil {
		return outcome.WithCause(outcome.ErrStopped, err)
	}
	if err := p.Validate(); err != nil {
		return err
	}
	g.leadership.placing.Prefer(placement.Preference(p).Clone())
	return nil
}

// PlacementStatus says where the leader of a group should be, as one of its members sees it.
type PlacementStatus struct {
	Placement Placement // in force on this member
	// Wants is the member that should lead instead of this one by Placement, and Waits why it does not yet,
	// in words. They are 0 and empty if no member should, and on a member that does not lead. Balance has no
	// member in mind before it hands over, and is not among them.
	Wants uint64
	Waits string
	// Recent is how many hand-overs for the sake of placement this member knows of in the past hour, by any
	// leader of the group. With 4, the leader stays.
	Recent int
}

// Placement returns where the leader of the group should be, as this member sees it. It never waits.
func (g *Group) Placement() PlacementStatus {
	s := g.leadership.placing.Status()
	status := PlacementStatus{Wants: s.Wants, Waits: s.Waits, Recent: s.Recent}
	if s.Preference != nil {
		status.Placement = Placement(*s.Preference.Clone())
	}
	return status
}

// openPlacer begins placement of a host.
func (h *Host) openPlacer() {
	c := &h.config
	h.changes.placer.Open(placement.Settings{
		Self: c.ID, Zone: c.Zone, Tick: c.tickPeriod(), Heartbeat: ticksPerHeartbeat, Election: int64(c.electionTicks()),
	}, (*placedHost)(h), c.Balance)
}

// placedHost implements placement.Wiring.
type placedHost Host

func (h *placedHost) Now() int64       { return h.clock.awakeAtBeat() }
func (h *placedHost) Others() []uint64 { return (*Host)(h).others() }

func (h *placedHost) HeardSince(id uint64) (tick int64, is bool) {
	m := h.network.handshakes.Of(id)
	if m == nil || !(*Host)(h).isThere(id) {
		return 0, false
	}
	return m.HeardSince.Load(), true
}

func (h *placedHost) Send(to uint64, body []byte) {
	h.network.transport.SendBytes(to, transport.Control, body)
}

// Fitness says why this host should get no leadership.
func (h *placedHost) Fitness() placement.Unfitness {
	now := h.clock.awakeAtBeat()
	since, works := h.reports.watch.StalledDisk(h.storage.lane, now)
	switch {
	case h.shutdown.closing.Load():
		return placement.StopsSoon
	case h.storage.lane.Failed() || h.storage.lane.Parked() > 0 || works && now-since > int64(h.config.electionTicks()):
		return placement.DiskStands
	case slices.ContainsFunc(h.shards, func(s *sched.Shard) bool { _, hung := s.Counts(); return hung > 0 }):
		return placement.TurnsHang
	case h.appliers.Counts().Hung > 0:
		return placement.MachinesHang
	}
	return placement.Fit
}

// placedGroup implements placement.Group and, while a turn runs, placement.Turn.
type placedGroup Group

func (g *placedGroup) Err() error                 { return (*Group)(g).Err() }
func (g *placedGroup) Roster() *membership.Roster { return (*Group)(g).roster() }
func (g *placedGroup) Voters() []uint64           { return g.members.Voters() }
func (g *placedGroup) LeadsSince() int64          { return g.life.roleTimes.Leads.Load() }
func (g *placedGroup) Excludes(id uint64) bool    { return g.members.Excludes(id) }
func (g *placedGroup) Leave(w *placement.Wish)    { g.inbox.leaveWish(w) }
func (g *placedGroup) Seat() *sched.Seat          { return &g.seat }
func (g *placedGroup) Core() placement.Core       { return g.core.node }
func (g *placedGroup) Ticks() int64               { return g.core.at.Ticks }
func (g *placedGroup) Discards() bool             { return g.writes.discarding.waitsForLane }
func (g *placedGroup) Rests() bool                { return g.leadership.leader.Rests() }
func (g *placedGroup) ChangesMembers() bool       { return g.members.Noted.Any() }
func (g *placedGroup) Lacks(id uint64) string     { return (*Group)(g).lacks(id) }
func (g *placedGroup) Refused(err error)          { (*Group)(g).countRefusal(err) }

func (g *placedGroup) HandedOver(to uint64, why string) {
	term := g.core.node.BasicStatus().Term
	g.leadership.leader.Rest()
	g.life.counts.placed.Add(1)
	(*Group)(g).tellMoved(term, false)
	(*Group)(g).reportGivenUp(event.LeadershipGivenUp{Group: g.id, Term: term, To: to, Cause: why, Placement: true})
}

// advancePlacement hands over as a wish says, when a member is level. It is part of a turn.
func (g *Group) advancePlacement() (again bool) {
	came := g.work.taken.wish
	g.work.taken.wish = nil
	return g.leadership.placing.Advance((*placedGroup)(g), came)
}

// wishDue returns the tick at which a turn must look at its wish again.
func (g *Group) wishDue() int64 {
	if !g.leadership.placing.HasWish() {
		return never
	}
	return g.core.at.Ticks + ticksPerHeartbeat
}

// receivePlacing receives a body about placement.
func (h *Host) receivePlacing(from uint64, body []byte) error {
	switch body[0] {
	case control.LoadQuestion:
		var number uint64
		if err := control.DecodeNumbers(body, "a question about load", &number); err != nil {
			return err
		}
		h.network.transport.SendBytes(from, transport.Control, h.changes.placer.Load(number).Encode())
	case control.LoadAnswer:
		l, err := placement.DecodeLoad(body)
		if err != nil {
			return err
		}
		h.changes.placer.Answered(from, l)
	default:
		r, err := placement.DecodeMoved(body)
		if err != nil {
			return err
		}
		if g := h.groups.get(r.Group); g != nil && g.members.HasOther(from) && g.Err() == nil && r.Term <= g.life.status.Load().Term {
			g.leadership.placing.Told(r)
		}
	}
	return nil
}
