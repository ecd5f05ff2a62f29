package reads

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/completion"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/internal/timelimit"
)

// Read is one read on its way. The zero value is ready for one Start of a Queue. Poll and Wait may be called
// from anywhere, any number of times.
type Read struct {
	// Guarded by the lock of the queue.
	queue    *Queue
	place    sched.Place[*Read] // fresh, asked or between
	number   uint64             // of the question that covers it
	waitsAt  int                // its place among those that wait for an index, from 1; 0: none
	at       outcome.ReadAt
	between  func()
	reserved bool           // it counts against the budget
	next     *Read          // of those that have ended, and are told next
	timed    bool           // began is set
	began    time.Duration  // by Settings.Now
	counter  *atomic.Uint64 // of the reads of its kind that were answered; nil: they are not counted

	mu      lock.Mutex
	started bool
	misused bool
	done    bool
	err     error
	ended   chan struct{}   // nil until a Wait needs it
	told    completion.Told // OnDone
}

var (
	errUsed  = errors.New("millrace: this Read was started before; use a new one for each read")
	errEmpty = errors.New("millrace: this Read was not started")
)

// endings are reads that have ended, and are not told yet.
type endings struct {
	first, last *Read
	bytes       int64 // of the budget, which they do not need any more
}

// add adds a read, with its outcome.
func (e *endings) add(r *Read, err error) {
	r.err = err // not read before it is done
	if e.first == nil {
		e.first = r
	} else {
		e.last.next = r
	}
	e.last = r
}

// tell tells the outcomes, in the order in which the reads have ended. The caller has no lock.
func (e *endings) tell() {
	if e.first == nil {
		return
	}
	var t *completion.Together // made for a sink only: it is on the heap
	for next := e.first; next != nil; {
		r := next
		next, r.next = r.next, nil
		told := r.end()
		if told == nil {
			continue
		}
		if t == nil {
			t = new(completion.Together)
		}
		told.Told(t)
	}
	if t != nil {
		t.Flush()
	}
}

// begin makes the read belong to a queue, and reports whether it is its first use.
func (r *Read) begin(q *Queue) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started {
		r.misused = true
		return false
	}
	r.started, r.queue, r.place.Owner = true, q, r
	return true
}

// time makes the queue count how long the read takes, if it times its reads.
func (r *Read) time(began time.Duration) { r.began, r.timed = began, r.queue.settings.Now != nil }

// refuse tells the outcome of a read that has not begun. The caller has no lock.
func (r *Read) refuse(err error) {
	var e endings
	e.add(r, err)
	e.tell()
}

// end makes the outcome known, once, and returns what must be called then. No list of the queue has the read
// any more.
func (r *Read) end() (told completion.Told) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return nil
	}
	if r.done = true; r.err == nil && r.counter != nil {
		r.counter.Add(1)
	}
	if r.ended != nil {
		close(r.ended)
	}
	return r.told
}

// OnDone makes t hear once that the outcome is known. It must be called before the read begins.
func (r *Read) OnDone(t completion.Told) { r.told = t }

// Poll returns the outcome, if it is known.
func (r *Read) Poll() (at outcome.ReadAt, done bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.misused:
		return outcome.ReadAt{}, true, errUsed
	case !r.started:
		return outcome.ReadAt{}, true, errEmpty
	case !r.done:
		return outcome.ReadAt{}, false, nil
	case r.err != nil:
		return outcome.ReadAt{}, true, r.err
	}
	return r.at, true, nil
}

// Wait returns the outcome as soon as it is known. If ctx ends first, the read is given up. A function of
// StartBetween that has begun is waited for, whatever ctx says.
func (r *Read) Wait(ctx context.Context) (outcome.ReadAt, error) {
	r.mu.Lock()
	if r.started && !r.done && !r.misused && r.ended == nil {
		r.ended = make(chan struct{})
	}
	ended := r.ended
	r.mu.Unlock()
	if ended != nil && !isOver(ctx, ended) {
		q := r.queue
		q.giveUp(r, fmt.Errorf("millrace: a read of group %d was given up: %w", q.settings.Group, q.wiring.WaitEnd(ctx)))
		<-ended // at once, unless its function runs
	}
	at, _, err := r.Poll()
	return at, err
}

// isOver waits for the end of a read, and reports whether that came before the end of a context.
func isOver(ctx context.Context, ended <-chan struct{}) bool {
	done, reached := timelimit.Split(ctx)
	select {
	case <-ended:
		return true
	case <-done:
	case <-reached:
	}
	return false
}
