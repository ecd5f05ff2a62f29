package proposals

import (
	"time"

	"github.com/millrace/millrace/host/internal/budget"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
)

// Settings are what a queue works with. What is behind the first two is of groups with calls, and nil else.
// The functions take no lock that is held when a method of the queue is called.
type Settings struct {
	Budget   *budget.Budget // of all groups, for what is proposed and not answered
	MaxBytes int            // about the size of a batch, and of an append
	// Alone reports whether a command must be an entry of its own; nil: none must. A turn calls it.
	Alone func(command []byte) bool

	Clock       func() time.Duration
	Callers     Callers
	DrawSession func() session.ID // a new session of this host's own
	Freed       func()            // bytes came free, and no lock is held
	Times       bool              // calls are timed
	Wake        func()            // calls can be tried again

	Group                         uint64
	MaxNumbers                    int   // of this host's session that wait at a time
	FrameBytes                    int64 // bounds a frame with several commands
	ElectionTicks, HeartbeatTicks int64
}

// Callers tells the owners of calls what happens to them. An owner may hear under the lock of the queue,
// from one goroutine at a time.
type Callers interface {
	Committed(outcome.Caller, outcome.Receipt)
	Failed(outcome.Caller, error)
	Duplicate(c outcome.Caller, r outcome.Receipt, result []byte, kept bool)
}

// NewQueue returns the queue of a group.
func NewQueue(s Settings) *Queue {
	q := &Queue{Settings: s}
	q.calls.most, q.ring.Results = s.MaxNumbers, s.Clock != nil
	if s.Times && s.Clock != nil {
		q.times = new(outcome.CommandTimes)
	}
	return q
}
