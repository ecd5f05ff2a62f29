package host

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/transport"
)

const (
	maxLooks  = 128
	maxWishes = 16
	// stopTimeouts is for how many election timeouts a host gets no leadership for placement after HandOver:
	// it will be stopped.
	stopTimeouts = 600
)

func (p *placer) init(h *Host) {
	p.host, p.loads = h, map[uint64]leadership.Load{}
	p.balance.Store(h.config.Balance)
}

// SetBalance turns balance on or off (Config.Balance). It is safe for concurrent use.
func (h *Host) SetBalance(on bool) { h.changes.placer.balance.Store(on) }

// add notes that a group leads here. A group that has stopped is refused: it was taken out when it stopped,
// and the turn under way must not put it back.
func (p *placer) add(g *Group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := &g.leadership.placing.led; at.In() == nil && g.Err() == nil {
		at.Owner = g
		p.led.Push(at)
		p.count(g)
	}
}

// drop notes that a group does not lead here.
func (p *placer) drop(g *Group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.leadership.placing.led.Leave()
	p.count(g)
}

// recount notes that the Placement of a group has changed.
func (p *placer) recount(g *Group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(g)
}

func (p *placer) count(g *Group) {
	prefers := g.leadership.placing.led.In() != nil && g.leadership.placing.preference.Load() != nil
	switch {
	case prefers && !g.leadership.placing.prefers:
		p.prefers++
	case !prefers && g.leadership.placing.prefers:
		p.prefers--
	}
	g.leadership.placing.prefers = prefers
}

// leads returns how many groups lead here.
func (p *placer) leads() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.led.Len()
}

// load is what this host says of itself.
func (h *Host) load(number uint64) leadership.Load {
	return leadership.Load{Number: number, Leads: uint64(h.changes.placer.leads()), Unfit: h.unfit(), Zone: h.config.Zone}
}

// unfit says why this host should get no leadership.
func (h *Host) unfit() leadership.Unfitness {
	now := h.clock.livedAtBeat()
	since, works := h.reports.watch.StalledDisk(h.storage.lane, now)
	switch {
	case h.shutdown.closing.Load() || now < h.changes.placer.stops.Load():
		return leadership.StopsSoon
	case h.storage.lane.Failed() || h.storage.lane.Parked() > 0 || works && now-since > int64(h.config.electionTicks()):
		return leadership.DiskStands
	case slices.ContainsFunc(h.shards, func(s *sched.Shard) bool { _, hung := s.Counts(); return hung > 0 }):
		return leadership.TurnsHang
	case h.appliers.Counts().Hung > 0:
		return leadership.MachinesHang
	}
	return leadership.Fit
}

// answered takes the answer of another host.
func (p *placer) answered(from uint64, l leadership.Load) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked && l.Number == p.number {
		p.loads[from] = l
	}
}

// beat takes the next step, if it is time. It is called once in a heartbeat interval, with the ticks that
// were not missed.
func (p *placer) beat(now int64) {
	question, wishes := p.step(now)
	if question != nil {
		for _, id := range p.host.others() {
			if p.host.isThere(id) {
				p.host.network.transport.SendBytes(id, transport.Control, question)
			}
		}
	}
	var w sched.Woken
	for _, wish := range wishes {
		wish.group.inbox.putWish(wish)
		w.Add(&wish.group.seat)
	}
	w.Wake()
}

// step returns the question to ask, or for which groups something should change.
func (p *placer) step(now int64) (question []byte, wishes []*wish) {
	p.mu.Lock()
	defer p.mu.Unlock()
	timeout := int64(p.host.config.electionTicks())
	switch {
	case p.prefers == 0 && (p.led.Len() < 2 || !p.balance.Load()):
		p.asked, p.left = false, 0
		return nil, nil
	case p.left > 0:
	case now < p.next:
		return nil, nil
	case !p.asked:
		p.number++
		p.asked, p.next = true, now+timeout
		return leadership.EncodeQuestion(p.number), nil
	default:
		p.begin(now)
	}
	wishes = p.look(now)
	if p.left == 0 {
		p.asked, p.next = false, now+timeout
	}
	return nil, wishes
}

// begin begins the looks of a survey.
func (p *placer) begin(now int64) {
	maps.DeleteFunc(p.loads, func(_ uint64, l leadership.Load) bool { return l.Number != p.number })
	p.left = p.led.Len()
	p.survey = survey{fits: map[uint64]*leadership.Load{}, spare: p.led.Len(), quotas: map[uint64]int{}}
	for id, l := range p.loads {
		if p.rejectHost(id, now) != "" {
			continue
		}
		p.fits[id] = &l
		if fewer := p.spare - int(l.Leads); fewer >= 2 {
			p.quotas[id] = max(1, fewer/(2*len(p.loads)))
		}
	}
}

// rejectHost says why a host gets no leadership for placement, or "".
func (p *placer) rejectHost(id uint64, now int64) string {
	steady := p.host.config.placementTicks()
	l, answered := p.loads[id]
	switch m := p.host.network.handshakes.Of(id); {
	case m == nil || !p.host.isThere(id):
		return fmt.Sprintf("host %d is not heard", id)
	case now-m.HeardSince.Load() < steady:
		return fmt.Sprintf("host %d has not been heard without a break for %v yet", id, p.host.config.ticksLong(steady))
	case !answered:
		return fmt.Sprintf("host %d has not said yet how much it leads", id)
	case l.Unfit != leadership.Fit:
		return fmt.Sprintf("host %d %v", id, l.Unfit)
	}
	return ""
}

