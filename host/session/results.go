package session

// results keeps the results of the newest commands, within a number of bytes.
//
// Invariant: what is kept depends on the commands and their results in log order, not on how a member cuts
// them into batches. A member learns the results of a batch at its end, and numbers of the same batch may
// have left by then. Another member had smaller batches, and kept such a result for a while, at the cost of
// an older one. So nothing is freed at once: what leaves is queued with its place in the order, and keep
// carries out what came before its command.
type results struct {
	most     int64 // bytes; 0 keeps none
	bytes    int64 // of those in state resultKept
	placed   uint64
	awaited  queueOf[*result] // no result yet, in log order
	leaving  queueOf[departure]
	kept     queueOf[*result] // in log order; also those that are no longer kept
	keptDead int              // how many of them
}

// departure is a result whose number has left the table, after the results through number after were placed.
type departure struct {
	result *result
	after  uint64
}

type resultState uint8

const (
	resultAwaited resultState = iota
	resultKept
	resultGone
)

type result struct {
	place uint64 // in the order of Fresh commands, from 1
	bytes []byte
	state resultState
}

func (r *result) size() int64 { return int64(len(r.bytes)) + ResultOverheadBytes }

// await returns the result of a command that is about to be applied.
func (r *results) await() *result {
	r.placed++
	a := &result{place: r.placed}
	r.awaited.push(a)
	return a
}

// free drops the result of a number that leaves. nil is no result.
func (r *results) free(a *result) {
	if a == nil {
		return
	}
	r.leaving.push(departure{a, r.placed})
	if r.awaited.len() == 0 {
		r.leave(r.placed)
	}
}

// keep gives the first awaited result its bytes.
func (r *results) keep(bytes []byte) {
	if r.awaited.len() == 0 {
		return
	}
	a := r.awaited.pop()
	r.leave(a.place - 1)
	a.bytes, a.state = bytes, resultKept
	switch {
	case bytes == nil || a.size() > r.most/4:
		a.bytes, a.state = nil, resultGone
	default:
		r.bytes += a.size()
		r.kept.push(a)
		for r.bytes > r.most {
			r.drop(r.kept.pop())
		}
	}
	if r.awaited.len() == 0 {
		r.leave(r.placed)
	}
}

// leave carries out the departures after the results through place.
func (r *results) leave(through uint64) {
	for r.leaving.len() > 0 && r.leaving.front().after <= through {
		if a := r.leaving.pop().result; a.state == resultKept {
			r.bytes -= a.size()
			a.bytes, a.state = nil, resultGone
			r.keptDead++
		}
	}
	for r.kept.len() > 0 && r.kept.front().state == resultGone {
		r.kept.pop()
		r.keptDead--
	}
	if r.keptDead > minCompaction && r.keptDead > r.kept.len()/2 {
		r.kept.keepOnly(func(a *result) bool { return a.state == resultKept })
		r.keptDead = 0
	}
}

const minCompaction = 64

// drop forgets the oldest result for lack of space.
func (r *results) drop(a *result) {
	if a.state == resultGone {
		r.keptDead--
		return
	}
	r.bytes -= a.size()
	a.bytes, a.state = nil, resultGone
}

// queueOf is a queue in one array.
type queueOf[T any] struct {
	items []T
	head  int
}

func (q *queueOf[T]) len() int { return len(q.items) - q.head }
func (q *queueOf[T]) front() T { return q.items[q.head] }

func (q *queueOf[T]) push(item T) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, item)
}

func (q *queueOf[T]) pop() T {
	var zero T
	item := q.items[q.head]
	q.items[q.head] = zero
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return item
}

func (q *queueOf[T]) keepOnly(wanted func(T) bool) {
	kept := q.items[:0]
	for _, item := range q.items[q.head:] {
		if wanted(item) {
			kept = append(kept, item)
		}
	}
	clear(q.items[len(kept):])
	q.items, q.head = kept, 0
}
