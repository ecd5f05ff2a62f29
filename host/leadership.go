package host

import (
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/transport"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/leadership"
)

// This file wires package leadership.

// hourTicks is the time in which hand-overs are counted.
func (c Config) hourTicks() int64 { return int64(leadership.Window / c.tickPeriod()) }

// recentOrNew returns the hand-overs of the group, for what is noted now. Most groups never have any.
func (p *groupPlacing) recentOrNew() *leadership.Moves {
	if m := p.recent.Load(); m != nil {
		return m
	}
	p.recent.CompareAndSwap(nil, new(leadership.Moves))
	return p.recent.Load()
}

// moves returns how many hand-overs for placement were within a time before now.
func (p *groupPlacing) moves(now, within int64) int {
	m := p.recent.Load()
	if m == nil {
		return 0
	}
	return m.Count(now, within)
}

// rests reports whether a caller has asked for a hand-over less than an hour ago.
func (p *groupPlacing) rests(now int64) bool {
	m := p.recent.Load()
	return m != nil && m.Rests(now)
}

// noteHandedOver notes that the leadership is handed over from here, and tells the other members.
func (g *Group) noteHandedOver(term uint64, asked bool) {
	now, m := g.host.clock.livedAtBeat(), g.leadership.placing.recentOrNew()
	if asked {
		m.RestUntil(now + g.host.config.hourTicks())
	} else {
		m.Note(now)
	}
	body := leadership.Moved{Group: g.id, MoveName: m.NameNext(term), Asked: asked}.Encode()
	for _, id := range g.memberIDs() {
		if id != g.self {
			g.host.network.transport.SendBytes(id, transport.Control, body)
		}
	}
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

// groupLeadership is what a group knows of who should lead it. The turn owns what is not atomic.
type groupLeadership struct {
	stalls     stalls
	slow       slowMembers
	resuming   resuming
	lateOrders lateOrders
	quietLead  quietLead
	placing    groupPlacing // its own comments say who owns what
	transfer   *Transfer    // under way, and owned by the turn; nil: none

	staysLeader atomic.Bool // it was asked to hand over, and cannot
}
