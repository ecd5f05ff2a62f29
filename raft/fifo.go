package raft

import "slices"

// fifo is a queue of values that only the core reads, in one array that is reused. Values are
// added at the end and removed at the front. They move to the beginning of the array when its end is reached
// and half of it is free.
type fifo[T any] struct {
	array []T
	start int
}

// items returns the values in the queue. The slice is valid until the next push or extend.
func (q *fifo[T]) items() []T { return q.array[q.start:] }

func (q *fifo[T]) push(item T) { q.extend(1)[0] = item }

// extend adds n values and returns them for the caller to fill.
func (q *fifo[T]) extend(n int) []T {
	if len(q.array)+n > cap(q.array) && q.start > len(q.array)/2 {
		q.array = q.array[:copy(q.array, q.items())]
		q.start = 0
	}
	q.array = slices.Grow(q.array, n)
	end := len(q.array)
	q.array = q.array[:end+n]
	return q.array[end:]
}

// keep removes all but the first n values.
func (q *fifo[T]) keep(n int) { q.array = q.array[:q.start+n] }

// drop removes the first n values.
func (q *fifo[T]) drop(n int) {
	q.start += n
	if q.start == len(q.array) {
		q.array, q.start = q.array[:0], 0
	}
}

// shrink releases the array if the queue is empty.
func (q *fifo[T]) shrink() {
	if len(q.array) == 0 {
		q.array = nil
	}
}
