package child

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// batcher queues values and appends those that wait together, on a goroutine of its own.
type batcher struct {
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

func newBatcher(t *target) *batcher {
	b := &batcher{target: t}
	b.ready = sync.NewCond(&b.mu)
	return b
}

// put queues a value, unless the batcher is closed.
func (b *batcher) put(p pendingAppend) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		return b.closed
	}
	b.queue = append(b.queue, p)
	b.ready.Signal()
	return nil
}

// run is the goroutine of a batcher. It ends with the batcher, or with the first error, which answers every
// client.
func (b *batcher) run() {
	for b.take() {
		if err := b.appendTaken(); err != nil {
			b.stop(err)
			for _, p := range b.taken {
				p.answer <- err
			}
			return
		}
		for _, p := range b.taken {
			p.answer <- nil
		}
		// The clients just answered put their next values in before the next batch is taken, so that batches are as
		// large as the load allows.
		runtime.Gosched()
	}
}

// take waits for values and takes all of them, up to MaxBatchBytes.
func (b *batcher) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) == 0 && b.closed == nil {
		b.ready.Wait()
	}
	if b.closed != nil {
		return false
	}
	n, bytes := 0, 0
	for n < len(b.queue) && (n == 0 || bytes+len(b.queue[n].value) <= MaxBatchBytes) {
		bytes += len(b.queue[n].value)
		n++
	}
	b.taken = append(b.taken[:0], b.queue[:n]...)
	b.queue = b.queue[:copy(b.queue, b.queue[n:])]
	return true
}

// appendTaken appends the values taken, and compacts the groups that are due.
func (b *batcher) appendTaken() error {
	t := b.target
	b.batch = b.batch[:0]
	bytes := 0
	for _, p := range b.taken {
		g := &t.groups[p.group]
		b.batch = append(b.batch, Entry{Group: p.group, Index: g.next(), Data: p.value})
		g.ids = append(g.ids, p.id)
		bytes += len(p.value)
	}
	if err := t.store.Append(b.batch); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	t.appends.Add(1)
	t.entries.Add(uint64(len(b.batch)))
	t.syncedBytes.Add(uint64(bytes))
	for _, e := range b.batch {
		if err := t.compact(e.Group); err != nil {
			return fmt.Errorf("compact: %w", err)
		}
	}
	return nil
}

// stop refuses further values and answers the clients that wait.
func (b *batcher) stop(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		b.closed = err
	}
	for _, p := range b.queue {
		p.answer <- b.closed
	}
	b.queue = nil
	b.ready.Signal()
}
