package host

import (
	"fmt"
	"runtime/debug"
)

// StartBetween makes f run where the state machine of the group is not being called. f runs on an apply
// lane, between two batches of commands, and never beside Apply, whatever the machine declares
// (NonBlocking). StartBetween never blocks; r is done when f has returned. f may use the state machine
// without a lock. While f runs nothing is applied. If f hangs, it is reported like a state machine that
// hangs (event.ApplyStalled). f must not wait for anything that the group does. A panic of f is the read's
// error, and so is runtime.Goexit in f.
//
// f sees whatever is applied; for a consistency begin with StartRead or StartApplied. If r is given up before
// f begins, f does not run. Errors are those of StartRead.
func (g *Group) StartBetween(r *Read, f func()) {
	if !r.begin(g) {
		return
	}
	rd := &g.reads
	rd.mu.Lock()
	if err := rd.reserve(r); err != nil {
		rd.mu.Unlock()
		r.finish(err)
		return
	}
	r.between = f
	rd.between.Push(&r.place)
	rd.betweens.Add(1)
	rd.mu.Unlock()
	g.host.appliers.enqueue(g.machine.apply)
}

// runBetween runs the functions that wait. It is called by an apply lane, before it applies.
func (q *applyQueue) runBetween() {
	rd := &q.group.reads
	for rd.betweens.Load() > 0 {
		rd.mu.Lock()
		p := rd.between.Pop()
		if p == nil {
			rd.mu.Unlock()
			return
		}
		rd.betweens.Add(-1)
		rd.mu.Unlock()
		q.runOne(p.Owner)
	}
}

// runOne calls the function of a read, and ends the read, whatever the function does.
func (q *applyQueue) runOne(r *Read) {
	err := fmt.Errorf("millrace: the function of a read of group %d ended its goroutine (runtime.Goexit, as t.Fatal does), which is not the caller's", q.group.id)
	q.calling.Lock() // a machine that never blocks is called in turns
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("millrace: the function of a read of group %d panicked: %v\n%s", q.group.id, p, debug.Stack())
		}
		q.calling.Unlock()
		rd := &q.group.reads
		rd.mu.Lock()
		r.at = ReadAt{Index: q.applied.Load()}
		rd.end(r, err)
		rd.mu.Unlock()
	}()
	r.between()
	err = nil
}
