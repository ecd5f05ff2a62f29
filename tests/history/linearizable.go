package history

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
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
		if err := keys[key].linearize(timeout); err != nil {
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
//
// A delete of unknown outcome takes effect only while the key has what it wants, which comes once and then
// never again. So it gets an end by which the key certainly has something else, and it may take effect, with
// nothing to remove, by then too.
func (h History) reduced() (History, error) {
	writer := map[string]int{}
	for i, o := range h {
		if o.Kind == Append {
			return nil, errors.New("the history cannot be checked: it has appends, which Lists checks")
		}
		if !sets(&o) {
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
		if value, ok := o.Found(); ok {
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
			o.Return = max(o.Call, end)
		case o.Outcome == Unknown:
			if o.Return = h.gone(o.Want, ends, writer); o.Return < o.Call {
				continue
			}
		}
		kept = append(kept, o)
	}
	return kept, nil
}

// gone returns the time by which the key certainly has something other than a value, for good: an operation
// that began when the value had been written has found another one, or written it.
func (h History) gone(value string, ends map[string]time.Duration, writer map[string]int) time.Duration {
	written := ends[value]
	if w, is := writer[value]; is && h[w].Outcome == Answered {
		written = min(written, h[w].Return)
	}
	gone := Never
	for i := range h {
		o := &h[i]
		have, found := o.Found()
		replaces := o.Outcome == Answered && (o.Kind == Put || o.Kind == Exchange || o.Took) && o.Value != value
		if o.Outcome == Answered && o.Begin() > written && (found && have != value || replaces) {
			gone = min(gone, o.Return)
		}
	}
	return gone
}

// sets reports whether an operation sets its key to its Value, if it takes effect.
func sets(o *Operation) bool { return o.Kind == Put || o.Kind == Swap || o.Kind == Exchange }

// register is the model of one key: its value, "" if it does not exist.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		ok, next := step(input.(*Operation), state.(string))
		return ok, next
	},
	DescribeOperation: func(input, _ any) string { return input.(*Operation).String() },
}

// step says whether an operation may take effect in a key that has a value, and what value it leaves.
func step(o *Operation, have string) (ok bool, next string) {
	if o.Kind == Exchange {
		return o.Outcome == Unknown || o.Got == have, o.Value
	}
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
	reduced, err := h.reduced()
	if err != nil {
		return err
	}
	switch reduced.search(timeout) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%w (%v)", ErrUndecided, timeout)
	}
	return fmt.Errorf("not linearizable; the operations before and around the first that has no place:\n%s", h.shortest(timeout))
}

// search looks for an order.
func (h History) search(timeout time.Duration) porcupine.CheckResult {
	operations := make([]porcupine.Operation, len(h))
	for i := range h {
		operations[i] = porcupine.Operation{ClientId: h[i].Client, Input: &h[i], Call: int64(h[i].Begin()), Return: int64(h[i].Return)}
	}
	return porcupine.CheckOperationsTimeout(register, operations, timeout)
}

// shortest cuts the history after the operation whose return makes it fail, and shows the end of the rest.
func (h History) shortest(timeout time.Duration) string {
	var returns []time.Duration
	for _, o := range h {
		if o.Return != Never {
			returns = append(returns, o.Return)
		}
	}
	slices.Sort(returns)
	// The longer a beginning of the history, the less it can be linearizable.
	first := sort.Search(len(returns), func(i int) bool {
		reduced, err := h.until(returns[i]).reduced()
		return err == nil && reduced.search(timeout) == porcupine.Illegal
	})
	if first == len(returns) {
		return "  (no beginning of the history fails in time)"
	}
	end := returns[first]
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

// until returns the history as it was known at a time: a change that had not returned is of unknown outcome,
// and a Get that had not is left out.
func (h History) until(end time.Duration) (cut History) {
	for _, o := range h {
		switch {
		case o.Call > end, o.Return > end && o.Kind == Get:
			continue
		case o.Return > end && o.Outcome == Answered:
			o.Outcome, o.Return, o.Took, o.Got = Unknown, Never, false, ""
		}
		cut = append(cut, o)
	}
	return cut
}
