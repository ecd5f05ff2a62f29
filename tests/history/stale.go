package history

import (
	"errors"
	"math/rand/v2"
)

// WithStaleRead returns a copy of the history in which one Get, chosen by the seed, has found a value that
// was replaced before the Get was called, as from a host that does not ask whether its state is still the
// newest. Such a history is not linearizable.
func (h History) WithStaleRead(seed uint64) (History, error) {
	planted := append(History(nil), h...)
	rng := rand.New(rand.NewPCG(seed, seed))
	for _, i := range rng.Perm(len(h)) {
		get := h[i]
		if get.Kind != Get || get.Outcome != Answered || get.MaxAge > 0 {
			continue
		}
		old, found := h.replaced(get)
		if !found {
			continue
		}
		planted[i].Got = old
		return planted, nil
	}
	return nil, errors.New("history: no Get in it comes after two writes, one after the other")
}

// replaced returns the newest value that was certainly replaced before a Get was called: another write began
// after its write had returned, and returned before the Get was called.
func (h History) replaced(get Operation) (value string, found bool) {
	var last, before Operation
	for _, o := range h {
		if follows(&get, &o) && o.Return > last.Return {
			last = o
		}
	}
	for _, o := range h {
		if follows(&get, &o) && o.Return < last.Call && o.Return > before.Return {
			before, found = o, true
		}
	}
	return before.Value, found
}

// follows reports whether o is a write of the same key that took effect before the Get was called.
func follows(get, o *Operation) bool {
	return o.Key == get.Key && o.Outcome == Answered && o.Return < get.Call && sets(o) && (o.Kind != Swap || o.Took)
}
