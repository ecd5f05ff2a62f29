package placement

import (
	"cmp"
	"fmt"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/membership"
)

// Group is what placement knows of a group. Its methods may be called by any goroutine, and while the lock of
// the Placer is held: they take no lock that is held while placement is called.
type Group interface {
	Err() error                 // why it has stopped; nil: it works
	Roster() *membership.Roster // nil: it is not founded
	Voters() []uint64           // of both halves of a joint configuration
	LeadsSince() int64          // in ticks that were not missed; negative: this member does not lead
	Excludes(id uint64) bool    // a member, which comes with another directory
	Leave(w *Wish)              // for the next turn, without a wake; a later one replaces it
	Seat() *sched.Seat
}

// Member is a group's part in placement. Any goroutine may call its methods, except where they say that only
// a turn does.
type Member struct {
	group  Group
	placer *Placer

	preference atomic.Pointer[Preference] // nil: all members are equal
	recent     atomic.Pointer[Moves]      // nil: none
	behind     atomic.Pointer[string]     // why the latest wish was not carried out; nil: it was

	led     sched.Place[*Member] // guarded by the lock of the placer,
	prefers bool                 // as this: it is counted there

	wish *Wish // under way; owned by the turn
}

// Open says whose part it is. It is called before anything else.
func (m *Member) Open(p *Placer, g Group, preference *Preference) {
	m.placer, m.group = p, g
	m.preference.Store(preference)
}

// Prefer replaces the preference of the group on this member. It must not change after that.
func (m *Member) Prefer(preference *Preference) {
	m.preference.Store(preference)
	m.placer.recount(m)
}

// Status is host.PlacementStatus.
type Status struct {
	Preference *Preference
	Wants      uint64
	Waits      string
	Recent     int
}

// Status returns where the leader of the group should be, as this member sees it.
func (m *Member) Status() Status {
	s := Status{Preference: m.preference.Load(), Recent: m.moves(m.placer.wiring.Now())}
	if s.Preference != nil && m.group.LeadsSince() >= 0 && m.group.Err() == nil {
		s.Wants, s.Waits = m.placer.explain(m, s.Preference)
	}
	return s
}

// Told records that another member has handed the leadership over.
func (m *Member) Told(r Moved) {
	now, moves := m.placer.wiring.Now(), m.recentOrNew()
	switch {
	case !moves.IsNew(r.MoveName):
	case r.Asked:
		moves.RestUntil(now + m.placer.hour())
	default:
		moves.Record(now)
	}
}

// Moves records that the leadership is handed over from here in a term, because a caller has asked for it, or
// for placement. It returns the record for the other members. Only a turn calls it.
func (m *Member) Moves(group, term uint64, asked bool) Moved {
	now, moves := m.placer.wiring.Now(), m.recentOrNew()
	if asked {
		moves.RestUntil(now + m.placer.hour())
	} else {
		moves.Record(now)
	}
	return Moved{Group: group, MoveName: moves.NameNext(term), Asked: asked}
}

// recentOrNew returns the hand-overs of the group, for what is noted now. Most groups never have any.
func (m *Member) recentOrNew() *Moves {
	if moves := m.recent.Load(); moves != nil {
		return moves
	}
	m.recent.CompareAndSwap(nil, new(Moves))
	return m.recent.Load()
}

// moves returns how many hand-overs for placement were within an hour before now.
func (m *Member) moves(now int64) int {
	if moves := m.recent.Load(); moves != nil {
		return moves.Count(now, m.placer.hour())
	}
	return 0
}

// rests reports whether a caller has asked for a hand-over less than an hour ago.
func (m *Member) rests(now int64) bool {
	moves := m.recent.Load()
	return moves != nil && moves.Rests(now)
}

// reject says why the leadership of the group stays here for now, whatever its preference says, or "".
func (m *Member) reject(now int64) string {
	c := &m.placer.settings
	since := m.group.LeadsSince()
	switch r := m.group.Roster(); {
	case r == nil:
		return "the group is not founded"
	case r.Plan != nil || r.IsJoint():
		return "a plan is under way"
	case since < 0 || now-since < c.steady():
		return fmt.Sprintf("this member has not led for %v yet", c.long(c.steady()))
	case m.rests(now):
		return fmt.Sprintf("a caller has asked for a transfer of the leadership less than %v ago", Window)
	case m.moves(now) >= MaxPlacements:
		return fmt.Sprintf("the leadership was handed over for placement %d times within %v, the most for a group", MaxPlacements, Window)
	}
	return ""
}

// explain returns the member that should lead instead of this one by a preference, and why it does not yet.
func (p *Placer) explain(m *Member, preference *Preference) (wants uint64, waits string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	self := p.settings.Self
	best := preference.rank(self, p.settings.Zone)
	for _, id := range m.group.Voters() {
		if rank := preference.rank(id, p.loads[id].Zone); id != self && rank > best {
			wants, best = id, rank
		}
	}
	if wants == 0 {
		return 0, ""
	}
	now := p.wiring.Now()
	if waits = cmp.Or(m.reject(now), p.reject(wants, now)); waits != "" {
		return wants, waits
	}
	if behind := m.behind.Load(); behind != nil {
		return wants, *behind
	}
	return wants, "the next look at this group"
}
