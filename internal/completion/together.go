package completion

// Together holds outcomes that become known together. Queues with a sink get theirs with Flush, each with one
// call. The zero value holds nothing. It belongs to one goroutine.
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
