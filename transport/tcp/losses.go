package tcp

import (
	"context"
	"sync"
	"time"
)

// reportPause is the minimum time between two rounds of Unreachable reports.
const reportPause = 20 * time.Millisecond

// lossReporter calls Receiver.Unreachable on a goroutine of its own. Losses are detected in Send, whose
// caller may hold a lock that the receiver needs, and in writers that are about to block. Losses of one peer
// within reportPause make one report. A report always comes after its loss.
type lossReporter struct {
	mu   sync.Mutex
	lost map[uint64]bool
	wake chan struct{}
}

func (l *lossReporter) init() { l.lost, l.wake = map[uint64]bool{}, make(chan struct{}, 1) }

// add records a loss. The set is bounded by the number of peers.
func (l *lossReporter) add(peer uint64) {
	l.mu.Lock()
	l.lost[peer] = true
	l.mu.Unlock()
	signal(l.wake)
}

func (l *lossReporter) run(ctx context.Context, report func(peer uint64)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		l.mu.Lock()
		lost := l.lost
		l.lost = map[uint64]bool{}
		l.mu.Unlock()
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
