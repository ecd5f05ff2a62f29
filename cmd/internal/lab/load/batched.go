package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Batcher is a Target that takes many values of one goroutine at once.
type Batcher interface {
	Target
	// Batches returns where one goroutine hands in values, with at most limit under way.
	Batches(limit int) Batches
}

// Batches belongs to one goroutine. A tag is below the limit, and no two values under way have the same.
type Batches interface {
	// Submit hands in the first of the values, with their tags, and returns how many. They belong to the
	// target then. An error says why it takes no more.
	Submit(ctx context.Context, values [][]byte, tags []uint64) (taken int, err error)
	// Wait returns outcomes when there are some, and none when ctx has ended. It takes over the memory of
	// reuse.
	Wait(ctx context.Context, reuse []Answered) []Answered
}

// Answered is the outcome of one value.
type Answered struct {
	Tag uint64
	Err error
}

// Batched is one goroutine that keeps a number of writes outstanding, and hands in together what it can.
type Batched struct{ Outstanding int }

func (g Batched) start(ctx context.Context, l *Load, wg *sync.WaitGroup) {
	c := l.newClient(ctx)
	wg.Go(func() {
		defer c.finish()
		target, ok := l.target.(Batcher)
		if !ok {
			l.giveUp(errors.New("this target takes no batches of one goroutine"))
			return
		}
		b := &batched{client: c, to: target.Batches(g.Outstanding), under: make([]underWay, g.Outstanding)}
		for tag := range b.under {
			b.free = append(b.free, uint64(tag))
		}
		<-l.gate
		for b.step() {
		}
	})
}

// batched is the goroutine of Batched.
type batched struct {
	*client
	to      Batches
	under   []underWay // by tag
	free    []uint64   // tags of no write under way; the first have a value in waiting
	waiting [][]byte   // made, and not taken yet; the first has the sequence page.sent
	answers []Answered
}

// underWay is one write.
type underWay struct {
	seq   uint64
	start time.Duration
}

// step hands in what fits, and takes what is known. It reports whether there is more to do.
func (b *batched) step() bool {
	if start := b.l.now(); start < b.l.stopping() {
		if err := b.submit(start); err != nil {
			b.l.countError(err)
			b.backOff(fmt.Errorf("handing in: %w", err))
		}
	}
	if len(b.free) == len(b.under) {
		return b.l.now() < b.l.stopping()
	}
	b.answers = b.to.Wait(b.ctx, b.answers)
	end, failed := b.l.now(), error(nil)
	for _, a := range b.answers {
		w := b.under[a.Tag]
		b.free = append(b.free, a.Tag)
		switch ok := b.record(w.seq, w.start, end, a.Err); {
		case !ok:
			failed = a.Err
		case b.l.inWindow(w.start):
			b.latency.record(end - w.start)
		}
	}
	if failed != nil {
		b.backOff(failed) // once for all that came together
	}
	return len(b.answers) > 0 // else it was cut off
}

// submit fills up what may be under way.
func (b *batched) submit(start time.Duration) error {
	for len(b.waiting) < len(b.free) {
		b.waiting = append(b.waiting, b.l.source.Value(ValueID{Client: b.id, Seq: b.page.sent + uint64(len(b.waiting))}))
	}
	if len(b.waiting) == 0 {
		return nil
	}
	taken, err := b.to.Submit(b.ctx, b.waiting, b.free)
	for _, tag := range b.free[:taken] {
		b.under[tag] = underWay{b.page.Send(), start}
	}
	b.free = append(b.free[:0], b.free[taken:]...)
	b.waiting = append(b.waiting[:0], b.waiting[taken:]...)
	return err
}
