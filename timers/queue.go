// Package timers keeps the timers of a state machine: the ends of leases, of keys, of waits.
//
// A Queue is a part of the machine's state. Apply sets, renews and cancels its timers, and asks it with each
// command what is due. The only clock is log time, Command.Time: it is the same on every member. So every
// member lets a timer expire at the same command, whatever its own clock says.
//
//	func (l *leases) apply(c millrace.Command[command]) result {
//		for name := range l.timers.Expire(c.Time, maxExpired) {
//			delete(l.held, name)
//		}
//		…
//		l.timers.Set(name, c.Time+ttl) // a lease that is held already is renewed
//	}
//
// No expiry is decided outside Apply. A renewal counts for every command behind it in the log, whatever a
// leader believed when it proposed them. Two leaders do no harm: the second command finds nothing due.
//
// Log time passes with commands, so a command must come when a timer is due and no client has a request. The
// leader proposes it when the first timer is due, and at no other time: the tick of millrace.Machine.Timers.
//
// A Queue has no lock, no goroutine and no clock. As any part of the state it belongs to Apply, Snapshot and
// Restore.
package timers

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"
)

// Queue holds timers, at most one for each key. The zero Queue has none and is ready. An assignment moves it:
// the old one must not be used any more (Clone makes a copy).
//
// Set, Cancel and each timer of Expire cost O(log n); the rest of the lookups O(1).
type Queue[K cmp.Ordered] struct {
	heap   []Timer[K]    // the first is that of the earliest deadline; the children of i are 2i+1 and 2i+2
	places map[K]int     // key → place in heap
	sooner chan struct{} // nil until a clock asks for it
}

// Timer is one timer of a Queue.
type Timer[K cmp.Ordered] struct {
	Key K
	// Deadline is in log time. The timer expires at the first command whose Time is not before it.
	Deadline time.Duration
}

// compare orders timers by deadline, and those of one deadline by key, so that all members have one order.
func (t Timer[K]) compare(u Timer[K]) int {
	return cmp.Or(cmp.Compare(t.Deadline, u.Deadline), cmp.Compare(t.Key, u.Key))
}

// Set sets the timer of a key to a deadline. If the key has a timer already, it is renewed: the new deadline
// counts, also if it is earlier. A deadline in the past is due at the next command.
func (q *Queue[K]) Set(key K, deadline time.Duration) {
	first, waits := q.Next()
	if i, ok := q.places[key]; ok {
		q.heap[i].Deadline = deadline
		q.restore(i)
	} else {
		if q.places == nil {
			q.places = map[K]int{}
		}
		q.heap = append(q.heap, Timer[K]{key, deadline})
		q.up(len(q.heap) - 1)
	}
	if !waits || q.heap[0].Deadline < first {
		q.signal()
	}
}

// Cancel removes the timer of a key, and reports whether it had one.
func (q *Queue[K]) Cancel(key K) bool {
	i, ok := q.places[key]
	if ok {
		q.remove(i)
	}
	return ok
}

// Deadline returns the deadline of a key, and whether it has a timer.
func (q *Queue[K]) Deadline(key K) (time.Duration, bool) {
	i, ok := q.places[key]
	if !ok {
		return 0, false
	}
	return q.heap[i].Deadline, true
}

// Expire yields the keys whose deadlines have passed at log time now, at most so many, in the order of their
// deadlines. Each is removed before it is yielded, so the body may set it again. What is left when the
// loop ends, or because of the bound, is due at the next command.
//
// Apply calls it for each command, with Command.Time. With nothing due it costs one comparison.
func (q *Queue[K]) Expire(now time.Duration, most int) iter.Seq[K] {
	return func(yield func(K) bool) {
		for range most {
			if len(q.heap) == 0 || q.heap[0].Deadline > now {
				return
			}
			key := q.heap[0].Key
			q.remove(0)
			if !yield(key) {
				return
			}
		}
	}
}

// Next returns the earliest deadline, and whether there is a timer.
func (q *Queue[K]) Next() (deadline time.Duration, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].Deadline, true
}

// Len returns the number of timers.
func (q *Queue[K]) Len() int { return len(q.heap) }

// All yields all timers in the order of their deadlines. It costs O(n log n).
func (q *Queue[K]) All() iter.Seq[Timer[K]] { return slices.Values(q.sorted()) }

func (q *Queue[K]) sorted() []Timer[K] {
	return slices.SortedFunc(slices.Values(q.heap), Timer[K].compare)
}

// Clone returns a copy, for a snapshot that is written later.
func (q *Queue[K]) Clone() *Queue[K] {
	return &Queue[K]{heap: slices.Clone(q.heap), places: maps.Clone(q.places)}
}

// Replace replaces all timers by those of another queue. The other one must not be used any more. Restore
// fills a queue first and then calls Replace: so a snapshot that breaks off changes nothing.
func (q *Queue[K]) Replace(other *Queue[K]) {
	q.heap, q.places = other.heap, other.places
	q.signal()
}

// Sooner returns a channel that gets a value when the earliest deadline may have become earlier. It is for
// the leader's clock (millrace.Machine.Timers), which is its only reader.
func (q *Queue[K]) Sooner() <-chan struct{} {
	if q.sooner == nil {
		q.sooner = make(chan struct{}, 1)
	}
	return q.sooner
}

// signal wakes the clock, if there is one. It never waits.
func (q *Queue[K]) signal() {
	select {
	case q.sooner <- struct{}{}:
	default: // no clock has asked, or it has not looked since the last value
	}
}

// remove takes the timer at place i out of the heap.
func (q *Queue[K]) remove(i int) {
	last := len(q.heap) - 1
	delete(q.places, q.heap[i].Key)
	q.heap[i] = q.heap[last]
	q.heap[last] = Timer[K]{} // its key may hold memory
	q.heap = q.heap[:last]
	if i < last {
		q.restore(i)
	}
}

// restore moves the timer at place i to where its deadline belongs.
func (q *Queue[K]) restore(i int) {
	if !q.down(i) {
		q.up(i)
	}
}

// up moves the timer at place i before the parents that are due later.
func (q *Queue[K]) up(i int) {
	t := q.heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if t.compare(q.heap[parent]) >= 0 {
			break
		}
		q.put(i, q.heap[parent])
		i = parent
	}
	q.put(i, t)
}

// down moves the timer at place i behind the children that are due earlier, and reports whether it moved.
func (q *Queue[K]) down(i int) bool {
	t, from := q.heap[i], i
	for {
		child := 2*i + 1
		if child >= len(q.heap) {
			break
		}
		if right := child + 1; right < len(q.heap) && q.heap[right].compare(q.heap[child]) < 0 {
			child = right
		}
		if t.compare(q.heap[child]) <= 0 {
			break
		}
		q.put(i, q.heap[child])
		i = child
	}
	q.put(i, t)
	return i != from
}

// put puts a timer into a place of the heap.
func (q *Queue[K]) put(i int, t Timer[K]) {
	q.heap[i] = t
	q.places[t.Key] = i
}
