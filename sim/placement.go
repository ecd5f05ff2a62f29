package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// PlacementStory is what happens in a run of Placement.
type PlacementStory int

// The stories.
const (
	Uneven    PlacementStory = iota // hosts crash, are cut off and come back; then all lead alike
	Ranked                          // the same; then each group is led by a member that its Placement ranks first
	Flapping                        // the member that should lead crashes again and again, for hours
	AtOdds                          // each member wants another one to lead, for hours
	OneBehind                       // the member that should lead hears its leader and gets no entries for a while
)

// Placement runs one scenario with many groups on three or five hosts. After faults have stopped, the
// leaders are where they should be within ten minutes. They follow the ranks of the groups, and are even
// among equal hosts, one more or fewer. Then no leadership is handed over for an hour. In no story does a
// group move more than four times within an hour for placement, and never to a member that is behind. It
// returns how many leaderships were handed over for placement. The error, if any, is a *Violation.
func Placement(o Options, story PlacementStory) (moved int, err error) {
	o.hosts = pick(splitSeed(o.Seed, 12), 3, 3, 5)
	o.groups = pick(splitSeed(o.Seed, 12), 7, 12, 16)
	if story != Uneven && story != Ranked {
		o.groups = 3
	}
	err = scenario(o, func(w *world, rng *rand.Rand) {
		s := &placing{w: w, rng: rng}
		w.placing = s
		w.config.HeartbeatInterval, w.config.ElectionTimeout = 2*time.Second, 5*time.Second // an hour is long
		w.net.slowest = pick(rng, 300*time.Microsecond, 30*time.Millisecond)
		switch story {
		case Uneven:
			w.config.Balance = true
			s.findsItsLeaders()
		case Ranked:
			w.config.Balance = true
			s.drawRanks()
			s.findsItsLeaders()
		case Flapping:
			s.flaps()
		case AtOdds:
			s.atOdds()
		case OneBehind:
			s.oneBehind()
		}
		moved = len(s.moves)
	})
	return moved, err
}

// placing is a run of Placement.
type placing struct {
	w     *world
	rng   *rand.Rand
	zones map[uint64]string                     // of the hosts
	wants func(on, group uint64) host.Placement // of a group on a host; nil: none
	moves []placedMove                          // for placement, so far
	ends  map[uint64][]logEnd                   // of the logs of leaders, by group
}

// placedMove is a leadership that was handed over for placement.
type placedMove struct {
	at        time.Duration
	group, to uint64
}

// logEnd is where the log of a leader ended.
type logEnd struct {
	at   time.Duration
	term uint64
	last uint64
}

// maxMoves is what a group may move for placement within an hour.
const maxMoves = 4

// drawPlacement makes one run in five place leaders: hosts balance, and want what they like, each something
// else.
func (w *world) drawPlacement() {
	rng := splitSeed(w.options.Seed, 13)
	if w.options.small || !w.pipeline.AsyncStorageWrites() || rng.IntN(5) > 0 {
		return
	}
	w.config.Balance = rng.IntN(3) > 0
	p := &placing{w: w, rng: rng}
	p.drawRanks()
	alike, own := p.wants, map[uint64]uint64{}
	for _, h := range w.hosts {
		own[h.id] = pick(rng, 0, 0, 1+rng.Uint64N(uint64(len(w.hosts))))
	}
	p.wants = func(on, group uint64) host.Placement {
		if own[on] != 0 {
			return host.Placement{Priorities: map[uint64]int{own[on]: 9}}
		}
		return alike(on, group)
	}
	w.placing = p
}

// configure gives a host its zone, and groupConfig a group its Placement.
func (p *placing) configure(c *host.Config, id uint64) {
	if p != nil {
		c.Zone = p.zones[id]
	}
}

func (p *placing) configureGroup(c *host.GroupConfig, on uint64) {
	if p != nil && p.wants != nil {
		c.Placement = p.wants(on, c.ID)
	}
}

// start starts hosts and clients, and returns when every group has a leader.
func (p *placing) start() {
	w := p.w
	w.startHosts()
	w.startClients()
	w.clients.pace = 500 * time.Millisecond
	w.meet()
	if !w.runUntil(time.Minute, func() bool { return len(w.leadersNow()) == len(w.ghosts) }) {
		w.violate("in a minute not every group has a leader: %s", w.positions())
	}
	p.sample()
}

