package members

import (
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/internal/lock"
)

// Rosters say who the members of a group are, as this one has applied it. The entry found makes the first
// roster, when founded is committed. Then each entry that changes the configuration, or begins or cancels a
// plan, makes another. It is in force on this member when the entry is handed out to be applied. That is
// one moment for the core and for the rosters. (An entry that changes the configuration is handed out only
// when it is durable on this host's disk.)
//
// The apply lane may be behind: a snapshot that it captures has the roster of its own index. So the rosters
// since the last entry that the machine has are kept.
//
// The zero value has none. Only a turn sets them; any goroutine may ask.
type Rosters struct {
	now  atomic.Pointer[membership.Roster]
	ids  atomic.Pointer[[]uint64]
	hint atomic.Pointer[membership.Roster] // a later one, of another member

	mu  lock.Mutex
	all []*membership.Roster // the last one is in force; those before are for snapshots
}

// Now returns the roster in force, or nil if the group is not founded.
func (r *Rosters) Now() *membership.Roster { return r.now.Load() }

// IDs returns the ids of the members, voters and learners; before the group is founded, its founding list.
func (r *Rosters) IDs() []uint64 {
	if ids := r.ids.Load(); ids != nil {
		return *ids
	}
	return nil
}

// SetIDs sets the founding list.
func (r *Rosters) SetIDs(ids []uint64) { r.ids.Store(&ids) }

// Set puts a roster in force, and returns the one before. The machine has applied the entries through an
// index.
func (r *Rosters) Set(next *membership.Roster, applied uint64) (was *membership.Roster) {
	r.mu.Lock()
	was = r.now.Load()
	if r.all = append(r.all, next); was == nil || next.Version <= was.Version {
		r.all = []*membership.Roster{next}
	}
	for len(r.all) > 1 && r.all[1].Version <= applied {
		r.all = slices.Delete(r.all, 0, 1)
	}
	r.mu.Unlock()
	r.now.Store(next)
	r.SetIDs(next.IDs())
	return was
}

// At returns the roster after an entry that is applied.
func (r *Rosters) At(index uint64) (at *membership.Roster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		if one.Version <= index {
			at = one
		}
	}
	return at
}

// Hint returns the roster of another member that is later than the one in force, or nil.
func (r *Rosters) Hint() *membership.Roster { return r.hint.Load() }

// AcceptHint keeps the roster of another member if it is later than what this one has. It reports whether it
// is.
func (r *Rosters) AcceptHint(hint *membership.Roster) bool {
	for _, have := range []*membership.Roster{r.Now(), r.Hint()} {
		if have != nil && hint.Version <= have.Version {
			return false
		}
	}
	r.hint.Store(hint)
	return true
}

// DropHint forgets a hint that is not later than a roster.
func (r *Rosters) DropHint(now *membership.Roster) {
	if h := r.hint.Load(); h != nil && h.Version <= now.Version {
		r.hint.Store(nil)
	}
}
