package completion

// Together holds outcomes that become known together, under a lock of those who know them. Queues with a sink
// get theirs when the lock is free again, each with one call. The zero value holds nothing. It belongs to the
// goroutine that has the lock.
type Together struct{ held []flusher }

type flusher interface{ flush() }

// Hold leaves the outcome of a command that has begun. A sink gets it with Flush; without a sink it is there
// at once.
func (q *Queue[T]) Hold(outcome T, t *Together) {
	if q.sink == nil {
		q.Add(outcome)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting = append(q.waiting, outcome); !q.held {
		q.held, t.held = true, append(t.held, q)
	}
}

// flush gives the sink what is held, and what others have left meanwhile.
func (q *Queue[T]) flush() {
	q.addToSink(nil)
}

// Move returns what is held, for a goroutine that releases the lock first.
func (t *Together) Move() (moved Together) {
	moved, t.held = *t, nil
	return moved
}

// Flush hands over what is held. A sink that ends its goroutine keeps nothing from the others.
func (t *Together) Flush() {
	if len(t.held) == 0 {
		return
	}
	next := t.held[0]
	t.held = t.held[1:]
	defer t.Flush()
	next.flush()
}