// findsItsLeaders is the story of the first two: faults, and then leaders that are where they should be.
func (p *placing) findsItsLeaders() {
	w := p.w
	p.start()
	for range p.rng.IntN(8) {
		h := pick(p.rng, w.hosts...)
		switch p.rng.IntN(3) {
		case 0:
			h.crash(pick(p.rng, crashfs.LoseNothing, crashfs.LoseAll))
			w.pass(between(p.rng, time.Second, 30*time.Second))
			h.start()
		case 1:
			for _, other := range w.hosts {
				w.net.cut[link{h.id, other.id}], w.net.cut[link{other.id, h.id}] = true, true
			}
			w.pass(between(p.rng, time.Second, 30*time.Second))
			clear(w.net.cut)
		default:
			w.pass(between(p.rng, 0, time.Minute))
		}
	}
	w.stopFaults()
	if !w.runUntil(w.now+10*time.Minute, func() bool { return p.isDone() }) {
		w.violate("ten minutes after the faults %s: %s", p.misplaced(), p.leadersByHost())
	}
	before, moves := w.leadersNow(), len(p.moves)
	w.pass(time.Hour)
	w.checkLeadersStay(before, nil)
	for _, l := range before {
		if s := l.group.Placement(); s.Wants != 0 || s.Waits != "" || l.group.Explain().Has(diagnosis.CodePlacementRests) {
			w.violate("%s leads as it should, and says %+v", l.name, s)
		}
	}
	if n := len(p.moves) - moves; n > 0 || p.misplaced() != "" {
		w.violate("in an hour in which nothing happens %d leaderships are handed over; %s", n, p.misplaced())
	}
	w.endWell()
}

// drawRanks draws zones, and what the groups want: zones, priorities, or both, alike on all hosts.
func (p *placing) drawRanks() {
	p.zones = map[uint64]string{}
	for _, h := range p.w.hosts {
		p.zones[h.id] = pick(p.rng, "a", "b", "c", "")
	}
	all := make([]host.Placement, len(p.w.ghosts))
	kinds := p.rng.IntN(3)
	for i := range all {
		if kinds != 1 {
			all[i].Zones = pick(p.rng, []string{"a"}, []string{"b", "a"}, []string{"c", "a", "b"})
		}
		if kinds != 0 {
			all[i].Priorities = map[uint64]int{}
			for _, h := range p.w.hosts {
				if p.rng.IntN(2) == 0 {
					all[i].Priorities[h.id] = p.rng.IntN(3)
				}
			}
		}
	}
	p.wants = func(_, group uint64) host.Placement { return all[group-1] }
}

// first returns the hosts that a group ranks first, as a host sees it. It is written without the code under
// test.
func (p *placing) first(on, group uint64) (best []uint64) {
	var c host.Placement
	if p.wants != nil {
		c = p.wants(on, group)
	}
	key := func(id uint64) [2]int {
		priority, named := c.Priorities[id]
		if !named {
			priority = 1
		}
		zone := slices.Index(c.Zones, p.zones[id])
		if zone < 0 {
			zone = len(c.Zones)
		}
		return [2]int{-priority, zone}
	}
	for _, h := range p.w.hosts {
		k := key(h.id)
		if len(best) > 0 {
			if b := key(best[0]); b == k {
				best = append(best, h.id)
				continue
			} else if slices.Compare(b[:], k[:]) < 0 {
				continue
			}
		}
		best = []uint64{h.id}
	}
	return best
}

// misplaced says which leadership should move, or "".
func (p *placing) misplaced() string {
	leaders, n := p.w.leadersNow(), map[uint64]int{}
	if len(leaders) < len(p.w.ghosts) {
		return "a group has no leader"
	}
	for _, l := range leaders {
		n[l.life.host.id]++
	}
	for _, g := range p.w.ghosts {
		on, first := leaders[g.id].life.host.id, p.first(0, g.id)
		if !slices.Contains(first, on) {
			return fmt.Sprintf("group %d is led by host %d, and not by one of %v", g.id, on, first)
		}
		for _, id := range first {
			if n[on]-n[id] > 1 {
				return fmt.Sprintf("host %d leads %d groups, and host %d, which could lead one of them, leads %d", on, n[on], id, n[id])
			}
		}
	}
	return ""
}

// mayRest reports whether a leader is right to say that another host should lead, and that the leadership has
// moved too often for that.
func (p *placing) mayRest(leads *replica, to uint64) bool {
	n := 0
	for _, m := range p.moves {
		if m.group == leads.id {
			n++
		}
	}
	on := leads.life.host.id
	first := p.first(on, leads.id)
	return n >= maxMoves && leads.leads() && slices.Contains(first, to) && !slices.Contains(first, on)
}

// isDone reports whether all leaders are where they should be, and nothing more is under way: two hosts
// may give at the same time what one of them alone would have evened out.
func (p *placing) isDone() bool {
	last := time.Duration(0)
	if n := len(p.moves); n > 0 {
		last = p.moves[n-1].at
	}
	return p.w.now-last > 12*p.w.config.ElectionTimeout && p.misplaced() == ""
}

