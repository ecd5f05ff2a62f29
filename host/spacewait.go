package host

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
)

// SpaceWait is a wait for space for one call, begun by AskSpace. The zero value may be used once, and must
// not be copied after that.
type SpaceWait struct{ wait proposals.SpaceWait }

// AskSpace begins to wait until c, which Group.Call has refused with ErrOverloaded, may fit. Waits end in
// their order, as commands leave the inbox. The space is not reserved: a call that comes first may take it,
// and then Call refuses again. If too many wait already, the wait ends at once with ErrOverloaded.
func (g *Group) AskSpace(w *SpaceWait, c *Call) {
	if !g.proposals.spaceWaiters.Ask(&w.wait, proposals.BytesOf(c.Data)) {
		if c.Waits {
			g.countRefused(outcome.ErrOverloaded)
		}
		w.wait.End(fmt.Errorf("%w, and %d callers wait for space, which is the most", g.overloaded(), proposals.MaxSpaceWaits))
	}
	g.wakeLazily()
}

// Poll reports whether the wait has ended. A nil error means that the call may fit now.
func (w *SpaceWait) Poll() (done bool, err error) {
	select {
	case <-w.wait.Done():
		return true, w.wait.Err()
	default:
		return false, nil
	}
}

// WaitSpace is AskSpace for callers that may block. If ctx ends first, the error wraps ErrOverloaded and the
// context's.
func (g *Group) WaitSpace(ctx context.Context, c *Call) error {
	var w SpaceWait
	g.AskSpace(&w, c)
	select {
	case <-w.wait.Done():
		return w.wait.Err()
	case <-ctx.Done():
		g.proposals.spaceWaiters.Leave(&w.wait)
		if c.Waits {
			g.countRefused(outcome.ErrOverloaded)
		}
		return fmt.Errorf("%w; it is not proposed: %w", g.overloaded(), g.waitEnd(ctx))
	}
}
