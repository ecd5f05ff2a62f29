package divergence

import (
	"fmt"
	"slices"
)

// Members compare only what both sum up, in the same form. So a member without Machine.Results or without a
// digest, or with another type of results, makes no false alarm, and a difference there is not noticed. A
// leader sees in the reports what each member watches, and names those that it does not compare with itself
// (Explain).
//
// Members of other versions are not compared either, as the version says: a rolling upgrade is like this.

// MaxForm bounds Watch.Form, in bytes.
const MaxForm = 192

// Watch is what a member sums up beside the commands.
type Watch struct {
	Form   string // names how results are summed up; "": they are not
	States bool   // there is a digest of the states
}

// Uncompared is a member that watches something else than the leader.
type Uncompared struct {
	Member       uint64
	Theirs, Ours Watch
	Since        int64 // in ticks

	life uint64 // of the member's host, in which it said so
}

// nameOf returns what members tell each other of a form: of a long one the beginning, and a sum.
func nameOf(form string) string {
	if len(form) <= MaxForm {
		return form
	}
	sum := fmt.Sprintf("... %016x", sumOf([]byte(form)))
	return form[:MaxForm-len(sum)] + sum
}

// Uncompared returns the members of this leader's version that watch something else, by id; none if this
// member does not lead. What a member said in an earlier life of its host does not count. It may have been
// started again because of that, and reports when the next command comes.
func (d *Comparison) Uncompared() (all []Uncompared) {
	if d.wiring == nil || d.wiring.Leader() != d.self {
		return nil
	}
	d.mu.Lock()
	for _, r := range d.reports {
		if r.Version == d.machine.Version && r.Watch != d.watch {
			all = append(all, Uncompared{r.from, r.Watch, d.watch, r.since, r.life})
		}
	}
	d.mu.Unlock()
	return slices.DeleteFunc(all, func(u Uncompared) bool {
		return !d.wiring.IsMember(u.Member) || d.wiring.Life(u.Member) != u.life
	})
}
