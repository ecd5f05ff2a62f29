package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// The checkers of this file and of chains.go and lists.go know the order in which the operations took
// effect, from what the operations themselves say: an index, what each has replaced, the length of a list.
// So they need no search, and take a history of any length, where porcupine's time may grow with every
// operation that is open at once.

// placed is an operation with its place in such an order.
type placed struct {
	*Operation
	at uint64
	// alone says that no other operation has this place: it is a change.
	alone bool
}

// inRealTime returns an error if an operation that began after another one had returned is before it, or if a
// change is at the place of one that had returned before it began. what is what the places are.
func inRealTime(what string, all []placed) error {
	begins, returns := slices.Clone(all), slices.Clone(all)
	slices.SortStableFunc(begins, func(a, b placed) int { return cmp.Compare(a.Begin(), b.Begin()) })
	slices.SortStableFunc(returns, func(a, b placed) int { return cmp.Compare(a.Return, b.Return) })
	var last placed // of those that have returned, the one with the latest place
	for _, p := range begins {
		for ; len(returns) > 0 && returns[0].Return < p.Begin(); returns = returns[1:] {
			if last.Operation == nil || returns[0].at > last.at {
				last = returns[0]
			}
		}
		if last.Operation != nil && (p.at < last.at || p.alone && p.at == last.at) {
			return fmt.Errorf("history: an operation is not after one that had returned before it began: %s %d and %d\n  %v\n  %v", what, last.at, p.at, last, p)
		}
	}
	return nil
}

// Monotonic returns an error if an operation of known index (Operation.Index) has not seen what had returned
// before it began, whatever its client and its key: reads and changes move forwards in the log, and no two
// changes have one index. A read that may be old (MaxAge) counts from the age that it may have. It takes time
// for sorting.
func (h History) Monotonic() error {
	var known []placed
	changes := map[uint64]*Operation{}
	for i := range h {
		o := &h[i]
		if o.Outcome != Answered || o.Index == 0 {
			continue
		}
		if o.IsChange() {
			if other := changes[o.Index]; other != nil {
				return fmt.Errorf("history: two changes have the index %d\n  %v\n  %v", o.Index, other, o)
			}
			changes[o.Index] = o
		}
		known = append(known, placed{o, o.Index, o.IsChange()})
	}
	return inRealTime("index", known)
}

// eachKey checks the operations of each key, sorted by their calls, and returns the sum of what was
// counted. The error names the key.
func (h History) eachKey(check func(History) (int, error)) (sum int, err error) {
	keys := h.perKey()
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		n, err := check(keys[key])
		if err != nil {
			return 0, fmt.Errorf("key %s: %w", key, err)
		}
		sum += n
	}
	return sum, nil
}

// without returns the operations of which drop is false.
func (h History) without(drop func(*Operation) bool) History {
	return slices.DeleteFunc(slices.Clone(h), func(o Operation) bool { return drop(&o) })
}
