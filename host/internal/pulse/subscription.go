package pulse

import "sync/atomic"

// Cover says that a group hears its leader by way of a list.
type Cover struct {
	List *PeerPulses
	Term uint64 // of the leader
}

// Subscription is how a group relies on a list. Its methods may be called by any goroutine.
type Subscription struct{ cover atomic.Pointer[Cover] }

// Cover returns what the group relies on; nil: nothing.
func (s *Subscription) Cover() *Cover { return s.cover.Load() }

// Begin makes the group rely on a list, if follows says so before and after. Between them the group may have
// left its leader, and found nothing to end.
func (s *Subscription) Begin(c *Cover, follows func() bool) bool {
	if !follows() {
		return false
	}
	s.cover.Store(c)
	if follows() {
		return true
	}
	return !s.cover.CompareAndSwap(c, nil) // if another has taken it away, it was excluded there
}

// End ends that. The list excludes the group from then on.
func (s *Subscription) End(group uint64) {
	if c := s.cover.Swap(nil); c != nil {
		c.List.exclude(group)
	}
}
