package proposals

import (
	"errors"
	"sync/atomic"

	"github.com/millrace/millrace/host/outcome"
)

// RefusalCounts count commands that got an error.
type RefusalCounts struct {
	NotLeader, NotFounded, Overloaded, TooLarge, Empty, Stopped atomic.Uint64
	Dropped, Withdrawn, Other, Indeterminate                    atomic.Uint64
}

// Add counts n commands that got an error.
func (c *RefusalCounts) Add(err error, n int) {
	if n == 0 || err == nil {
		return
	}
	c.counter(err).Add(uint64(n))
}

func (c *RefusalCounts) counter(err error) *atomic.Uint64 {
	switch {
	case errors.Is(err, outcome.ErrIndeterminate): // first: it wraps its cause, which may be one of the others
		return &c.Indeterminate
	case errors.Is(err, outcome.ErrNotLeader):
		return &c.NotLeader
	case errors.Is(err, outcome.ErrNotFounded):
		return &c.NotFounded
	case errors.Is(err, outcome.ErrOverloaded):
		return &c.Overloaded
	case errors.Is(err, outcome.ErrTooLarge):
		return &c.TooLarge
	case errors.Is(err, outcome.ErrEmpty):
		return &c.Empty
	case errors.Is(err, outcome.ErrDropped):
		return &c.Dropped
	case errors.Is(err, outcome.ErrStopped):
		return &c.Stopped
	}
	return &c.Other
}
