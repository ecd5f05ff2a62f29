package host

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/raft"
)

// heard is what this host has heard in pulses of other hosts.
type heard struct {
	mu    sync.Mutex
	peers map[uint64]*heardList // the latest list of each host
}

// heardList is a list of groups, and when the host that leads them was heard last.
type heardList struct {
	from          uint64
	life, version uint64
	at            atomic.Int64 // tick of the latest pulse

	mu       sync.Mutex
	excepted []uint64 // groups that have ceased to follow since the last answer
}

// cover says that a group hears its leader by way of a list.
type cover struct {
	list *heardList
	term uint64
}

// pulse takes a pulse that names the version of a list, and returns the answer.
func (h *heard) pulse(from uint64, p pulseRecord, now int64) pulseAnswer {
	h.mu.Lock()
	l := h.peers[from]
	h.mu.Unlock()
	a := pulseAnswer{life: p.life, version: p.version}
	if l == nil || l.life != p.life || l.version != p.version {
		return a // the leader's host sends the list again
	}
	l.at.Store(now)
	a.known, a.excepted = true, l.takeExcepted()
	return a
}

// list takes a pulse with a list, and returns the answer.
func (h *heard) list(from uint64, p pulseRecord, now int64, groups *groupTable) pulseAnswer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.peers[from]; l != nil && l.life == p.life && l.version > p.version {
		return pulseAnswer{life: p.life, version: l.version} // a late one: not even this version is confirmed
	}
	l := &heardList{from: from, life: p.life, version: p.version}
	l.at.Store(now)
	covers := make([]cover, len(p.lines))
	for i, line := range p.lines {
		covers[i] = cover{l, line.term}
		if g := groups.get(line.group); g == nil || !g.follow(line, from, &covers[i]) {
			l.except(line.group)
		}
	}
	h.peers[from] = l
	return pulseAnswer{life: p.life, version: p.version, known: true, excepted: l.takeExcepted()}
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
	return s.Role == raft.StateFollower && s.Term == line.term && s.Leader == leader && s.Committed >= line.commit && g.Err() == nil
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

func (l *heardList) takeExcepted() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	excepted := l.excepted
	l.excepted = nil
	slices.Sort(excepted)
	return slices.Compact(excepted)
}

// hearPulses tells the core of a follower that its leader was heard, and advances its clock to that moment. It
// returns the ticks that have passed since.
func (g *Group) hearPulses(passed int) (left int) {
	c := g.cover.Load()
	if c == nil {
		return passed
	}
	at := c.list.at.Load()
	if at <= g.heardAt {
		return passed
	}
	g.heardAt = at
	since := int(min(max(g.at.ticks-at, 0), int64(passed)))
	g.pass(min(passed-since, g.node.TicksToEvent()-1))
	follows, err := g.node.HeardLeader(c.term, c.list.from)
	g.noteRefusal(err)
	if !follows {
		g.uncover()
	} else {
		g.unheard = 0
	}
	return since
}
