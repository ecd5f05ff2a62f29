package history

import (
	"slices"
	"sync"
)

// Recorder collects the operations of many clients. It is safe for concurrent use, and the zero value is
// ready. It keeps everything: a run of a million operations takes some 200 MB.
type Recorder struct {
	mu         sync.Mutex
	operations []Operation
}

// Add records an operation that has ended, or that its client has given up.
func (r *Recorder) Add(o Operation) {
	if o.Outcome == Unknown {
		o.Return = Never
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.operations = append(r.operations, o)
}

// Operations returns what was recorded, in the order in which it was added.
func (r *Recorder) Operations() []Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.operations)
}

// Len returns the number of operations.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.operations)
}
