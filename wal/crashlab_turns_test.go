package wal_test

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// turns lets threads run one at a time. A thread that passes waits until it is drawn again. The others
// wait in their pass, perhaps with locks. So a thread that was drawn may wait for a lock. The
// stacks of the process say that: then another one is drawn.
//
// A thread whose lock was released runs to its next pass beside the thread that released it. What it does on
// this way is the only thing that a seed does not decide.
type turns struct {
	threads []*thread
	holder  atomic.Pointer[thread] // the one that was drawn last
	free    atomic.Bool            // no thread waits for a turn any more
	ended   sync.WaitGroup
}

// thread is one of the goroutines.
type thread struct {
	turns *turns
	id    string // of the goroutine, as its stack says
	state atomic.Int32
	turn  chan struct{}
	noted atomic.Uint64 // see note
}

const (
	running int32 = iota // or waiting for a lock
	passing
	gone
)

// add adds a thread, which begins with a pass.
func (t *turns) add(f func(th *thread)) {
	th := &thread{turns: t, turn: make(chan struct{}, 1)}
	t.threads = append(t.threads, th)
	began := make(chan struct{})
	t.ended.Go(func() {
		defer th.state.Store(gone)
		th.id = goroutineID()
		close(began)
		if th.pass() {
			f(th)
		}
	})
	<-began
}

// pass waits for the thread's next turn. It reports false if the threads run to their end.
func (th *thread) pass() bool {
	if !th.turns.free.Load() {
		th.state.Store(passing)
		<-th.turn
	}
	return !th.turns.free.Load()
}

// note orders what this thread has done before what the next one does. A pass does so, too; a wait for a lock
// is seen in the stacks only, of which the race detector does not know.
func (th *thread) note() { th.noted.Add(1) }

// me returns the thread that calls it, or nil.
func (t *turns) me() *thread {
	id := goroutineID()
	for _, th := range t.threads {
		if th.id == id {
			return th
		}
	}
	return nil
}

// next gives a turn to a thread that passes, drawn with draw, and returns when every thread waits again. It
// reports false if all threads have ended. An error means that they wait for one another.
func (t *turns) next(draw func(n int) int) (more bool, err error) {
	t.awaitPasses()
	var ready []*thread
	for _, th := range t.threads {
		switch th.state.Load() {
		case passing:
			ready = append(ready, th)
		case running:
			more = true
		}
	}
	if len(ready) == 0 {
		if more {
			err = fmt.Errorf("the threads wait for one another:\n%s", stacks())
		}
		return more, err
	}
	th := ready[draw(len(ready))]
	t.holder.Store(th)
	th.state.Store(running)
	th.turn <- struct{}{}
	t.awaitPasses()
	return true, nil
}

// release lets all threads run to their end.
func (t *turns) release() {
	t.free.Store(true)
	for _, th := range t.threads {
		if th.state.CompareAndSwap(passing, running) {
			th.turn <- struct{}{}
		}
	}
	t.ended.Wait()
}

// awaitPasses returns when each thread passes, has ended, or waits for a lock of one that passes.
func (t *turns) awaitPasses() {
	for spins := 1; ; spins++ {
		var busy []*thread
		for _, th := range t.threads {
			if th.state.Load() == running {
				busy = append(busy, th)
			}
		}
		if len(busy) == 0 || spins%64 == 0 && allWait(busy) {
			for _, th := range busy {
				th.noted.Load()
			}
			return
		}
		runtime.Gosched()
	}
}

var stackBytes = make([]byte, 1<<20)

func stacks() []byte { return stackBytes[:runtime.Stack(stackBytes, true)] }

// allWait reports whether all of these threads wait for a lock at the same moment.
func allWait(busy []*thread) bool {
	all := stacks()
	for _, th := range busy {
		_, after, _ := bytes.Cut(all, []byte("goroutine "+th.id+" "))
		head, _, _ := bytes.Cut(after, []byte("\n")) // as in "gp=0x... [sync.Mutex.Lock, 2 minutes]:"
		if !bytes.Contains(head, []byte("[sync.")) {
			return false
		}
	}
	return true
}

func goroutineID() string {
	var head [64]byte
	text := bytes.TrimPrefix(head[:runtime.Stack(head[:], false)], []byte("goroutine "))
	id, _, _ := bytes.Cut(text, []byte(" "))
	return string(id)
}