func (p *placing) leadersByHost() string {
	n := map[uint64][]uint64{}
	for _, g := range p.w.ghosts {
		if l, ok := p.w.leadersNow()[g.id]; ok {
			n[l.life.host.id] = append(n[l.life.host.id], g.id)
		}
	}
	return fmt.Sprintf("%v; %s", n, p.w.positions())
}

// flaps is the story of a member that should lead and does not stay up.
func (p *placing) flaps() {
	p.wants = func(uint64, uint64) host.Placement { return host.Placement{Priorities: map[uint64]int{2: 5}} }
	p.start()
	p.w.clients.pace = 5 * time.Second
	preferred := p.w.hosts[1]
	for end := p.w.now + 90*time.Minute; p.w.now < end; {
		p.w.pass(between(p.rng, time.Minute, 3*time.Minute))
		preferred.crash(crashfs.LoseNothing)
		p.w.pass(between(p.rng, 5*time.Second, 30*time.Second))
		preferred.start()
	}
	if len(p.moves) < len(p.w.ghosts) {
		p.w.violate("only %d leaderships were handed over to the member that should lead", len(p.moves))
	}
	p.w.endWell()
}

// atOdds is the story of members that each want the next one to lead.
func (p *placing) atOdds() {
	n := uint64(len(p.w.hosts))
	p.wants = func(on, _ uint64) host.Placement { return host.Placement{Priorities: map[uint64]int{on%n + 1: 5}} }
	p.start()
	p.w.clients.pace = 5 * time.Second
	p.w.pass(90 * time.Minute)
	if want := maxMoves * len(p.w.ghosts); len(p.moves) < want {
		p.w.violate("members that are at odds hand over %d times, want %d at least: the story does not happen", len(p.moves), want)
	}
	for id, l := range p.w.leadersNow() {
		if d := l.group.Explain(); !d.Has(diagnosis.CodePlacementRests) {
			p.w.violate("%s does not say that group %d was moved too often: %v", l.name, id, d)
		}
	}
	p.w.endWell()
}

// oneBehind is the story of a member that should lead and is behind.
func (p *placing) oneBehind() {
	w, late := p.w, uint64(2)
	p.wants = func(uint64, uint64) host.Placement { return host.Placement{Priorities: map[uint64]int{late: 5, 3: 2}} }
	p.start()
	w.net.swallows = func(_ *life, m *raftpb.Message) bool {
		return m.Type == raftpb.MsgApp && m.To == late && len(m.Entries) > 0
	}
	w.pass(5 * time.Minute)
	if i := slices.IndexFunc(p.moves, func(m placedMove) bool { return m.to == late }); i >= 0 {
		w.violate("group %d is handed over to member %d, which gets no entries", p.moves[i].group, late)
	}
	w.net.swallows = nil
	all := func() bool {
		for _, l := range w.leadersNow() {
			if l.life.host.id != late {
				return false
			}
		}
		return true
	}
	if !w.runUntil(w.now+10*time.Minute, all) {
		w.violate("ten minutes after member %d has caught up, it does not lead: %s", late, p.leadersByHost())
	}
	w.endWell()
}

// sample notes the ends of the leaders' logs, once in a heartbeat interval.
func (p *placing) sample() {
	if p.ends == nil {
		p.ends = map[uint64][]logEnd{}
	}
	for id, l := range p.w.leadersNow() {
		e := append(p.ends[id], logEnd{p.w.now, l.term, l.group.Status().LastIndex})
		p.ends[id] = e[max(0, len(e)-16):]
	}
	p.w.plan(p.w.config.HeartbeatInterval, "the ends of logs are noted", nil, p.sample)
}

// checkMove checks a hand-over for placement: the group has not moved too often within an hour, and the
// target holds what the leader's log had three heartbeat intervals ago.
func (p *placing) checkMove(l *life, e event.LeadershipGivenUp) {
	w := p.w
	p.moves = append(p.moves, placedMove{w.now, e.Group, e.To})
	if !w.scenario {
		return // hosts lose what they know of earlier ones
	}
	n := 0
	for _, m := range p.moves {
		if m.group == e.Group && w.now-m.at < time.Hour-time.Minute { // clocks of hosts tell the same time here
			n++
		}
	}
	if n > maxMoves {
		w.violate("%s hands group %d over for placement (%s): that is the %dth time within an hour", l.name, e.Group, e.Cause, n)
	}
	to := w.hosts[e.To-1].alive
	if to == nil || to.process == nil {
		return
	}
	has := to.replicas[e.Group-1].group.Status().LastIndex
	for _, end := range p.ends[e.Group] {
		if end.term == e.Term && w.now-end.at > 3*w.config.HeartbeatInterval && end.last > has {
			w.violate("%s hands group %d over to host %d for placement (%s), which holds entry %d: %v ago the log ended at %d", l.name, e.Group, e.To, e.Cause, has, w.now-end.at, end.last)
		}
	}
}
