package reads

import (
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/millrace/millrace/host/outcome"
)

// StartBetween begins a read that is a function, for RunBetween.
func (q *Queue) StartBetween(r *Read, f func()) {
	if !q.begin(r) {
		return
	}
	if err := q.reserve(r); err != nil {
		q.mu.Unlock()
		r.refuse(err)
		return
	}
	r.between = f
	q.between.Push(&r.place)
	q.betweens.Add(1)
	q.mu.Unlock()
	q.wiring.Exclude()
}

// RunBetween runs the functions that wait. It is called by an apply lane, before it applies. calling is the
// lock of a machine that is called in turns, too.
func (q *Queue) RunBetween(calling sync.Locker) {
	for q.betweens.Load() > 0 {
		q.mu.Lock()
		p := q.between.Pop()
		if p == nil {
			q.mu.Unlock()
			return
		}
		q.betweens.Add(-1)
		q.mu.Unlock()
		q.run(p.Owner, calling)
	}
}

// run calls the function of a read, and ends the read, whatever the function does.
func (q *Queue) run(r *Read, calling sync.Locker) {
	err := fmt.Errorf("millrace: the function of a read of group %d ended its goroutine (runtime.Goexit, as t.Fatal does), which is not the caller's", q.settings.Group)
	calling.Lock()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("millrace: the function of a read of group %d panicked: %v\n%s", q.settings.Group, p, debug.Stack())
		}
		calling.Unlock()
		q.mu.Lock()
		r.at = outcome.ReadAt{Index: q.wiring.Applied()}
		q.end(r, err)
		q.unlock()
	}()
	r.between()
	err = nil
}
