// Package history records what clients of a replicated store have seen: for each operation what was asked,
// what was found, and when it began and ended. It judges nothing. The simulator, tests with real processes
// and programs of users record in the same form. Package tests/history has the checkers, since a checker
// needs a library that users of this module must not inherit.
package history

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Operation is what one client asked of one key, and what it knows about the outcome. No two operations of
// the history write the same value, so a value that is read names the operation that wrote it.
type Operation struct {
	Client int
	Key    string
	Kind   Kind
	// Value is what a Put, a Swap or an Exchange writes, and the element that an Append adds.
	Value string
	// Want is what a Swap or a Delete expects the key to have. Absent is "".
	Want string

	Outcome Outcome
	// Got is what a Get returned, what a Swap or a Delete found instead of Want, and what an Exchange or an
	// Append found before its change. Absent is "".
	Got string
	// Took says whether a Swap or a Delete took effect.
	Took bool

	// Call and Return are times on one clock: the operation took effect between them, if it did. Return of an
	// operation whose outcome is Unknown is Never.
	Call, Return time.Duration
	// MaxAge is how old the state may be that a Get has read, counted back from its call. 0 is a linearizable
	// Get.
	MaxAge time.Duration
	// Index is the place in the log of an answered change. For a Get it is the index through which
	// everything was in the state that it has read. 0 if it is not known.
	Index uint64
}

// Begin is the earliest time at which the operation took effect.
func (o *Operation) Begin() time.Duration { return o.Call - o.MaxAge }

// Found returns the value that the operation has found in the key, if that is known. A Delete of unknown
// outcome may have found what it wanted, at any time.
func (o *Operation) Found() (value string, ok bool) {
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

// IsChange reports whether the operation may change its key.
func (o *Operation) IsChange() bool { return o.Kind != Get }

// A list is a value whose elements are separated by commas; an element has none. "" is the empty list.

// List returns the elements of a list.
func List(value string) []string {
	if value == "" {
		return nil
	}
	return strings.Split(value, ",")
}

// Appended returns a list with one more element.
func Appended(list, element string) string {
	if list == "" {
		return element
	}
	return list + "," + element
}

// Never is the time of a return that did not come: the operation may take effect at any time.
const Never = time.Duration(math.MaxInt64)

// Kind is what an operation does.
type Kind int

const (
	// Get reads a key.
	Get Kind = iota + 1
	// Put sets a key to Value.
	Put
	// Swap sets a key to Value if it has Want.
	Swap
	// Delete removes a key if it has Want, which is not "". There is no Delete without a condition, because
	// it would find whether the key exists and not what it has.
	Delete
	// Exchange sets a key to Value and returns what it had.
	Exchange
	// Append adds the element Value to the list that a key has, and returns the list before.
	Append
)

func (k Kind) String() string {
	return [...]string{"?", "get", "put", "swap", "delete", "exchange", "append"}[k]
}

// Outcome is what a client knows.
type Outcome int

const (
	// Answered: the operation took effect once, and its results are known.
	Answered Outcome = iota + 1
	// Refused: the operation did not take effect and never will.
	Refused
	// Unknown: the operation may have taken effect, or may do so later.
	Unknown
)

func (o Operation) String() string {
	what := fmt.Sprintf("client %d %v", o.Client, o.Kind)
	if o.Kind == Swap || o.Kind == Delete {
		what += fmt.Sprintf(" if %q", o.Want)
	}
	switch o.Kind {
	case Put, Swap, Exchange:
		what += fmt.Sprintf(" to %q", o.Value)
	case Append:
		what += fmt.Sprintf(" of %q", o.Value)
	}
	if o.MaxAge > 0 {
		what += fmt.Sprintf(" at most %v old", o.MaxAge)
	}
	switch {
	case o.Outcome == Unknown:
		return fmt.Sprintf("[%v ...] %s: unknown", o.Call, what)
	case o.Outcome == Refused:
		what += ": refused"
	case o.Kind != Put && !o.Took:
		what += fmt.Sprintf(": found %q", o.Got)
	default:
		what += ": done"
	}
	if o.Index > 0 {
		what += fmt.Sprintf(", at index %d", o.Index)
	}
	return fmt.Sprintf("[%v %v] %s", o.Call, o.Return, what)
}
