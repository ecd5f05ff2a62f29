package reports

import "github.com/millrace/millrace/internal/lock"

// backlog holds what waits for a reader, up to MaxBacklog. It drops what is newer, and knows how much.
type backlog[T any] struct {
	mu      lock.Mutex
	waiting []T
	dropped int // after the last of waiting
}

// MaxBacklog is how many events, or lines, wait for one reader.
const MaxBacklog = 1 << 10

// enqueue reports whether it has kept v.
func (b *backlog[T]) enqueue(v T) (kept bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dropped > 0 || len(b.waiting) == MaxBacklog {
		b.dropped++
		return false
	}
	b.waiting = append(b.waiting, v)
	return true
}

// dequeue returns the first. If some were dropped at this place, it returns how many, and nothing else.
func (b *backlog[T]) dequeue() (v T, dropped int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		dropped, b.dropped, b.waiting = b.dropped, 0, nil
		return v, dropped, false
	}
	v = b.waiting[0]
	var none T
	b.waiting[0] = none
	b.waiting = b.waiting[1:]
	return v, 0, true
}
