package host

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/session"
)

// called holds the calls of this host that are in its log and not applied, by index. The turn adds what it
// has proposed, before it can be applied; the apply lane takes what it applies.
//
// The outcome of a call has two halves: Committed, which pendingByTerm tells, and the result, for which the
// call waits here. Calls with a number of a session may come back in an entry of another host, and are found
// by their number instead (routedCalls).
type called struct {
	mu    sync.Mutex
	n     atomic.Int64 // calls held; 0 spares the apply lane the lock
	first uint64       // index of calls[0]
	calls []calledAt   // starting at head
	head  int
	sent  uint64 // the calls through this index have left for another member
	// displaced are calls whose entries this host has forgotten, after a full disk, and for which it has
	// proposed others. The first ones may be committed all the same: other members may have them.
	displaced []displacedCall
	closed    bool

	applying []Caller // of the commands that are with the state machine
}

type calledAt struct {
	term uint64
	call *Call // nil: an entry without one
}

type displacedCall struct {
	index uint64
	calledAt
}

// add registers a batch that was proposed in term, starting at index. Entries that were at its indexes or
// beyond are gone from the log.
func (s *called) add(term, index uint64, batch []proposal, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.sent = min(s.sent, index-1)
	if s.n.Load() == int64(len(s.displaced)) || index < s.first { // of places without a call, nothing removes the last
		s.displace(0)
		clear(s.calls)
		s.first, s.calls, s.head = index, s.calls[:0], 0
	}
	if n := int(index - s.first); n < s.len() {
		s.displace(n)
		clear(s.calls[s.head+n:])
		s.calls = s.calls[:s.head+n]
	}
	if s.head > len(s.calls)/2 && len(s.calls)+len(batch) > cap(s.calls) {
		kept := copy(s.calls, s.calls[s.head:])
		clear(s.calls[kept:])
		s.calls, s.head = s.calls[:kept], 0
	}
	for s.first+uint64(s.len()) < index {
		s.calls = append(s.calls, calledAt{})
	}
	for i, p := range batch {
		s.calls = append(s.calls, calledAt{term, p.waiter.call})
		p.waiter.call.index, p.waiter.call.appended = index+uint64(i), now
	}
	s.n.Add(int64(len(batch)))
}

// displace notes the calls at a place and beyond, whose entries are not in the log any more.
func (s *called) displace(from int) {
	for i, at := range s.calls[s.head+from:] {
		if at.call != nil {
			s.displaced = append(s.displaced, displacedCall{s.first + uint64(from+i), at})
		}
	}
}

// removeDisplaced removes the displaced calls of entries up to an index, for which f is called: something is
// applied there now.
func (s *called) removeDisplaced(index uint64, f func(*displacedCall)) {
	s.displaced = slices.DeleteFunc(s.displaced, func(d displacedCall) bool {
		if d.index <= index {
			s.drop(d.calledAt)
			f(&d)
		}
		return d.index <= index
	})
}

// noteSent stamps the calls of entries through last that leave for the first time. It reads the clock once if
// there is one.
func (s *called) noteSent(last uint64, clock func() time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := max(s.sent+1, s.first)
	s.sent = max(s.sent, last)
	end := min(last+1, s.first+uint64(s.len()))
	if i >= end {
		return
	}
	for now := clock(); i < end; i++ {
		if c := s.at(i).call; c != nil {
			c.replicated = now
		}
	}
}

func (s *called) len() int { return len(s.calls) - s.head }

func (s *called) drop(at calledAt) {
	if at.call != nil {
		s.n.Add(-1)
	}
}

// at returns the place of an index, or nil.
func (s *called) at(index uint64) *calledAt {
	if index < s.first || index-s.first >= uint64(s.len()) {
		return nil
	}
	return &s.calls[s.head+int(index-s.first)]
}

// forget removes a call whose entry will not be applied.
func (s *called) forget(index uint64, c *Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.at(index); at != nil && at.call == c {
		s.drop(*at)
		*at = calledAt{}
	}
	s.displaced = slices.DeleteFunc(s.displaced, func(d displacedCall) bool {
		if d.call == c {
			s.drop(d.calledAt)
		}
		return d.call == c
	})
}

// take sets the callers of entries of the log that are applied now, in order.
func (s *called) take(commands []Command, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range commands {
		c := &commands[i]
		switch call := s.remove(c.Index, c.Term); {
		case call == nil || !call.w.waits():
		case call.Session == nil: // its commit is told by pendingByTerm
			c.Caller = call.Owner
		case call.w.finish():
			c.Caller = call.Owner
			call.group.tellCommitted(c.Caller, call.appliedReceipt(c, now))
		}
	}
}

