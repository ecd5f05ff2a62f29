package host

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/wal"
)

// Event is something that happened to a host and that a program may want to count or show: for metrics, a
// console or a simulation. It is a RoleChanged, LeadershipGivenUp, GroupFounded, GroupStopped, MachineHalted,
// MachineResumed, DiskFull,
// RefusedForgotten, AuthorityLost, AuthorityRegained, ApplyStalled, TurnStalled, MemberSlow, MessagesDropped,
// Diverged, HostRefused, MemberRefused, MembersChanged, JoinRefused, SnapshotTaken, SnapshotSent,
// SnapshotReceived, SnapshotInstalled, SnapshotPassed, SnapshotTransferAborted, SnapshotFailed,
// SnapshotStalled, ObjectReceived, ObjectTransferFailed, LogEvent, TLSEvent or EventsDropped. A host reports
// an event just before it logs the same in words (WithLogger).
type Event interface{ isEvent() }

// RoleChanged reports that a group's role, its term, or the leader that it follows, has changed.
type RoleChanged struct {
	Group, Term uint64
	Role        Role
	Leader      uint64 // 0: not known
	Cause       RoleCause
}

// LeadershipGivenUp reports that a leader hands its leadership over or, if To is 0, steps down, and why. With
// Placement nothing has failed: another member should rather lead (GroupConfig.Placement, Config.Balance).
type LeadershipGivenUp struct {
	Group, Term uint64
	To          uint64
	Cause       string
	Placement   bool
}

// GroupStopped reports that a group has stopped by itself, and why.
type GroupStopped struct {
	Group uint64
	Err   error
}

// MachineHalted reports that the state machine of a group could not apply one of the commands First to Last,
// and is halted: this member votes and replicates, and refuses commands and reads. The group has not failed.
type MachineHalted struct {
	Group       uint64
	First, Last uint64
	Err         error // a HaltedError
}

// MachineResumed reports that a machine that was halted works again, and has applied the log through Applied.
type MachineResumed struct{ Group, Applied uint64 }

// DiskFull reports that the log has refused entries because the disk is full. Until there is space, this
// member votes and accepts nothing else. It is reported once for each time that the disk becomes full.
type DiskFull struct {
	Group uint64
	Err   error
}

// AuthorityLost reports that a group was opened without authority: its log may lack what it has acknowledged,
// because the machine lost power in an unsafe mode of durability, or because the log was repaired. The member
// neither votes nor counts until it has caught up.
type AuthorityLost struct{ Group uint64 }

// AuthorityRegained reports that such a member has caught up in Term, and votes and counts again. Its log is
// durable through Durable.
type AuthorityRegained struct{ Group, Term, Durable uint64 }

// RefusedForgotten reports that a member with a full disk has forgotten the entries that the log refused,
// because it heard no leader. Its log ends at LastIndex.
type RefusedForgotten struct{ Group, LastIndex uint64 }

// ApplyStalled reports that a call of a group's state machine has taken long already, and has not returned.
// It is reported once for each such call.
type ApplyStalled struct {
	Group uint64
	For   time.Duration
}

// TurnStalled reports that a turn of a group has taken longer than a heartbeat interval, and that the other
// groups of its shard go on without it. Only a state machine that is declared NonBlocking, and blocks, should
// cause it.
type TurnStalled struct {
	Group uint64
	For   time.Duration
}

// MemberSlow reports that a follower of a group that leads here holds less of the log than it was sent, and
// has acknowledged nothing for two election timeouts: its disk or its host hangs, or it cannot be reached. It
// is reported once for each such stretch.
type MemberSlow struct {
	Group, Member uint64
	Behind        uint64 // entries
	For           time.Duration
}

// MessagesDropped reports that a group takes messages of its peers no more, or not all: what waits for its
// turn or its disk has reached its bound, or a message is not for it. It is reported once for each power of
// two that the count passes.
type MessagesDropped struct {
	Group uint64
	Count uint64 // since the group was opened
	Cause string // of the latest
}

// SnapshotTaken reports that a snapshot was published and read back. Took is from its capture to the end.
type SnapshotTaken struct {
	Group uint64
	SnapshotInfo
	Took time.Duration
}

// SnapshotFailed reports that a snapshot of what is applied through Index could not be taken. It is tried
// again; until then the log grows.
type SnapshotFailed struct {
	Group, Index uint64
	Err          error
}

// SnapshotStalled reports that one piece of work with a snapshot has taken long already, and has not
// returned. It is reported once for each piece. Doing says what it is, for people.
type SnapshotStalled struct {
	Group uint64
	For   time.Duration
	Doing string
}

// SnapshotSent reports that a member has what it needs of a snapshot. Bytes are those of the blocks that this
// host has sent for it; it may have had others.
type SnapshotSent struct {
	Group, Member, Index uint64
	Bytes                int64
}

