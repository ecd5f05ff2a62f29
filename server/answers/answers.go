// Package answers bounds the memory of large answers: of those that are being made, and of those that wait
// for their clients.
//
// An answer counts from its first freeBytes on. While it is made it grows in steps, and waits for each step
// until the budget has room. When it is encoded, its bytes count until the transport has written or dropped
// them. So a client that does not read keeps its share of the budget, and later lists are refused at last.
package answers

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"
)

const (
	freeBytes = 64 << 10  // an answer up to this is not counted
	stepBytes = 256 << 10 // an answer grows by so much at a time
	maxWait   = 5 * time.Second
)

// Budget is what all answers of a member share. A nil budget, or one of 0 bytes, bounds nothing.
type Budget struct {
	max int64

	mu      sync.Mutex
	made    int64 // bytes of answers that are being made
	sent    int64 // bytes of answers that are encoded and not written yet
	making  []*Answer
	changed chan struct{} // closed when there may be more room; nil: nothing waits
	refused uint64
}

// New returns a budget.
func New(maxBytes int64) *Budget { return &Budget{max: maxBytes} }

func (b *Budget) bounds() bool { return b != nil && b.max > 0 }

// Usage is how much of a budget is in use.
type Usage struct {
	Bytes   int64
	Refused uint64 // answers
}

// Usage returns how much is in use.
func (b *Budget) Usage() Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Usage{b.made + b.sent, b.refused}
}

// Answer is one that is being made. Its methods are called by one goroutine. The zero Answer is bounded by
// nothing.
type Answer struct {
	b       *Budget
	bytes   int64 // that it has
	counted int64 // of the budget
}

// Begin begins an answer.
func (b *Budget) Begin() Answer { return Answer{b: b} }

// Grow says that the answer has grown by n bytes, and waits until there is room for them. Its error is one of
// gRPC: too many requests, or why ctx has ended.
func (a *Answer) Grow(ctx context.Context, n int64) error {
	a.bytes += n
	if a.bytes-freeBytes <= a.counted || !a.b.bounds() {
		return nil
	}
	step := max(stepBytes, a.bytes-freeBytes-a.counted)
	var waited <-chan time.Time
	for {
		changed := a.b.take(a, step)
		if changed == nil {
			return nil
		}
		if waited == nil {
			timer := time.NewTimer(maxWait)
			defer timer.Stop()
			waited = timer.C
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-waited:
			return a.b.refuse()
		}
	}
}

// take counts a step, or returns what is closed when there may be more room. The oldest answer need not wait
// for others that are being made, since they may wait for it: for it counts only what is sent. And if nothing
// is, it may be larger than the budget, as in etcd.
func (b *Budget) take(a *Answer, step int64) (changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.counted == 0 && !slices.Contains(b.making, a) {
		b.making = append(b.making, a)
	}
	oldest := b.making[0] == a && (b.sent == 0 || b.sent+a.counted+step <= b.max)
	if oldest || b.made+b.sent+step <= b.max {
		a.counted += step
		b.made += step
		return nil
	}
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

func (b *Budget) refuse() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused++
	return rpctypes.ErrGRPCRequestTooManyRequests
}

// End says that the answer is made, or given up.
func (a *Answer) End() {
	b := a.b
	if a.bytes <= freeBytes || !b.bounds() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made -= a.counted
	a.counted = 0
	if i := slices.Index(b.making, a); i >= 0 {
		b.making = slices.Delete(b.making, i, i+1)
	}
	b.wake()
}

// wake lets those that wait look again. The caller holds mu.
func (b *Budget) wake() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// hold is the part of the budget that encoded bytes have.
type hold struct {
	b    *Budget
	once sync.Once
	n    int64
}

func (h *hold) release() {
	h.once.Do(func() {
		h.b.mu.Lock()
		defer h.b.mu.Unlock()
		h.b.sent -= h.n
		h.b.wake()
	})
}

// hold counts n encoded bytes until release, which does nothing the second time. It does not wait.
func (b *Budget) hold(n int64) *hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent += n
	return &hold{b: b, n: n}
}
