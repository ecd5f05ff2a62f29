package host

import (
	"slices"
	"sync"
	"sync/atomic"
)

// heard is what this host has heard in pulses of other hosts.
type heard struct {
	mu    sync.Mutex
	peers map[uint64]*heardFrom
}

// heardFrom is what one host has said.
type heardFrom struct {
	list    *heardList // the latest; nil: none
	said    pulseName  // the latest pulse
	answers bool       // it is not answered yet
}

// pulseName names a version of a list.
type pulseName struct{ life, version uint64 }

// heardList is a list of groups, and when the host that leads them was heard last.
type heardList struct {
	from uint64
	name pulseName
	n    atomic.Int64 // pulses so far
	at   atomic.Int64 // when the latest came, in ticks that were not missed

	mu       sync.Mutex
	excepted []uint64 // groups in it that do not follow; they stay, since an answer may be lost
}

// cover says that a group hears its leader by way of a list.
type cover struct {
	list *heardList
	term uint64
}

// take takes what a record says of the groups that its sender leads.
func (h *heard) take(from uint64, r pulseRecord, now int64, groups *groupTable) {
	if !r.pulses {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.peers[from]
	if f == nil {
		f = &heardFrom{}
		h.peers[from] = f
	}
	name := pulseName{r.life, r.version}
	if l := f.list; l != nil && l.name.life == name.life && l.name.version > name.version {
		return // it comes late
	}
	f.said, f.answers = name, true
	switch l := f.list; {
	case l != nil && l.name == name:
		l.hear(now)
	case r.hasList:
		f.list = newHeardList(from, name, r.lines, now, groups)
	}
}

// forget forgets what a host has said. Groups that it covers go on: its list is silent.
func (h *heard) forget(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.peers, id)
}

// newHeardList makes a list cover those of its groups that follow.
func newHeardList(from uint64, name pulseName, lines []pulseLine, now int64, groups *groupTable) *heardList {
	l := &heardList{from: from, name: name}
	l.hear(now)
	covers := make([]cover, len(lines))
	for i, line := range lines {
		covers[i] = cover{l, line.term}
		if g := groups.get(line.group); g == nil || !g.follow(line, from, &covers[i]) {
			l.except(line.group)
		}
	}
	return l
}

// hear notes a pulse. The clock of a process that was paused is late, so the number of pulses says whether
// there was one.
func (l *heardList) hear(now int64) {
	l.at.Store(now)
	l.n.Add(1)
}

// answer returns the answer to the latest pulse of a host, if there was one since the last call.
func (h *heard) answer(peer uint64) (a pulseAnswer, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.peers[peer]
	if f == nil || !f.answers {
		return a, false
	}
	f.answers = false
	a.life, a.version = f.said.life, f.said.version
	if l := f.list; l != nil && l.name == f.said {
		a.known, a.excepted = true, l.exceptions()
	}
	return a, true // or the leader's host sends the list again
}

// follow makes a list cover the group, if it follows the host in that term and lacks nothing.
func (g *Group) follow(line pulseLine, leader uint64, c *cover) bool {
	if !g.follows(line, leader) {
		return false
	}
	g.cover.Store(c)
	if g.follows(line, leader) {
		return true
	}
	return !g.cover.CompareAndSwap(c, nil) // if another has taken it away, it was excepted there
}

func (g *Group) follows(line pulseLine, leader uint64) bool {
	s := g.status.Load()
	return s.Role == RoleFollower && s.Term == line.term && s.Leader == leader && s.Committed >= line.commit && !g.withoutAuthority.Load() && g.Err() == nil
}

// uncover ends that.
func (g *Group) uncover() {
	if c := g.cover.Swap(nil); c != nil {
		c.list.except(g.id)
	}
}

func (l *heardList) except(group uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.excepted = append(l.excepted, group)
}

// exceptions returns the excepted groups, in ascending order.
func (l *heardList) exceptions() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.excepted)
	l.excepted = slices.Compact(l.excepted)
	return slices.Clone(l.excepted)
}

// hearPulses tells the core of a follower that its leader was heard, and advances its clock to that moment.
// It returns the ticks that have passed since.
func (g *Group) hearPulses(passed int) (left int) {
	c := g.cover.Load()
	if c == nil {
		return passed
	}
	n := c.list.n.Load()
	if c.list == g.heardList && n == g.heardN {
		return passed
	}
	g.heardList, g.heardN = c.list, n
	at := c.list.at.Load()
	since := int(min(max(g.at.ticks-g.at.missed-at, 0), int64(passed)))
	g.pass(min(passed-since, g.node.TicksToEvent()-1))
	follows, err := g.node.HeardLeader(c.term, c.list.from)
	g.noteRefusal(err)
	if !follows {
		g.uncover()
	} else {
		g.unheard = 0
		g.idle = len(g.taken.messages)+len(g.taken.answers)+len(g.taken.proposals) == 0
	}
	return since
}