// SnapshotReceived reports that a snapshot from another member is on this host's disk, whole and checked.
// It is installed next. From is the member that sent the last block, and Bytes what was received since the
// offer.
type SnapshotReceived struct {
	Group, From, Index uint64
	Bytes              int64
}

// SnapshotInstalled reports that the state of a received snapshot has taken the place of this member's
// state and log, durably. Bytes are those of the whole snapshot.
type SnapshotInstalled struct {
	Group, Index uint64
	Bytes        int64
}

// SnapshotPassed reports that the machine of this member got the state of a received snapshot, because it
// waited for an object that no member has any more. The log, which had all entries, stays as it is.
type SnapshotPassed struct {
	Group, Index uint64
	Bytes        int64
}

// SnapshotTransferAborted reports that a snapshot was not sent to a member or, if Receives is set, not
// received from one, and why. It is tried again when the member asks again. Bytes were sent or received;
// what is on the receiver's disk stays there.
type SnapshotTransferAborted struct {
	Group, Member, Index uint64
	Receives             bool
	Bytes                int64
	Cause                string
}

// ObjectReceived reports that a large object from another member is on this host's disk, whole and checked.
// From is the member that sent the last block, and Bytes what was received since the fetch began.
type ObjectReceived struct {
	Group uint64
	ID    object.ID
	From  uint64
	Bytes int64
}

// ObjectTransferFailed reports that a large object was not sent to a member or, if Receives is set, not
// received from one, and why. A member that needs it tries again, with any member that has it. ID is zero if
// it was asked for by a hash that is not known here. Bytes were sent or received; what is on the receiver's
// disk stays there.
type ObjectTransferFailed struct {
	Group    uint64
	ID       object.ID
	Member   uint64
	Receives bool
	Bytes    int64
	Cause    string
}

// LogEvent is an event of the host's log.
type LogEvent struct{ wal.Event }

// EventsDropped reports that a listener did not keep up: at this place of its stream Count events are
// missing.
type EventsDropped struct{ Count int }

// GroupFounded reports that this host has learned that a group is founded: it takes commands from then on.
type GroupFounded struct{ Group uint64 }

// HostRefused reports that another host, which may be a wiped one or of another cluster, was refused before
// it could say anything. It is reported once for each reason.
type HostRefused struct {
	Host   uint64 // its id
	Remote string // its address
	Err    error
}

// MemberRefused reports that a group refuses a member, because the host has come with another directory than
// the group was founded with, or because it is none of the members. It is reported once in the life of a
// host.
type MemberRefused struct {
	Group, Member uint64
	Bound, Came   transport.Incarnation
	Stranger      bool // it is none of the members; Bound is zero
	Removed       bool // it was removed from the group; the same
}

// JoinRefused reports that host Member has come with a join token, and is not made a member of the group; Err
// says why. The leader reports it, and host Member, to which host By has said so.
type JoinRefused struct {
	Group, Member, By uint64
	Err               error
}

// MembersChanged reports that a member has put another roster in force: the entry at index Version has
// changed the members, or begun or ended a plan.
type MembersChanged struct {
	Group, Version uint64
	Conf           raftpb.ConfState
}

func (GroupFounded) isEvent()            {}
func (HostRefused) isEvent()             {}
func (MemberRefused) isEvent()           {}
func (MembersChanged) isEvent()          {}
func (JoinRefused) isEvent()             {}
func (RoleChanged) isEvent()             {}
func (LeadershipGivenUp) isEvent()       {}
func (GroupStopped) isEvent()            {}
func (MachineHalted) isEvent()           {}
func (MachineResumed) isEvent()          {}
func (DiskFull) isEvent()                {}
func (AuthorityLost) isEvent()           {}
func (AuthorityRegained) isEvent()       {}
func (RefusedForgotten) isEvent()        {}
func (ApplyStalled) isEvent()            {}
func (TurnStalled) isEvent()             {}
func (MemberSlow) isEvent()              {}
func (MessagesDropped) isEvent()         {}
func (SnapshotSent) isEvent()            {}
func (SnapshotReceived) isEvent()        {}
func (SnapshotInstalled) isEvent()       {}
func (SnapshotPassed) isEvent()          {}
func (SnapshotTransferAborted) isEvent() {}
func (SnapshotTaken) isEvent()           {}
func (SnapshotFailed) isEvent()          {}
func (SnapshotStalled) isEvent()         {}
func (ObjectReceived) isEvent()          {}
func (ObjectTransferFailed) isEvent()    {}
func (LogEvent) isEvent()                {}
func (EventsDropped) isEvent()           {}

