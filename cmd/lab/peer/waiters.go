package peer

import (
	"sync"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// Waiters are the clients of a library that does not answer them by itself. It hands over committed values,
// and the client of each value is in its header. A client has one write outstanding. The zero value is
// ready to use.
type Waiters struct {
	mu       sync.Mutex
	byClient map[uint32]waiter
}

type waiter struct {
	seq    uint64
	answer chan error
}

// Add makes a client wait for value, and returns the channel of its answer, which load.PutAnswer takes back.
func (w *Waiters) Add(value []byte) chan error {
	id, answer := load.IDOf(value), load.GetAnswer()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byClient == nil {
		w.byClient = map[uint32]waiter{}
	}
	w.byClient[id.Client] = waiter{id.Seq, answer}
	return answer
}

// Answer tells the client of value that it is committed, or why it will not be. It does nothing for a value
// whose client does not wait here: it waits at another node, or has been answered.
func (w *Waiters) Answer(value []byte, err error) {
	id := load.IDOf(value)
	w.mu.Lock()
	found, ok := w.byClient[id.Client]
	ok = ok && found.seq == id.Seq
	if ok {
		delete(w.byClient, id.Client)
	}
	w.mu.Unlock()
	if ok {
		found.answer <- err
	}
}

// Fail answers all clients that wait with err.
func (w *Waiters) Fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, waiting := range w.byClient {
		waiting.answer <- err
	}
	w.byClient = nil
}
