package feed

import (
	"sync/atomic"

	"github.com/millrace/millrace/host/statemachine"
)

// Reader is a subscriber: a bookmark. Its methods are for one goroutine, except At.
type Reader struct {
	feed *Feed
	at   atomic.Pointer[statemachine.Bookmark]
}

// Subscribe returns a reader of what is published behind a bookmark. Close ends it.
func (f *Feed) Subscribe(after statemachine.Bookmark) *Reader {
	r := &Reader{feed: f}
	r.at.Store(&after)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers[r] = struct{}{}
	return r
}

// At returns the last publication that the reader has taken.
func (r *Reader) At() statemachine.Bookmark { return *r.at.Load() }

// Poll takes what follows, at most one batch. If there is nothing yet, changed is closed when there may be.
// The error is a ForgottenError. The publications are shared and must not be changed.
func (r *Reader) Poll() (all []statemachine.Publication, changed <-chan struct{}, err error) {
	f, at := r.feed, r.At()
	f.mu.RLock()
	if at.Compare(f.floor) < 0 {
		err = &statemachine.ForgottenError{After: at, First: f.floor}
	} else if i, j := f.search(at); i < len(f.batches) {
		all = f.batches[i].all[j:]
	}
	changed = f.changed
	f.mu.RUnlock()
	if err != nil {
		f.mu.Lock()
		f.lost++
		f.mu.Unlock()
	}
	if n := len(all); n > 0 {
		last := all[n-1].At
		r.at.Store(&last)
	}
	return all, changed, err
}

// Await says that the reader is going to wait, so that it must be woken; its Poll follows. end ends that.
func (r *Reader) Await() (end func()) {
	r.feed.waiting.Add(1)
	return func() { r.feed.waiting.Add(-1) }
}

// Close ends the reader.
func (r *Reader) Close() {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	delete(r.feed.readers, r)
}

// Broadcast wakes all readers that wait. It takes as long as there are readers, so it is not called where the
// machine is.
func (f *Feed) Broadcast() {
	f.mu.Lock()
	changed := f.changed
	f.changed = make(chan struct{})
	f.mu.Unlock()
	close(changed)
}
