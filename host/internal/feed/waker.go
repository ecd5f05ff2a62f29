package feed

import (
	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/internal/lock"
)

// Waker wakes the subscribers of all groups of a host, on a goroutine of its own, which begins with the first
// of them. What is published while it wakes those of one batch comes with the next.
type Waker struct {
	schedule func(env.Worker) env.Task

	mu     lock.Mutex
	task   env.Task // nil: no subscriber has waited yet
	closed bool
	feeds  []*Feed // whose readers must be woken
}

// Open says how it is scheduled.
func (w *Waker) Open(schedule func(env.Worker) env.Task) { w.schedule = schedule }

// Wake makes it wake the readers of a feed. It does not block.
func (w *Waker) Wake(f *Feed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return // their groups have ended, which wakes them
	}
	if w.task == nil {
		w.task = w.schedule(w)
	}
	w.feeds = append(w.feeds, f)
	w.task.Wake()
}

// RunOnce implements env.Worker.
func (w *Waker) RunOnce() (more bool) {
	for _, f := range w.next() {
		f.Broadcast()
	}
	return false
}

// next returns the feeds whose readers must be woken.
func (w *Waker) next() (feeds []*Feed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	feeds, w.feeds = w.feeds, nil
	return feeds
}

// Stop ends it, and waits for that.
func (w *Waker) Stop() {
	if task := w.close(); task != nil {
		task.Stop()
	}
}

func (w *Waker) close() env.Task {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed, w.feeds = true, nil
	return w.task
}
