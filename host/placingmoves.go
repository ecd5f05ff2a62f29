package host

import (
	"cmp"
	"sync"
	"time"

	"github.com/millrace/millrace/transport"
)

// The bound on hand-overs for the sake of placement: maxPlacements in an hour for a group, whichever of its
// members led. So a leader that hands over tells all other members, and each of them counts. A link that
// flaps, or two members with opposite opinions, move a leadership four times and then leave it alone.
//
// A hand-over that a caller has asked for (Group.TransferLeadership) says more than a configuration. After
// it, placement leaves the group alone for an hour.
//
// The counts are in memory. A host that restarts has forgotten them, and one that was cut off at the moment
// does not count it; the others do. Rejected: to count terms, which a member cannot miss. After an outage, in
// which terms pass fast, all groups would stay where they are for an hour.

const (
	maxPlacements   = 4
	placementWindow = time.Hour
)

// hourTicks is the time in which hand-overs are counted.
func (c Config) hourTicks() int64 { return int64(placementWindow / c.tickPeriod()) }

// recentMoves are the latest hand-overs of a group, in ticks that were not missed.
type recentMoves struct {
	mu   sync.Mutex
	at   [maxPlacements]int64 // a ring
	n    int                  // so far
	name moveName             // of the latest, here or of another member
	rest int64                // a caller has asked for one: none before this tick
}

// count returns how many hand-overs for placement were within a time before now.
func (m *recentMoves) count(now, within int64) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range m.at[:min(m.n, maxPlacements)] {
		if now-at < within {
			n++
		}
	}
	return n
}

func (m *recentMoves) note(now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at[m.n%maxPlacements] = now
	m.n++
}

// rests reports whether a caller has asked for a hand-over less than an hour ago.
func (m *recentMoves) rests(now int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now < m.rest
}

// isNew reports whether a hand-over was not noted yet: a record may come twice.
func (m *recentMoves) isNew(name moveName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if cmp.Or(cmp.Compare(name.term, m.name.term), cmp.Compare(name.number, m.name.number)) <= 0 {
		return false
	}
	m.name = name
	return true
}

// nameNext names the next hand-over in a term.
func (m *recentMoves) nameNext(term uint64) moveName {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.name.term < term {
		m.name = moveName{term: term}
	}
	m.name.number++
	return m.name
}

// recentOrNew returns the hand-overs of the group, for what is noted now. Most groups never have any.
func (p *groupPlacing) recentOrNew() *recentMoves {
	if m := p.recent.Load(); m != nil {
		return m
	}
	p.recent.CompareAndSwap(nil, new(recentMoves))
	return p.recent.Load()
}

// moves returns how many hand-overs for placement were within a time before now.
func (p *groupPlacing) moves(now, within int64) int {
	m := p.recent.Load()
	if m == nil {
		return 0
	}
	return m.count(now, within)
}

// rests reports whether a caller has asked for a hand-over less than an hour ago.
func (p *groupPlacing) rests(now int64) bool {
	m := p.recent.Load()
	return m != nil && m.rests(now)
}

// noteHandedOver notes that the leadership is handed over from here, and tells the other members.
func (g *Group) noteHandedOver(term uint64, asked bool) {
	now, m := g.host.clock.livedAtBeat(), g.placing.recentOrNew()
	if asked {
		m.restUntil(now + g.host.config.hourTicks())
	} else {
		m.note(now)
	}
	body := movedRecord{group: g.id, moveName: m.nameNext(term), asked: asked}.encode()
	for _, id := range g.memberIDs() {
		if id != g.self {
			g.host.transport.SendBytes(id, transport.Control, body)
		}
	}
}

func (m *recentMoves) restUntil(tick int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rest = max(m.rest, tick)
}

// takeMoved is told by a member that the leadership was handed over, in a term that this one knows.
func (g *Group) takeMoved(from uint64, r movedRecord) {
	if !g.isOther(from) || g.Err() != nil || r.term > g.status.Load().Term {
		return
	}
	now, m := g.host.clock.livedAtBeat(), g.placing.recentOrNew()
	switch {
	case !m.isNew(r.moveName):
	case r.asked:
		m.restUntil(now + g.host.config.hourTicks())
	default:
		m.note(now)
	}
}
