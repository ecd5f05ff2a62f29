package host

import (
	"time"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
)

// Now returns the time on the monotonic clock of the host, for comparison with a Receipt.
func (g *Group) Now() time.Duration { return g.now() }

// appliedReceipt is the receipt of a call whose outcome is known when it is applied.
func (c *Call) appliedReceipt(e *statemachine.Command, now time.Duration) outcome.Receipt {
	return outcome.Receipt{Index: e.Index, Term: e.Term, Queued: c.queued, Appended: c.appended, Replicated: c.replicated, Committed: now, Applied: now}
}
