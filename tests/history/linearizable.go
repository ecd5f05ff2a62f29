package history

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// History is what a run has recorded, in any order.
type History []Operation

// ErrUndecided says that a history was neither accepted nor rejected in time.
var ErrUndecided = errors.New("history: no verdict in time")

// Linearizable returns nil if the history is linearizable: if there is an order of the operations of each key
// in which each took effect at one moment between its call and its return, and found what the ones before
// it had left. Operations of unknown outcome may be in the order or not. Otherwise the error shows the
// operations around the first one that has no place. timeout bounds the work for one key; after that the
// error is ErrUndecided.
func (h History) Linearizable(timeout time.Duration) error {
	keys := h.perKey()
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		operations, err := keys[key].reduced()
		if err == nil {
			err = operations.linearize(timeout)
		}
		if err != nil {
			return fmt.Errorf("key %s, with %d operations: %w", key, len(keys[key]), err)
		}
	}
	return nil
}

func (h History) perKey() map[string]History {
	keys := map[string]History{}
	for _, o := range h {
		keys[o.Key] = append(keys[o.Key], o)
	}
	for _, operations := range keys {
		slices.SortStableFunc(operations, func(a, b Operation) int { return int(a.Call - b.Call) })
	}
	return keys
}

// reduced returns an equivalent history of one key for which the search is short: the operations without an
// end, each concurrent with all later ones, become few.
//
// It is equivalent because all values are different. A write of unknown outcome whose value was found took
// effect before the first operation that found it returned, so it gets that end. One whose value was never
// found is left out: each operation that depends on the state says what it found, so no operation comes
// between this write, if it took effect, and the next; and without its effect the history is linearizable by
// the same order. Refused operations are left out because they have no effect; if the value of one was
// found, no operation has written it.
func (h History) reduced() (History, error) {
	writer := map[string]int{}
	for i, o := range h {
		if o.Kind != Put && o.Kind != Swap {
			continue
		}
		if _, twice := writer[o.Value]; twice || o.Value == "" {
			return nil, fmt.Errorf("the history cannot be checked: two operations write %q, or one writes no value", o.Value)
		}
		writer[o.Value] = i
	}
	ends := map[string]time.Duration{} // of the values that were found: the times by which they were written
	var note func(value string, end time.Duration)
	note = func(value string, end time.Duration) {
		if known, is := ends[value]; is && known <= end {
			return
		}
		ends[value] = end
		// A swap of unknown outcome that was found has itself found what it wanted, before that.
		if w, is := writer[value]; is && h[w].Outcome == Unknown && h[w].Kind == Swap {
			note(h[w].Want, end)
		}
	}
	for _, o := range h {
		if value, ok := o.found(); ok {
			note(value, o.Return)
		}
	}
	var kept History
	for _, o := range h {
		end, found := ends[o.Value]
		switch {
		case o.Outcome == Refused, o.Outcome == Unknown && o.Kind == Get:
			continue
		case o.Outcome == Unknown && o.Kind != Delete && !found:
			continue
		case o.Outcome == Unknown && o.Kind != Delete:
			o.Return = end
		}
		kept = append(kept, o)
	}
	return kept, nil
}

// found returns the value that an operation has found in the key. A delete of unknown outcome may have found
// what it wanted, at any time.
func (o Operation) found() (value string, ok bool) {
	switch {
	case o.Outcome == Unknown && o.Kind == Delete:
		return o.Want, true
	case o.Outcome != Answered || o.Kind == Put:
		return "", false
	case o.Took:
		return o.Want, true
	}
	return o.Got, true
}

// register is the model of one key: its value, "" if it does not exist.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		ok, next := input.(*Operation).step(state.(string))
		return ok, next
	},
	DescribeOperation: func(input, _ any) string { return input.(*Operation).String() },
}

// step says whether an operation may take effect in a key that has a value, and what value it leaves.
func (o *Operation) step(have string) (ok bool, next string) {
	took := o.Kind == Put || o.Kind != Get && have == o.Want
	if took {
		next = o.Value // of a Delete: ""
	} else {
		next = have
	}
	switch {
	case o.Outcome == Unknown || o.Kind == Put:
		return true, next
	case took:
		return o.Took, next
	}
	return !o.Took && o.Got == have, next
}

// linearize returns nil if the history of one key is linearizable.
func (h History) linearize(timeout time.Duration) error {
	operations := make([]porcupine.Operation, len(h))
	for i := range h {
		operations[i] = porcupine.Operation{ClientId: h[i].Client, Input: &h[i], Call: int64(h[i].begin()), Return: int64(h[i].Return)}
	}
	switch porcupine.CheckOperationsTimeout(register, operations, timeout) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%w (%v)", ErrUndecided, timeout)
	}
	return fmt.Errorf("not linearizable; the operations before and around the first that has no place:\n%s", h.shortest(timeout))
}

// shortest cuts the history after the operation whose return makes it fail, and shows the end of the rest.
func (h History) shortest(timeout time.Duration) string {
	returns := slices.Clone(h)
	slices.SortFunc(returns, func(a, b Operation) int { return int(min(a.Return, Never-1) - min(b.Return, Never-1)) })
	// The operations that have returned at some time, with those that were called by then and are open: the
	// longer this beginning of the history, the less can be linearizable.
	lo, hi := 0, len(returns)
	for lo < hi {
		mid := (lo + hi) / 2
		if h.until(returns[mid].Return).isRejected(timeout) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == len(returns) {
		return "  (no beginning of the history fails in time)"
	}
	end := returns[lo].Return
	var lines []string
	for _, o := range h {
		if o.Call <= end {
			mark := " "
			if o.Return == end {
				mark = ">"
			}
			lines = append(lines, fmt.Sprintf("%s %v", mark, o))
		}
	}
	const shown = 40
	if n := len(lines) - shown; n > 0 {
		lines = append([]string{fmt.Sprintf("  (%d before)", n)}, lines[n:]...)
	}
	return strings.Join(lines, "\n")
}

// until returns the history as it was at a time: what had not returned by then is open, and what found
// nothing yet is left out.
func (h History) until(end time.Duration) (cut History) {
	for _, o := range h {
		switch {
		case o.Call > end:
			continue
		case o.Return > end && o.Kind == Get:
			continue
		case o.Return > end:
			o.Outcome, o.Return = Unknown, Never
		}
		cut = append(cut, o)
	}
	return cut
}

func (h History) isRejected(timeout time.Duration) bool {
	operations := make([]porcupine.Operation, len(h))
	for i := range h {
		operations[i] = porcupine.Operation{Input: &h[i], Call: int64(h[i].begin()), Return: int64(h[i].Return)}
	}
	return porcupine.CheckOperationsTimeout(register, operations, timeout) == porcupine.Illegal
}
