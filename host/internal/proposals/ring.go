package proposals

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
)

// Ring holds the clients that wait for entries of this host's log, by index: a run for each term in which
// this host proposed. Only committed entries decide what happens to a proposal, since an entry that another
// leader has overwritten here may survive elsewhere and come back. So two runs may have clients at one
// index. They never have for long, because terms never decrease along a log (thesis §3.5). Once an entry of
// a later term is committed, no entry of an earlier term can be committed behind it (Drop).
//
// W is a pointer to a client; its zero value is none. The zero Ring is empty. It has no lock of its own. Its
// functions are called with the Ring in order, so one that ends its goroutine does no harm.
type Ring[W comparable] struct {
	// Results says that clients wait for results, too. It is set before the first Reserve.
	Results bool

	runs    []run[W] // by term; only the last may be empty, which then keeps its memory
	applied uint64   // entries through this one are applied

	unanswered, unapplied int          // clients that wait for either half
	waiting, applying     atomic.Int64 // the same, for those who do not have the lock
}

// run has the clients of one term, one place for each index. A place is none if no client waits there, or no
// more: it is answered and, with Results, applied.
type run[W comparable] struct {
	term   uint64
	next   uint64 // the first index that is not answered
	sent   uint64 // entries through this one have left for another member
	first  uint64 // the index of places[head]
	head   int
	places []W
}

func (r *run[W]) end() uint64 { return r.first + uint64(len(r.places)-r.head) }

func (r *run[W]) isEmpty() bool { return r.head == len(r.places) }

// at returns the place of an index, which must be in [first, end).
func (r *run[W]) at(index uint64) *W { return &r.places[r.head+int(index-r.first)] }

// Unanswered returns how many clients wait to hear what happens to their entries. It needs no lock.
func (r *Ring[W]) Unanswered() int { return int(r.waiting.Load()) }

// Unapplied returns how many clients wait for results. It needs no lock.
func (r *Ring[W]) Unapplied() int { return int(r.applying.Load()) }

// Oldest returns the first term with a client that is not answered, or the highest number if there is none.
func (r *Ring[W]) Oldest() uint64 {
	for i := range r.runs {
		if run := &r.runs[i]; run.next < run.end() {
			return run.term
		}
	}
	return math.MaxUint64
}

// Reserve makes clients wait for n entries, beginning with an index, that this host has proposed in a term.
// The caller must write the clients into the places that it returns, before anything else. Terms, and
// indexes within a term, only grow. The index is beyond everything that is committed.
func (r *Ring[W]) Reserve(term, index uint64, n int) (places []W) {
	run := r.runOf(term, index)
	gap := int(index - run.end()) // the leader's first entry, or entries of other hosts
	if run.head > len(run.places)/2 && len(run.places)+gap+n > cap(run.places) {
		kept := copy(run.places, run.places[run.head:])
		clear(run.places[kept:])
		run.places, run.head = run.places[:kept], 0
	}
	begin := len(run.places) + gap
	run.places = slices.Grow(run.places, gap+n)[:begin+n] // what is behind the places is always none
	r.unanswered += n
	if r.Results {
		r.unapplied += n
	}
	r.publish()
	return run.places[begin:]
}

// publish makes the numbers known to those who do not have the lock.
func (r *Ring[W]) publish() {
	r.waiting.Store(int64(r.unanswered))
	r.applying.Store(int64(r.unapplied))
}

// runOf returns the run that gets an index next.
func (r *Ring[W]) runOf(term, index uint64) *run[W] {
	n := len(r.runs)
	if n == 0 || r.runs[n-1].term != term && !r.runs[n-1].isEmpty() {
		r.runs = append(r.runs, run[W]{})
		n++
	}
	last := &r.runs[n-1]
	if last.isEmpty() {
		*last = run[W]{term: term, next: index, sent: index - 1, first: index, places: last.places[:0]}
	}
	if n > 1 && r.runs[n-2].term >= term || last.end() > index {
		panic(fmt.Sprintf("millrace: entry %d of term %d is proposed after entry %d of term %d; this is a bug", index, term, last.end()-1, last.term))
	}
	return last
}

// trim releases the places at the front for which no client waits any more, and publishes the numbers.
func (r *Ring[W]) trim() {
	r.publish()
	var none W
	kept := r.runs[:0]
	for i := range r.runs {
		run := r.runs[i]
		for !run.isEmpty() && run.first < run.next && run.places[run.head] == none {
			run.head++
			run.first++
		}
		if !run.isEmpty() || i == len(r.runs)-1 {
			kept = append(kept, run)
		}
	}
	clear(r.runs[len(kept):])
	r.runs = kept
}

// Shrink releases the memory, if no client waits.
func (r *Ring[W]) Shrink() {
	if len(r.runs) == 1 && r.runs[0].isEmpty() {
		r.runs = nil
	}
}
