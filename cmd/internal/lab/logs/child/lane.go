package child

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// lane is a queue of values that are appended together.
type lane struct {
	target *target
	mu     sync.Mutex
	ready  *sync.Cond
	queue  []pendingAppend
	closed error

	// Owned by run.
	taken []pendingAppend
	batch []Entry
}

// pendingAppend is a client that waits.
type pendingAppend struct {
	id     load.ValueID
	group  int
	value  []byte
	answer chan error
}

// MaxBatchBytes bounds one append. A thousand clients with values of 1 KiB fill a quarter of it.
const MaxBatchBytes = 4 << 20

var errClosed = errors.New("the log is closed")

func newLane(t *target) *lane {
	l := &lane{target: t}
	l.ready = sync.NewCond(&l.mu)
	return l
}

// put queues a value, unless the lane is closed.
func (l *lane) put(p pendingAppend) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return l.closed
	}
	l.queue = append(l.queue, p)
	l.ready.Signal()
	return nil
}

// run is the goroutine of a lane. It ends with the lane, or with the first error, which answers every client.
func (l *lane) run() {
	for l.take() {
		if err := l.commit(); err != nil {
			l.stop(err)
			for _, p := range l.taken {
				p.answer <- err
			}
			return
		}
		for _, p := range l.taken {
			p.answer <- nil
		}
		// The clients just answered put their next values in before the next batch is taken, so that batches are as
		// large as the load allows.
		runtime.Gosched()
	}
}

// take waits for values and takes all of them, up to MaxBatchBytes.
func (l *lane) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && l.closed == nil {
		l.ready.Wait()
	}
	if l.closed != nil {
		return false
	}
	n, bytes := 0, 0
	for n < len(l.queue) && (n == 0 || bytes+len(l.queue[n].value) <= MaxBatchBytes) {
		bytes += len(l.queue[n].value)
		n++
	}
	l.taken = append(l.taken[:0], l.queue[:n]...)
	l.queue = l.queue[:copy(l.queue, l.queue[n:])]
	return true
}

// commit appends the values taken, and compacts the groups that are due.
func (l *lane) commit() error {
	t := l.target
	l.batch = l.batch[:0]
	bytes := 0
	for _, p := range l.taken {
		g := &t.groups[p.group]
		l.batch = append(l.batch, Entry{Group: p.group, Index: g.next(), Data: p.value})
		g.ids = append(g.ids, p.id)
		bytes += len(p.value)
	}
	if err := t.store.Append(l.batch); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	t.appends.Add(1)
	t.entries.Add(uint64(len(l.batch)))
	t.syncedBytes.Add(uint64(bytes))
	for _, e := range l.batch {
		if err := t.compact(e.Group); err != nil {
			return fmt.Errorf("compact: %w", err)
		}
	}
	return nil
}

// stop refuses further values and answers the clients that wait.
func (l *lane) stop(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed == nil {
		l.closed = err
	}
	for _, p := range l.queue {
		p.answer <- l.closed
	}
	l.queue = nil
	l.ready.Signal()
}
