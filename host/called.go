package host

import "sync"

// called holds the calls of this host that are in its log and not applied, by index. The turn adds what it
// has proposed, before it can be applied; the apply lane takes what it applies.
type called struct {
	mu    sync.Mutex
	first uint64 // index of calls[0]
	calls []calledAt
}

type calledAt struct {
	term uint64
	call *Call // nil: an entry without one
}

// add registers a batch that was proposed in term, starting at index. Entries that were at its indexes or
// beyond are gone from the log.
func (s *called) add(term, index uint64, batch []proposal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) == 0 || index < s.first {
		clear(s.calls)
		s.first, s.calls = index, s.calls[:0]
	}
	if n := index - s.first; n < uint64(len(s.calls)) {
		clear(s.calls[n:])
		s.calls = s.calls[:n]
	}
	for s.first+uint64(len(s.calls)) < index {
		s.calls = append(s.calls, calledAt{})
	}
	for _, p := range batch {
		s.calls = append(s.calls, calledAt{term, p.waiter.call})
	}
}

// take sets the callers of entries of the log that are applied now, in order.
func (s *called) take(commands []Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) == 0 {
		return
	}
	for i := range commands {
		c := &commands[i]
		if c.Index < s.first || c.Index-s.first >= uint64(len(s.calls)) {
			continue
		}
		if at := s.calls[c.Index-s.first]; at.call != nil && at.term == c.Term {
			c.Caller = at.call.Owner
		}
	}
	n := min(commands[len(commands)-1].Index+1-min(s.first, commands[len(commands)-1].Index+1), uint64(len(s.calls)))
	clear(s.calls[:n])
	s.calls, s.first = s.calls[n:], s.first+n
}
