package history

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// Operation is what one client asked of one key, and what it knows about the outcome. Each value that an
// operation writes is written by no other operation of the history, so a value that is read names the
// operation that wrote it.
type Operation struct {
	Client int
	Key    string
	Kind   Kind
	// Value is what a Put or a Swap writes.
	Value string
	// Want is what a Swap or a Delete expects the key to have. Absent is "".
	Want string

	Outcome Outcome
	// Got is what a Get returned, and what a Swap or a Delete found instead of Want. Absent is "".
	Got string
	// Took says whether a Swap or a Delete took effect.
	Took bool

	// Call and Return are times on one clock: the operation took effect between them, if it did. Return of an
	// operation whose outcome is Unknown is Never.
	Call, Return time.Duration
	// MaxAge is how old the state may be that a Get has read, counted back from its call. 0 is a linearizable
	// Get.
	MaxAge time.Duration
}

// begin is the earliest time at which the operation took effect.
func (o *Operation) begin() time.Duration { return o.Call - o.MaxAge }

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
	// Delete removes a key if it has Want, which is not "". There is no Delete without a condition, because it
	// would find whether the key exists and not what it has.
	Delete
)

func (k Kind) String() string { return [...]string{"?", "get", "put", "swap", "delete"}[k] }

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
	if o.Kind == Put || o.Kind == Swap {
		what += fmt.Sprintf(" to %q", o.Value)
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
	return fmt.Sprintf("[%v %v] %s", o.Call, o.Return, what)
}

// Recorder collects the operations of many clients.
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

// History returns what was recorded.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(History(nil), r.operations...)
}

// Len returns the number of operations.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.operations)
}
