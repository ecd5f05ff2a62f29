package tcp

import (
	"context"
	"time"
)

// signal wakes the goroutine that receives from a channel of capacity one. One pending signal is enough.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause waits for d, or returns false as soon as ctx is done.
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