// takeOne is take for one entry.
func (s *called) takeOne(index, term uint64) *Call {
	if s.n.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(index, term)
}

// remove removes the entries up to an index, and returns the call of the last.
func (s *called) remove(index, term uint64) (call *Call) {
	if at := s.at(index); at != nil && at.term == term {
		call = at.call
	}
	if len(s.displaced) > 0 {
		s.removeDisplaced(index, func(d *displacedCall) {
			if d.index == index && d.term == term {
				call = d.call
			}
		})
	}
	for s.len() > 0 && s.first <= index {
		s.drop(s.calls[s.head])
		s.calls[s.head] = calledAt{}
		s.head++
		s.first++
	}
	if s.len() == 0 {
		s.calls, s.head = s.calls[:0], 0
	}
	return call
}

// abandon ends the wait for results, and returns the calls that waited, and the callers
// whose commands are with the state machine.
func (s *called) abandon() (calls []*Call, applying []Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil
	}
	s.closed = true
	applying = append(applying, s.applying...)
	for _, at := range s.calls[s.head:] {
		if at.call != nil {
			calls = append(calls, at.call)
		}
	}
	for _, d := range s.displaced {
		calls = append(calls, d.call)
	}
	s.calls, s.head, s.displaced = nil, 0, nil
	s.n.Store(0)
	return calls, applying
}

// endAll ends the wait for results, as abandon does, and others may begin.
func (s *called) endAll() (calls []*Call, applying []Caller) {
	calls, applying = s.abandon()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applying, s.closed = nil, false
	return calls, applying
}

// findCallers connects commands that are applied now, in the order of the log, with the calls of this host
// that wait for them. It is for commands that were not applied before.
func (g *Group) findCallers(commands []Command) {
	if len(commands) == 0 {
		return
	}
	if g.called.n.Load() > 0 {
		g.called.take(commands, g.now())
	}
	if g.calls.n.Load() > 0 {
		g.calls.findCallers(g, commands)
	}
	if hasCaller(commands) {
		g.called.hand(g, commands)
	}
}

// hand notes the callers whose commands the state machine gets, until appliedBatch. If the group stops while
// the machine hangs, they are told.
func (s *called) hand(g *Group, commands []Command) {
	now := g.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range commands {
		c := commands[i].Caller
		switch {
		case c == nil:
		case s.closed: // its end has answered all others
			commands[i].Caller = nil
			g.tellFailed(c, ErrNoResult)
		default:
			commands[i].Handed = now
			s.applying = append(s.applying, c)
		}
	}
}

// appliedBatch must be called when the state machine has given their results to all callers that it got.
func (g *Group) appliedBatch() {
	s := &g.called
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.applying)
	s.applying = s.applying[:0]
}

// answerDuplicate tells the calls of this host that wait for an entry that their command was applied before.
func (g *Group) answerDuplicate(index, term uint64, m session.Mark, r Receipt, result []byte, kept bool) {
	for _, c := range g.callsOf(index, term, m) {
		if c != nil && c.w.finish() {
			g.tellDuplicate(c.Owner, r, result, kept)
		}
	}
}

// refuseCall tells the calls of this host that wait for an entry that the table of sessions has refused their
// command.
func (g *Group) refuseCall(index, term uint64, m session.Mark, err error) {
	for _, c := range g.callsOf(index, term, m) {
		if c != nil {
			c.fail(fmt.Errorf("%w (entry %d)", err, index))
		}
	}
}

// expireCall does the same if the session may be forgotten. If it is the session of this host's own, its
// calls get numbers of a new one: this host has applied all entries up to here, and none of them was one of
// the calls that still wait, and none that follows can be applied.
func (g *Group) expireCall(index, term uint64, m session.Mark, err error) {
	g.counts.expired.Add(1)
	if g.calls.renew(m.ID) {
		g.wake()
		return
	}
	g.refuseCall(index, term, m, err)
}

// callsOf removes the calls that wait for an entry, and returns them: the one that this host has proposed as
// that entry, and one that waits for its number. They are two if a user hands in a command twice.
func (g *Group) callsOf(index, term uint64, m session.Mark) (calls [2]*Call) {
	calls[0] = g.called.takeOne(index, term)
	if g.calls.n.Load() > 0 {
		calls[1] = g.calls.removeMarked(g, m)
	}
	return calls
}

func hasCaller(commands []Command) bool {
	for i := range commands {
		if commands[i].Caller != nil {
			return true
		}
	}
	return false
}