// look looks at the next groups.
func (p *placer) look(now int64) (wishes []*wish) {
	for looks := min(p.left, maxLooks); looks > 0 && len(wishes) < maxWishes; looks-- {
		p.left--
		at := p.led.Pop()
		if at == nil {
			p.left = 0
			break
		}
		p.led.Push(at)
		if to := p.targets(at.Owner, now); to != nil {
			wishes = append(wishes, &wish{group: at.Owner, to: to})
		}
	}
	return wishes
}

// targets returns the members to which the leadership of a group should go, the best first, and counts it as
// given to that one.
func (p *placer) targets(g *Group, now int64) (to []target) {
	preference := g.leadership.placing.preference.Load()
	if preference == nil && !p.balance.Load() || p.rejectGroup(g, now) != "" {
		return nil
	}
	mine := preference.rank(g.self, p.host.config.Zone)
	better := false
	for _, id := range g.roster().Conf.Voters {
		l := p.fits[id]
		if l == nil || g.leavesOutMember(id) {
			continue
		}
		t := target{id: id, rank: preference.rank(id, l.Zone), leads: l.Leads, here: p.spare}
		t.better = t.rank > mine
		evens := p.balance.Load() && t.rank == mine && p.quotas[id] > 0 && p.spare-int(l.Leads) >= 2
		if t.better || evens {
			better = better || t.better
			to = append(to, t)
		}
	}
	to = slices.DeleteFunc(to, func(t target) bool { return t.better != better }) // priorities come before balance
	slices.SortFunc(to, func(a, b target) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.leads, b.leads), cmp.Compare(a.id, b.id))
	})
	if len(to) > 0 {
		p.spare--
		p.fits[to[0].id].Leads++
		if !better {
			p.quotas[to[0].id]--
		}
	}
	return to
}

// rejectGroup says why the leadership of a group stays here for now, whatever its Placement says, or "".
func (p *placer) rejectGroup(g *Group, now int64) string {
	c := &p.host.config
	since := g.life.roleTimes.Leads.Load()
	switch r := g.roster(); {
	case r == nil:
		return "the group is not founded"
	case r.Plan != nil || r.IsJoint():
		return "a plan is under way"
	case since < 0 || now-since < c.placementTicks():
		return fmt.Sprintf("this member has not led for %v yet", c.ticksLong(c.placementTicks()))
	case g.leadership.placing.rests(now):
		return fmt.Sprintf("a caller has asked for a transfer of the leadership less than %v ago", leadership.Window)
	case g.leadership.placing.moves(now, c.hourTicks()) >= leadership.MaxPlacements:
		return fmt.Sprintf("the leadership was handed over for placement %d times within %v, the most for a group", leadership.MaxPlacements, leadership.Window)
	}
	return ""
}

// explain returns the member that should lead instead of this one by a Placement, and why it does not yet.
func (p *placer) explain(g *Group, preference *Placement) (wants uint64, waits string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := preference.rank(g.self, p.host.config.Zone)
	for _, id := range g.voters() {
		if rank := preference.rank(id, p.loads[id].Zone); id != g.self && rank > best {
			wants, best = id, rank
		}
	}
	if wants == 0 {
		return 0, ""
	}
	now := p.host.clock.livedAtBeat()
	if waits = cmp.Or(p.rejectGroup(g, now), p.rejectHost(wants, now)); waits != "" {
		return wants, waits
	}
	if behind := g.leadership.placing.behind.Load(); behind != nil {
		return wants, *behind
	}
	return wants, "the next look at this group"
}

// takeMoved is told by a member that the leadership was handed over, in a term that this one knows.
func (g *Group) takeMoved(from uint64, r leadership.Moved) {
	if !g.isOther(from) || g.Err() != nil || r.Term > g.life.status.Load().Term {
		return
	}
	now, m := g.host.clock.livedAtBeat(), g.leadership.placing.recentOrNew()
	switch {
	case !m.IsNew(r.MoveName):
	case r.Asked:
		m.RestUntil(now + g.host.config.hourTicks())
	default:
		m.Note(now)
	}
}

// takePlacing takes a body about placement.
func (h *Host) takePlacing(from uint64, body []byte) error {
	switch body[0] {
	case control.LoadQuestion:
		var number uint64
		if err := control.DecodeNumbers(body, "a question about load", &number); err != nil {
			return err
		}
		h.network.transport.SendBytes(from, transport.Control, h.load(number).Encode())
	case control.LoadAnswer:
		l, err := leadership.DecodeLoad(body)
		if err != nil {
			return err
		}
		h.changes.placer.answered(from, l)
	default:
		r, err := leadership.DecodeMoved(body)
		if err != nil {
			return err
		}
		if g := h.groups.get(r.Group); g != nil {
			g.takeMoved(from, r)
		}
	}
	return nil
}

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
	g.leadership.placing.preference.Store(p.clone())
	g.host.changes.placer.recount(g)
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
	s := PlacementStatus{Recent: g.leadership.placing.moves(g.host.clock.livedAtBeat(), g.host.config.hourTicks())}
	p := g.leadership.placing.preference.Load()
	if p == nil {
		return s
	}
	s.Placement = *p.clone()
	if g.life.roleTimes.Leads.Load() >= 0 && g.Err() == nil {
		s.Wants, s.Waits = g.host.changes.placer.explain(g, p)
	}
	return s
}
