// Package completion gathers the outcomes of many commands for one goroutine, so that none is woken for each.
// Those who hand commands in call Begin, and Cancel for what is refused. Those who know outcomes call Add.
// The goroutine that gathers them waits for Ready and calls Take.
package completion

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/lock"
)

// ErrNone: there is no queue.
var ErrNone = errors.New("millrace: nowhere to leave outcomes; make Completions with NewCompletions")

// Told hears that an outcome is known. Told must not block. What it leaves for a sink is held in t.
type Told interface{ Told(t *Together) }

// Queue holds outcomes until they are taken. Any goroutine may call its methods. They never block for long:
// one lock, no I/O.
type Queue[T any] struct {
	ready chan struct{} // has an element if and only if outcomes wait; changed under mu
	limit int
	sink  func([]T) // nil: Take gets the outcomes

	mu      lock.Mutex
	open    int // begun, and not taken yet
	waiting []T
	spare   []T   // memory for waiting
	sinking bool  // a goroutine calls sink
	held    bool  // a Together has the queue, and will flush it
	broken  error // how it has ended
}

// New returns a queue for at most limit commands that are under way, or whose outcomes wait. A limit below 1
// counts as 1.
func New[T any](limit int) *Queue[T] {
	return &Queue[T]{ready: make(chan struct{}, 1), limit: max(limit, 1)}
}

// Ready returns the channel that has an element when outcomes wait. Who receives it calls Take.
func (q *Queue[T]) Ready() <-chan struct{} { return q.ready }

// Reject says why a number of commands with a number of tags cannot be handed in, or returns nil. q may be
// nil.
func (q *Queue[T]) Reject(commands, tags int) error {
	switch {
	case q == nil:
		return ErrNone
	case commands != tags:
		return fmt.Errorf("millrace: SubmitMany with %d commands and %d tags, want a tag for each command", commands, tags)
	case q.sink != nil:
		return q.sinkErr()
	}
	return nil
}

// Begin reserves places for n outcomes, or for as many as there are. Each place gets one outcome (Add), or is
// cancelled.
func (q *Queue[T]) Begin(n int) (begun int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	begun = max(min(n, q.limit-q.open), 0)
	q.open += begun
	return begun
}

// Cancel gives places back.
func (q *Queue[T]) Cancel(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open -= n
}

// Add leaves outcomes of commands that have begun.
func (q *Queue[T]) Add(outcomes ...T) {
	if len(outcomes) == 0 {
		return
	}
	if q.sink != nil {
		q.addToSink(outcomes)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, outcomes...)
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Take returns the outcomes that wait, in the memory of reuse if they fit. It copies them: memory that the
// queue took over would be written while a caller that uses it twice still reads.
func (q *Queue[T]) Take(reuse []T) (taken []T) {
	waiting := q.take()
	taken = append(reuse[:0], waiting...)
	clear(reuse[min(len(taken), len(reuse)):]) // what they point to must not be kept alive
	clear(waiting)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.spare = waiting[:0]
	return taken
}

// take makes room for later outcomes. Those who add them do not wait until the earlier ones are copied.
func (q *Queue[T]) take() (waiting []T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	select { // also if the caller has received the element
	case <-q.ready:
	default:
	}
	waiting, q.waiting, q.spare = q.waiting, q.spare, nil
	q.open -= len(waiting)
	return waiting
}

// Open returns how many commands are under way, or have outcomes that wait.
func (q *Queue[T]) Open() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open
}

// Space returns how many more commands fit.
func (q *Queue[T]) Space() int { return q.limit - q.Open() }
