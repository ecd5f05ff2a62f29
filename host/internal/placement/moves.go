package placement

import (
	"cmp"
	"time"

	"github.com/millrace/millrace/internal/lock"
)

// The bound on hand-overs for the sake of placement: MaxPlacements in an hour for a group, whichever of its
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
	// MaxPlacements is how many hand-overs for placement a group has in Window.
	MaxPlacements = 4
	// Window is the time in which hand-overs are counted.
	Window = time.Hour
)

// Moves are the latest hand-overs of a group, in ticks that were not missed. The zero value has none. Any
// goroutine may call its methods.
type Moves struct {
	mu   lock.Mutex
	at   [MaxPlacements]int64 // a ring
	n    int                  // so far
	name MoveName             // of the latest, here or of another member
	rest int64                // a caller has asked for one: none before this tick
}

// Count returns how many hand-overs for placement were within a time before now.
func (m *Moves) Count(now, within int64) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range m.at[:min(m.n, MaxPlacements)] {
		if now-at < within {
			n++
		}
	}
	return n
}

// Record counts a hand-over for placement.
func (m *Moves) Record(now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at[m.n%MaxPlacements] = now
	m.n++
}

// Rests reports whether a caller has asked for a hand-over less than an hour ago.
func (m *Moves) Rests(now int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now < m.rest
}

// IsNew reports whether a hand-over was not noted yet: a record may come twice.
func (m *Moves) IsNew(name MoveName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if cmp.Or(cmp.Compare(name.Term, m.name.Term), cmp.Compare(name.Number, m.name.Number)) <= 0 {
		return false
	}
	m.name = name
	return true
}

// NameNext names the next hand-over in a term.
func (m *Moves) NameNext(term uint64) MoveName {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.name.Term < term {
		m.name = MoveName{Term: term}
	}
	m.name.Number++
	return m.name
}

// RestUntil says that a caller has asked for a hand-over: placement rests until a tick.
func (m *Moves) RestUntil(tick int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rest = max(m.rest, tick)
}
