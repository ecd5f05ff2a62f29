package host

import (
	"time"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/wal"
)

// Event is something that happened to a host and that a program may want to count or show: for metrics, a
// console or a simulation. It is a RoleChanged, GroupStopped, DiskFull, RefusedForgotten, ApplyStalled
// or LogEvent. A
// host reports an event just before it logs the same in words (WithLogger).
type Event interface{ isEvent() }

// RoleChanged reports that a group's role, or the leader that it follows, has changed.
type RoleChanged struct {
	Group, Term uint64
	Role        raft.StateType
	Leader      uint64 // 0: not known
}

// GroupStopped reports that a group has stopped by itself, and why.
type GroupStopped struct {
	Group uint64
	Err   error
}

// DiskFull reports that the log has refused entries because the disk is full. Until there is space, this
// member votes and accepts nothing else. It is reported once for each time that the disk becomes full.
type DiskFull struct {
	Group uint64
	Err   error
}

// RefusedForgotten reports that a member with a full disk has forgotten the entries that the log refused,
// because it heard no leader. Its log ends at LastIndex.
type RefusedForgotten struct{ Group, LastIndex uint64 }

// ApplyStalled reports that a call of a group's state machine has taken long already, and has not returned.
// It is reported once for each such call.
type ApplyStalled struct {
	Group uint64
	For   time.Duration
}

// LogEvent is an event of the host's log.
type LogEvent struct{ wal.Event }

func (RoleChanged) isEvent()      {}
func (GroupStopped) isEvent()     {}
func (DiskFull) isEvent()         {}
func (RefusedForgotten) isEvent() {}
func (ApplyStalled) isEvent()     {}
func (LogEvent) isEvent()         {}

// eventHook is the function given to WithEvents; nil if none was given.
type eventHook func(Event)

func (f eventHook) emit(e Event) {
	if f != nil {
		f(e)
	}
}

// WithEvents makes the host call f with each Event. Open and the host's workers call it, at any time and
// several at once. f must return at once, and must not call the host.
func WithEvents(f func(Event)) Option { return func(e *environment) { e.events = f } }
