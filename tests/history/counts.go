package history

import (
	"fmt"
	"slices"
)

// Counts say what a history consists of.
type Counts struct {
	Operations, Keys               int
	Gets, Puts, Swaps, Deletes     int
	Exchanges, Appends             int
	Answered, Refused, Unknown     int
	Concurrent                     int // operations that overlap another one of their key
	SwapsThatTook, SwapsThatDidNot int // of those that were answered
	OldestOpen                     int // the most operations of unknown outcome on one key
}

// Count counts. An operation of unknown outcome is concurrent only with those that began before its client
// gave up, which the recorder does not know; it overlaps what was open at its call, and what was called
// during the open ones.
func (h History) Count() (c Counts) {
	keys := h.perKey()
	c.Operations, c.Keys = len(h), len(keys)
	for _, operations := range keys {
		open := 0
		for _, o := range operations {
			c.add(o)
			if o.Outcome == Unknown {
				open++
			}
		}
		c.OldestOpen = max(c.OldestOpen, open)
		c.Concurrent += operations.concurrent()
	}
	return c
}

// sum adds the counts of another history, of other keys.
func (c *Counts) sum(o Counts) {
	c.Operations, c.Keys = c.Operations+o.Operations, c.Keys+o.Keys
	c.Gets, c.Puts, c.Swaps, c.Deletes = c.Gets+o.Gets, c.Puts+o.Puts, c.Swaps+o.Swaps, c.Deletes+o.Deletes
	c.Exchanges, c.Appends = c.Exchanges+o.Exchanges, c.Appends+o.Appends
	c.Answered, c.Refused, c.Unknown = c.Answered+o.Answered, c.Refused+o.Refused, c.Unknown+o.Unknown
	c.Concurrent += o.Concurrent
	c.SwapsThatTook, c.SwapsThatDidNot = c.SwapsThatTook+o.SwapsThatTook, c.SwapsThatDidNot+o.SwapsThatDidNot
	c.OldestOpen = max(c.OldestOpen, o.OldestOpen)
}

func (c *Counts) add(o Operation) {
	*[...]*int{Get: &c.Gets, Put: &c.Puts, Swap: &c.Swaps, Delete: &c.Deletes, Exchange: &c.Exchanges, Append: &c.Appends}[o.Kind]++
	*[...]*int{Answered: &c.Answered, Refused: &c.Refused, Unknown: &c.Unknown}[o.Outcome]++
	if o.Kind == Swap && o.Outcome == Answered {
		if o.Took {
			c.SwapsThatTook++
		} else {
			c.SwapsThatDidNot++
		}
	}
}

// concurrent counts the operations of one key, sorted by their calls, that overlap another one which has
// returned: what is open for ever would make all of them concurrent.
func (h History) concurrent() (n int) {
	closed := slices.DeleteFunc(slices.Clone(h), func(o Operation) bool { return o.Return == Never })
	overlaps := make([]bool, len(closed))
	last := -1 // the operation so far that returns last
	for i, o := range closed {
		if last >= 0 && closed[last].Return >= o.Call {
			overlaps[i], overlaps[last] = true, true
		}
		if last < 0 || o.Return > closed[last].Return {
			last = i
		}
	}
	for _, o := range overlaps {
		if o {
			n++
		}
	}
	return n
}

func (c Counts) String() string {
	return fmt.Sprintf("%d operations on %d keys (%d gets, %d puts, %d swaps, %d deletes, %d exchanges, %d appends): %d answered, %d refused, %d unknown (%.2f %%); %d concurrent on their key (%.1f %%); of the swaps %d took effect and %d did not; at most %d unknown on one key",
		c.Operations, c.Keys, c.Gets, c.Puts, c.Swaps, c.Deletes, c.Exchanges, c.Appends, c.Answered, c.Refused, c.Unknown, c.UnknownPercent(),
		c.Concurrent, c.ConcurrentPercent(), c.SwapsThatTook, c.SwapsThatDidNot, c.OldestOpen)
}

// UnknownPercent is the part of the operations whose outcome is unknown.
func (c Counts) UnknownPercent() float64 { return percent(c.Unknown, c.Operations) }

// ConcurrentPercent is the part of the operations that overlap another one of their key.
func (c Counts) ConcurrentPercent() float64 { return percent(c.Concurrent, c.Operations) }

func percent(n, all int) float64 { return 100 * float64(n) / float64(max(all, 1)) }
