package host

import "github.com/millrace/millrace/host/internal/leadership"

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
