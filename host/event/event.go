// Package event has what happens to a host and its groups as values: what Host.Events and host.WithEvents
// pass to a program, and what a simulation and metrics read. The types are here, with no behaviour; package
// host emits them (host/events.go). In JSON a role is a word and an error its text, null without one. In
// reading order: event.go, role.go, rolecause.go, diverged.go, json.go. There is no state and no lock.
package event

import (
	"time"

	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/transport/tcp"
	"github.com/millrace/millrace/wal"
)

// Event is something that happened to a host and that a program may want to count or show: for metrics, a
// console or a simulation. About a group there are RoleChanged, LeadershipGivenUp, GroupFounded,
// GroupStopped, MachineHalted, MachineResumed, DiskFull, RefusedForgotten, AuthorityLost,
// AuthorityRegained, ApplyStalled, TurnStalled, MemberSlow, MessagesDropped, Diverged, MemberRefused,
// MembersChanged and JoinRefused. About snapshots and objects there are SnapshotTaken, SnapshotSent,
// SnapshotReceived, SnapshotInstalled, SnapshotPassed, SnapshotTransferAborted, SnapshotFailed,
// SnapshotStalled, ObjectReceived and ObjectTransferFailed. About hosts there are HostRefused, LogEvent,
// TLSEvent and EventsDropped. A host reports an event just before it logs the same in words (WithLogger).
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

// MachineHalted reports that the state machine of a group could not apply one of the commands First to
// Last, and is halted. This member votes and replicates, and refuses commands and reads. The group has not
// failed.
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

// AuthorityLost reports that a group was opened without authority: its log may lack what it has
// acknowledged. Either the machine lost power in an unsafe mode of durability, or the log was repaired. The
// member neither votes nor counts until it has caught up.
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

// MemberSlow reports that a follower of a group that leads here holds less of the log than it was sent. It
// has acknowledged nothing for two election timeouts: its disk or its host hangs, or it cannot be reached.
// It is reported once for each such stretch.
type MemberSlow struct {
	Group, Member uint64
	Behind        uint64 // entries
	For           time.Duration
}

// MessagesDropped reports that a group takes no messages of its peers any more, or not all. What waits for
// its turn or its disk has reached its bound, or a message is not for it. It is reported once for each
// power of two that the count passes.
type MessagesDropped struct {
	Group uint64
	Count uint64 // since the group was opened
	Cause string // of the latest
}

// SnapshotTaken reports that a snapshot was published and read back. Took is from its capture to the end.
type SnapshotTaken struct {
	Group, Index, Term uint64
	Bytes              int64 // of all its files
	Took               time.Duration
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

// TLSEvent is something about certificates: tcp.CertificateRefused, tcp.CertificateExpires,
// tcp.CredentialsLoaded or tcp.CredentialsRefused.
type TLSEvent struct{ tcp.TLSEvent }

// EventsDropped reports that a listener did not keep up: at this place of its stream Count events are
// missing.
type EventsDropped struct{ Count int }

// GroupFounded reports that this host has learned that a group is founded: it takes commands from then on.
type GroupFounded struct{ Group uint64 }

// HostRefused reports that another host was refused before it could say anything. It may be a wiped host,
// or a host of another cluster. It is reported once for each reason.
type HostRefused struct {
	Host   uint64 // its id
	Remote string // its address
	Err    error
}

// MemberRefused reports that a group refuses a member. The host has come with another directory than the
// group was founded with, or it is none of the members. It is reported once in the life of a host.
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
func (TLSEvent) isEvent()                {}
func (Diverged) isEvent()                {}
func (EventsDropped) isEvent()           {}
