package completion

import (
	"errors"
	"fmt"
)

// NewSink returns a queue whose outcomes go to f: those of a batch in one call. f is called where an outcome
// becomes known, by one goroutine at a time. It must not block, and must not keep its argument. What becomes
// known meanwhile comes in its next call. A panic of f loses the outcomes of that call, and f is not called
// again.
func NewSink[T any](limit int, f func([]T)) *Queue[T] {
	q := New[T](limit)
	q.sink = f
	return q
}

// ErrBroken: the function that was to get the outcomes has panicked.
var ErrBroken = errors.New("millrace: the function of NewSink has ended, and gets no more outcomes; repair it and make another sink")

// sinkErr says how the sink has ended, or returns nil.
func (q *Queue[T]) sinkErr() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.broken
}

// addToSink gives outcomes to the sink, or leaves them to the goroutine that calls it now.
func (q *Queue[T]) addToSink(outcomes []T) {
	if !q.mayCallSink(outcomes) {
		return
	}
	for outcomes := q.nextForSink(nil); outcomes != nil; outcomes = q.nextForSink(outcomes) {
		q.callSink(outcomes)
	}
}

// mayCallSink records outcomes, and reports whether this goroutine hands them over.
func (q *Queue[T]) mayCallSink(outcomes []T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = false
	q.waiting = append(q.waiting, outcomes...)
	if q.sinking {
		return false
	}
	q.sinking = true
	return true
}

// nextForSink returns what waits, and takes the memory of what was handed over. Its places are free: the sink
// sees that there is room.
func (q *Queue[T]) nextForSink(done []T) (next []T) {
	clear(done) // what they point to must not be kept alive
	q.mu.Lock()
	defer q.mu.Unlock()
	q.spare = done[:0]
	if len(q.waiting) == 0 {
		q.sinking = false
		return nil
	}
	next, q.waiting, q.spare = q.waiting, q.spare, nil
	q.open -= len(next)
	return next
}

// callSink calls the function. One that panics, or ends its goroutine, is not called again.
func (q *Queue[T]) callSink(outcomes []T) {
	returned := false
	if q.sinkErr() != nil {
		return
	}
	defer func() {
		p := recover()
		if returned {
			return
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.broken = fmt.Errorf("%w: it panicked: %v", ErrBroken, p); p == nil { // no goroutine goes on from here
			q.broken, q.sinking = fmt.Errorf("%w: it ended its goroutine (runtime.Goexit, as t.Fatal does)", ErrBroken), false
		}
	}()
	q.sink(outcomes)
	returned = true
}
