package host

import (
	"errors"
	"fmt"
	"time"
)

// OverloadedError says that a command was not taken because too many wait. errors.Is finds ErrOverloaded in
// it.
type OverloadedError struct {
	// RetryAfter is about how long the commands that wait need at the rate at which they went on lately, at
	// least 1 ms and at most 10 s.
	RetryAfter time.Duration
	// Commands and Bytes wait in this group; Bytes counts memory, which is more than the commands have.
	Commands int
	Bytes    int64
	// Share is the bound for all groups of the host together, from Config.MemoryBytes.
	Share int64
}

func (e *OverloadedError) Error() string {
	return fmt.Sprintf("%v: %d in this group take %d bytes, and all groups of this host may take %d (Config.MemoryBytes); try again in %v",
		ErrOverloaded, e.Commands, e.Bytes, e.Share, e.RetryAfter)
}

// Is makes errors.Is(err, ErrOverloaded) hold.
func (e *OverloadedError) Is(target error) bool { return target == ErrOverloaded }

// RetryAfter returns when it is worth to try again, if err is or wraps an OverloadedError.
func RetryAfter(err error) (after time.Duration, overloaded bool) {
	var o *OverloadedError
	if !errors.As(err, &o) {
		return 0, false
	}
	return o.RetryAfter, true
}
