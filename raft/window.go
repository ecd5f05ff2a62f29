package raft

import "slices"

// window is a queue of notes that only the core reads, in one array that is used again and again: items come at the end, go
// at the front, and are moved to the beginning of the array when its end is reached and half of it is free.
type window[T any] struct {
	array []T
	start int
}

// items are what is there; good until the next push.
func (w *window[T]) items() []T { return w.array[w.start:] }

func (w *window[T]) push(item T) { w.extend(1)[0] = item }

// extend adds n items and returns them, to be filled.
func (w *window[T]) extend(n int) []T {
	if len(w.array)+n > cap(w.array) && w.start > len(w.array)/2 {
		w.array = w.array[:copy(w.array, w.items())]
		w.start = 0
	}
	w.array = slices.Grow(w.array, n)
	end := len(w.array)
	w.array = w.array[:end+n]
	return w.array[end:]
}

// keep leaves the first n items.
func (w *window[T]) keep(n int) { w.array = w.array[:w.start+n] }

// drop leaves all but the first n items.
func (w *window[T]) drop(n int) {
	w.start += n
	if w.start == len(w.array) {
		w.array, w.start = w.array[:0], 0
	}
}

// rest lets the array go if nothing is in it.
func (w *window[T]) rest() {
	if len(w.array) == 0 {
		w.array = nil
	}
}
