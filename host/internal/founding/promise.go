package founding

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/host/internal/entry"
)

// Member is the member that opens a group.
type Member struct {
	Group, Self uint64
	Leases      bool          // its setting
	Promise     time.Duration // that it makes
}

// RejectPromises says why a member cannot be one under an entry found: its setting of leases differs, or its
// promises are too short. One such member would make the leases of all unsound. Longer promises do no harm.
func (m Member) RejectPromises(found []byte) error {
	switch want := entry.PromiseOf(found); {
	case want > 0 != m.Leases:
		return fmt.Errorf("millrace: group %d was founded with Leases %t, and host %d opens it with %t; all members need the setting with which it was founded",
			m.Group, want > 0, m.Self, m.Leases)
	case want > m.Promise:
		return fmt.Errorf("millrace: group %d was founded with leases, under which members promise to elect no other leader for %v, and Config.ElectionTimeout of host %d makes it %v; set it to %v or more on every host",
			m.Group, want, m.Self, m.Promise, want)
	}
	return nil
}
