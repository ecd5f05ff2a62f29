package tcp

import (
	"context"
	"sync"
	"time"
)

// reportPause is the least time between two rounds of Unreachable reports.
const reportPause = 20 * time.Millisecond

// herald calls Receiver.Unreachable on a goroutine of its own: the losses it tells of are found in Send, whose caller
// may hold the very lock that the receiver wants, and in writers that are about to block. Losses of one peer that
// come within reportPause are one report, and the report always comes after the loss.
type herald struct {
	mu   sync.Mutex
	lost map[uint64]bool
	wake chan struct{}
}

func (h *herald) init() { h.lost, h.wake = map[uint64]bool{}, make(chan struct{}, 1) }

// tell notes a loss. The set is bounded by the number of peers.
func (h *herald) tell(peer uint64) {
	h.mu.Lock()
	h.lost[peer] = true
	h.mu.Unlock()
	signal(h.wake)
}

func (h *herald) run(ctx context.Context, report func(peer uint64)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		}
		h.mu.Lock()
		lost := h.lost
		h.lost = map[uint64]bool{}
		h.mu.Unlock()
		for id := range lost {
			if ctx.Err() == nil {
				report(id)
			}
		}
		if !pause(ctx, reportPause) {
			return
		}
	}
}

// signal wakes whoever receives from a channel of capacity one; a signal that is already there is enough.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause waits, or returns false as soon as ctx is done.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