// events passes the events of a host to its listeners. Each has a backlog of its own, so one that hangs
// delays neither the host nor another listener.
type events struct {
	mu        sync.Mutex
	listeners []*listener
	dropped   atomic.Uint64 // for all listeners together
}

// listener is a backlog of events, and what to do when it is not empty any more.
type listener struct {
	backlog backlog[Event]
	notify  func()
}

// emit never blocks and calls nothing of the user's.
func (s *events) emit(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		if !l.backlog.put(e) {
			s.dropped.Add(1)
		}
		l.notify()
	}
}

func (s *events) add(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, l)
}

func (s *events) remove(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.listeners {
		if s.listeners[i] == l {
			s.listeners = append(s.listeners[:i:i], s.listeners[i+1:]...)
			return
		}
	}
}

// Events returns the events of this host from now on, in order. The sequence ends when ctx ends or the host
// is closed. A reader that does not keep up misses events and gets an EventsDropped in their place. Any
// number of sequences may be read at a time, each of them once. A sequence that is not read holds events
// until ctx ends.
func (h *Host) Events(ctx context.Context) iter.Seq[Event] {
	more := make(chan struct{}, 1)
	l := &listener{notify: func() {
		select {
		case more <- struct{}{}:
		default:
		}
	}}
	h.events.add(l)
	remove := context.AfterFunc(ctx, func() { h.events.remove(l) })
	return func(yield func(Event) bool) {
		defer func() {
			remove()
			h.events.remove(l)
		}()
		for closed := false; ; {
			for e, ok := l.next(); ok; e, ok = l.next() {
				if !yield(e) {
					return
				}
			}
			if closed {
				return
			}
			select {
			case <-more:
			case <-ctx.Done():
				return
			case <-h.shutdown.done:
				closed = true // what was emitted before that comes first
			}
		}
	}
}

// next takes the next event of a listener.
func (l *listener) next() (Event, bool) {
	e, dropped, ok := l.backlog.take()
	if dropped > 0 {
		return EventsDropped{dropped}, true
	}
	return e, ok
}

// hook calls the function of WithEvents: env.Worker.
type hook struct {
	listener
	call   func(Event)
	task   env.Task
	events *events
	logger *slog.Logger
}

// RunOnce implements env.Worker: one event. A function that panics has missed it, and gets the next one.
func (h *hook) RunOnce() (more bool) {
	e, ok := h.next()
	if !ok {
		return false
	}
	var ended error
	defer func() {
		if ended != nil {
			h.missed(e, ended)
			more = true
		}
	}()
	if err := callUser("the function of WithEvents", func() error { h.call(e); return nil }, &ended); err != nil {
		h.missed(e, err)
	}
	return true
}

// missed counts an event that the function of WithEvents has not taken to its end.
func (h *hook) missed(e Event, err error) {
	h.events.dropped.Add(1)
	h.logger.Error("the function of WithEvents failed; it gets the next event", "event", fmt.Sprintf("%T", e), "err", err)
}

// startHook schedules the function of WithEvents.
func startHook(s *events, scheduler env.Scheduler, logger *slog.Logger, call func(Event)) *hook {
	h := &hook{call: call, events: s, logger: logger}
	h.task = scheduler.Go("events", env.Compute, h)
	h.notify = h.task.Wake
	s.add(&h.listener)
	return h
}

// Close stops the worker and passes on what waits.
func (h *hook) Close() error {
	h.task.Stop()
	runOut(h)
	return nil
}

// WithEvents makes the host call f with each Event, one at a time and in order. f runs beside the host: one
// that hangs costs events (EventsDropped) and makes Close wait, nothing else. One that panics, or ends its
// goroutine, has missed that event: it is logged with the stack and counted (HostMetrics.EventsDropped), and
// f gets the next one. It must not call Host.Close.
func WithEvents(f func(Event)) Option { return func(e *environment) { e.hook = f } }

// backlog holds what waits for a reader, up to maxBacklog. It drops what is newer, and knows how much.
type backlog[T any] struct {
	mu      sync.Mutex
	waiting []T
	dropped int // after the last of waiting
}

const maxBacklog = 1 << 10

// put reports whether it has kept v.
func (b *backlog[T]) put(v T) (kept bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dropped > 0 || len(b.waiting) == maxBacklog {
		b.dropped++
		return false
	}
	b.waiting = append(b.waiting, v)
	return true
}

// take takes the first. If some were dropped at this place, it returns how many, and nothing else.
func (b *backlog[T]) take() (v T, dropped int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		dropped, b.dropped, b.waiting = b.dropped, 0, nil
		return v, dropped, false
	}
	v = b.waiting[0]
	var none T
	b.waiting[0] = none
	b.waiting = b.waiting[1:]
	return v, 0, true
}
