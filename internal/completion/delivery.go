package completion

// Delivery gathers outcomes of a batch for the same Queue, which gets them together, with one lock. Its
// goroutine ends with Flush.
type Delivery[T any] struct {
	to       *Queue[T]
	outcomes []T
}

// Add leaves an outcome for a queue.
func (d *Delivery[T]) Add(to *Queue[T], outcome T) {
	if to != d.to {
		d.Flush()
		d.to = to
	}
	d.outcomes = append(d.outcomes, outcome)
}

// Flush hands over what was left.
func (d *Delivery[T]) Flush() {
	if d.to == nil {
		return
	}
	d.to.Add(d.outcomes...)
	clear(d.outcomes) // what they point to must not be kept alive
	d.to, d.outcomes = nil, d.outcomes[:0]
}

// Shrink releases the memory between two batches.
func (d *Delivery[T]) Shrink() { d.outcomes = nil }
