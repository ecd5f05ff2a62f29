package outcome

import (
	"errors"
	"fmt"
	"time"
)

// NotLeaderError names the leader, as far as this host knows. errors.Is finds ErrNotLeader in it.
type NotLeaderError struct {
	Leader     uint64 // 0: not known
	Addr       string // of the leader, in Config.Members
	ClientAddr string // of the leader, in Config.ClientAddrs; "": none is given there
}

func (e *NotLeaderError) Error() string {
	switch {
	case e.Leader == 0:
		return ErrNotLeader.Error() + "; no leader is known at the moment"
	case e.ClientAddr != "":
		return fmt.Sprintf("%v; host %d leads, and serves clients at %s", ErrNotLeader, e.Leader, e.ClientAddr)
	}
	return fmt.Sprintf("%v; host %d leads", ErrNotLeader, e.Leader)
}

// Is makes errors.Is(err, ErrNotLeader) hold.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

// OverloadedError says that a command was not taken because too many wait. errors.Is finds ErrOverloaded in
// it.
type OverloadedError struct {
	// RetryAfter is about how long the waiting commands need, at the rate at which commands left the queue
	// lately. It is at least 1 ms and at most 10 s, and a heartbeat interval if that rate is not known.
	RetryAfter time.Duration
	// Commands wait in this group, and take Bytes of memory.
	Commands int
	Bytes    int64
	// Share is what the waiting commands of all groups of the host may take (Config.MemoryBytes).
	Share int64
	// Behind is what the state machine of this leader has still to apply, in bytes, if it is more than
	// GroupConfig.MaxLagBytes; 0: it is not.
	Behind int64
}

func (e *OverloadedError) Error() string {
	if e.Behind > 0 {
		return fmt.Sprintf("%v: the state machine has still to apply %d bytes, which is more than MaxLagBytes; %d commands wait, and take %d bytes; try again in %v",
			ErrOverloaded, e.Behind, e.Commands, e.Bytes, e.RetryAfter)
	}
	return fmt.Sprintf("%v: %d in this group take %d bytes, and those of all groups of this host may take %d (Config.MemoryBytes); try again in %v",
		ErrOverloaded, e.Commands, e.Bytes, e.Share, e.RetryAfter)
}

// Is makes errors.Is(err, ErrOverloaded) hold.
func (e *OverloadedError) Is(target error) bool { return target == ErrOverloaded }

// RetryAfter returns when it is worth trying again, if err is or wraps an OverloadedError.
func RetryAfter(err error) (after time.Duration, overloaded bool) {
	var o *OverloadedError
	if !errors.As(err, &o) {
		return 0, false
	}
	return o.RetryAfter, true
}
