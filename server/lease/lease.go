// Package lease is the pure part of leases: deadlines in log time. Log time is the same on every member and
// stands still without a leader. So a lease ends its TTL after its last renewal that was acknowledged, on
// every member, whichever member leads.
//
// A deadline alone ends nothing. The leader proposes the expiry with the number of the renewal that it knows,
// and the state machine takes it only if no renewal has come since. So a leader that was deposed ends no
// lease.
package lease

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"
)

// MaxTTL is the longest TTL in seconds, as in etcd.
const MaxTTL = 9_000_000_000

// Info is a lease.
type Info struct {
	ID       int64
	TTL      int64         // in seconds, as granted
	Deadline time.Duration // in log time
	Number   uint64        // of renewals so far
}

// Renewal names a lease as it was after one of its renewals.
type Renewal struct {
	ID     int64
	Number uint64
}

// Remaining returns the whole seconds that a lease has left, as etcd tells them: rounded down, -1 once the
// deadline has passed.
func (i Info) Remaining(now time.Duration) int64 {
	if now >= i.Deadline {
		return -1
	}
	return int64((i.Deadline - now) / time.Second)
}

// Set is the leases of a member, with the order of their deadlines. The caller has a lock for it.
type Set struct {
	byID  map[int64]*entry
	order order
}

type entry struct {
	Info
	place int // in order
}

// NewSet returns a set without leases.
func NewSet() *Set { return &Set{byID: map[int64]*entry{}} }

// Len returns how many leases there are.
func (s *Set) Len() int { return len(s.byID) }

// Get returns a lease.
func (s *Set) Get(id int64) (Info, bool) {
	e := s.byID[id]
	if e == nil {
		return Info{}, false
	}
	return e.Info, true
}

// Grant adds a lease that begins now. It must not be there.
func (s *Set) Grant(id, ttl int64, now time.Duration) Info {
	i := Info{ID: id, TTL: ttl, Deadline: deadline(ttl, now)}
	s.Put(i)
	return i
}

// Put adds or replaces a lease as it was stored.
func (s *Set) Put(i Info) {
	if e := s.byID[i.ID]; e != nil {
		e.Info = i
		heap.Fix(&s.order, e.place)
		return
	}
	e := &entry{Info: i}
	s.byID[i.ID] = e
	heap.Push(&s.order, e)
}

// Remove ends a lease.
func (s *Set) Remove(id int64) {
	if e := s.byID[id]; e != nil {
		heap.Remove(&s.order, e.place)
		delete(s.byID, id)
	}
}

// Renew begins the TTL of a lease again, and counts that.
func (s *Set) Renew(id int64, now time.Duration) (Info, bool) {
	e := s.byID[id]
	if e == nil {
		return Info{}, false
	}
	i := e.Info
	i.Number++
	i.Deadline = max(i.Deadline, deadline(i.TTL, now))
	s.Put(i)
	return i, true
}

// Expired reports whether a lease has ended: its deadline has passed, and it was not renewed since r.
func (s *Set) Expired(r Renewal, now time.Duration) bool {
	e := s.byID[r.ID]
	return e != nil && e.Number == r.Number && e.Deadline <= now
}

// Due returns up to most leases whose deadline has passed, the earliest first, and the deadline of the first
// of the others; math.MaxInt64: there is none.
func (s *Set) Due(now time.Duration, most int) (due []Renewal, next time.Duration) {
	// A walk from the root, the earliest first, visits the leases that it returns and their children only.
	var front order
	if len(s.order) > 0 {
		front = append(front, s.order[0])
	}
	for len(front) > 0 {
		e := front[0]
		if e.Deadline > now || len(due) == most {
			return due, e.Deadline
		}
		due = append(due, Renewal{e.ID, e.Number})
		front = front.withoutFirst()
		for _, child := range []int{2*e.place + 1, 2*e.place + 2} {
			if child < len(s.order) {
				front = front.with(s.order[child])
			}
		}
	}
	return due, math.MaxInt64
}

// with returns a heap of leases with one more, whose places stay those in their set.
func (o order) with(e *entry) order {
	o = append(o, e)
	for i := len(o) - 1; i > 0 && o.Less(i, (i-1)/2); i = (i - 1) / 2 {
		o[i], o[(i-1)/2] = o[(i-1)/2], o[i]
	}
	return o
}

// withoutFirst returns it without its first lease.
func (o order) withoutFirst() order {
	n := len(o) - 1
	o[0] = o[n]
	o = o[:n]
	for i := 0; ; {
		child := 2*i + 1
		if child >= n {
			return o
		}
		if child+1 < n && o.Less(child+1, child) {
			child++
		}
		if !o.Less(child, i) {
			return o
		}
		o[i], o[child] = o[child], o[i]
		i = child
	}
}

// All returns all leases in the order of their ids.
func (s *Set) All() []Info {
	all := make([]Info, 0, len(s.byID))
	for _, e := range s.byID {
		all = append(all, e.Info)
	}
	slices.SortFunc(all, func(a, b Info) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// deadline returns when a TTL that begins now ends. It is bounded, as log time is.
func deadline(ttl int64, now time.Duration) time.Duration {
	ttl = min(max(ttl, 1), MaxTTL)
	if d := time.Duration(ttl) * time.Second; d <= math.MaxInt64-now {
		return now + d
	}
	return math.MaxInt64
}

// order is a heap of leases, the earliest deadline first, and of equal ones the lowest id.
type order []*entry

func (o order) Len() int { return len(o) }
func (o order) Less(i, j int) bool {
	return o[i].Deadline < o[j].Deadline || o[i].Deadline == o[j].Deadline && o[i].ID < o[j].ID
}
func (o order) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].place, o[j].place = i, j
}

func (o *order) Push(x any) {
	e := x.(*entry)
	e.place = len(*o)
	*o = append(*o, e)
}

func (o *order) Pop() any {
	old := *o
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*o = old[:len(old)-1]
	return e
}
