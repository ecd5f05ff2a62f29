package batches

import (
	"fmt"
	"time"
)

// State is what a leader knows of its commands. Times are those of one monotonic clock.
type State struct {
	Now      time.Duration
	Waiting  int   // commands that are not in a batch yet,
	Bytes    int64 // and their bytes
	Full     bool  // there is hardly space for more of them
	Open     int   // batches that are not committed and have commands of clients of this host
	Pending  int   // commands that are not committed, in all batches
	Answered int   // commands that were committed since the call before,
	Back     int   // and those of clients of this host: they may come back
	// Waited is how long the commands have waited that are not in a batch yet, in sum.
	Waited time.Duration
	// Round is the mean time from the beginning of a batch to its commit, and Flush the mean time until the
	// leader's own disk has it. 0: not measured.
	Round, Flush time.Duration
}

// Verdict says what to do with the commands that wait.
type Verdict struct {
	Begins bool          // put them into the log now
	Again  time.Duration // if not: ask again at this time; 0: a commit or a command comes first
	// Ask again when as many commands wait, at least 1, or as many bytes of them; 0: any number of bytes.
	// If a batch begins, this is for those that come after it.
	Wake      int
	WakeBytes int64
}

// Rule decides when the next batch of one group begins. A leader asks it after each commit, when as many
// commands wait as the Verdict before said, and at the time that it said. It begins with a new Rule when it
// begins to lead, and when it has taken commands without asking.
type Rule interface {
	Next(s State) Verdict
	// Chosen is the rule that decides, except in trials: Immediate or Cohorts.
	Chosen() Kind
}

// Kind says which rule a group has.
type Kind int

const (
	Automatic Kind = iota // Choice: the better one of the others, by trial
	Immediate             // AtOnce
	Cohorts               // Cohort
)

// New makes the rule of one group. A kind that is not known is Automatic.
func (k Kind) New() Rule {
	switch k {
	case Immediate:
		return AtOnce{}
	case Cohorts:
		return new(Cohort)
	default:
		return new(Choice)
	}
}

func (k Kind) String() string {
	switch k {
	case Immediate:
		return "at once"
	case Cohorts:
		return "cohort"
	default:
		return "by trial"
	}
}

// MarshalText writes the words, as String does. The error is always nil.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText has written.
func (k *Kind) UnmarshalText(text []byte) error {
	for _, is := range []Kind{Automatic, Immediate, Cohorts} {
		if is.String() == string(text) {
			*k = is
			return nil
		}
	}
	return fmt.Errorf("batches: %q is no Kind", text)
}

// AtOnce begins each batch at once.
type AtOnce struct{}

// Next implements Rule.
func (AtOnce) Next(s State) Verdict { return Verdict{Begins: s.Waiting > 0, Wake: 1} }

// Chosen implements Rule.
func (AtOnce) Chosen() Kind { return Immediate }

// isLong reports whether the way to the followers takes much longer than the disk does. Commands are not held
// there: they would wait for two journeys in place of one.
func (s State) isLong() bool { return s.Round > maxRoundFlushes*s.Flush }

// maxRoundFlushes is how long a round may be, in flushes, for commands to be held.
const maxRoundFlushes = 3
