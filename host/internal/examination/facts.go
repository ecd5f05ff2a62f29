package examination

import (
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/membership"
)

// Facts are what a host knows of one of its groups at a moment. Moments are in ticks in which the process
// ran: what happened while it did not run is the fault of the pause only. Never is no moment.
type Facts struct {
	Group, Host uint64
	Now         int64
	Bounds      Bounds
	Config      Config
	Status      diagnosis.Status
	Founding    diagnosis.Founding
	Stop        *Stop // nil: the group works

	Opened     int64
	Leads      int64 // it has led since then; Never: it does not
	Leaderless int64 // no leader was known since then; Never: one is

	Roster           *membership.Roster // nil: the group has none yet
	Members          []uint64           // voters and learners; before there is a roster, the founding list
	Peers            []Peer             // each host that is named elsewhere in the facts
	DirectoriesSince int64              // since then hosts come with directories that the group is not bound to
	Followers        []Follower         // on a leader: what its latest turn has seen of them

	Authority *Authority // nil: this member has it
	Disk      Disk
	Machine   Machine
	Snapshots Snapshots
	Pauses    Pauses
	Load      Load
	Placement Placement

	Differs      *event.Diverged // nil: members agree
	DiffersBy    uint64          // the member that has found it
	DiffersSince int64
	Uncompared   []divergence.Uncompared
}

// Never stands for a moment that was not.
const Never = -1

// Bounds are the times by which a host is judged, in ticks, except Tick.
type Bounds struct {
	Tick                       time.Duration // the length of a tick
	Heartbeat, Election, Stall int64
}

// Wait is how long a healthy member may take for what others wait for: two election timeouts.
func (b Bounds) Wait() int64 { return 2 * b.Election }

// Unheard is how long a host that lives may be silent. A candidate asks once in up to two election timeouts.
func (b Bounds) Unheard() int64 { return b.Wait() + 2*b.Heartbeat }

// Refused is how long a refusal is a cause after it was seen.
func (b Bounds) Refused() int64 { return refusedTimeouts * b.Election }

// Paused is how long a pause is a warning after its end.
func (b Bounds) Paused() int64 { return pausedTimeouts * b.Election }

// A host that is refused comes again after the longest pause of a transport, a second. So a refusal that was
// not repeated for refusedTimeouts has ended. An operator who looks for what has stopped a process comes
// later: a pause is named for pausedTimeouts after it. Both are in election timeouts.
const (
	refusedTimeouts = 8
	pausedTimeouts  = 20
)

// Config are the settings that evidence names.
type Config struct {
	ElectionTimeout, StallTimeout time.Duration
	MemoryBytes, QueueBytes       int64 // QueueBytes is the bound on the queue to one host
	LogDir                        string
	Batches                       bool // commands share entries, where the members read such entries
}

// Stop is the end of a group.
type Stop struct {
	Since     int64
	Err       error
	Why       StopReason
	Directory bool // because of a host that comes with a directory that it must not have
}

// StopReason is why a group has stopped, as far as it decides what to do.
type StopReason int

// The reasons to stop.
const (
	StoppedByError StopReason = iota
	StoppedByProgram
	StoppedByRemoval
	StoppedByFullDisk
	StoppedByDisk
	StoppedByDirectory // of a host that it must not have
)

// Peer is what this host knows of another one.
type Peer struct {
	ID          uint64
	Known       bool // false: this host knows as many as it can
	Heard       bool // in this life
	HeardAt     int64
	HeardSince  int64    // it was never silent for two election timeouts since then
	RefusedBy   *Refusal // it refuses this host
	Refused     *Refusal // this host refuses it
	Certificate *Certificate
	Directory   string // the incarnation of the directory with which it comes
	Settings    []Setting
	SettingsAt  int64
	Batches     Batches
	Unsent      Repeats // calls of Send to it that the transport has refused, in whole or in part
}

// Batches is what a host has said of entries with several commands, in its present life.
type Batches int

const (
	BatchesUnknown Batches = iota // nothing
	BatchesRefused                // it reads them, and has Config.SingleEntries
	BatchesRead
)

// Refusal is a connection that one of two hosts refuses because of an identity.
type Refusal struct {
	Why, Remote   string
	Fix           string // what an operator can do
	Since, Latest int64
}

// Lasts reports whether this host refuses the other one still, as far as it knows.
func (r *Refusal) Lasts(now int64, b Bounds) bool { return r != nil && now-r.Latest <= b.Refused() }

// Certificate is the one because of which two hosts do not speak.
type Certificate struct {
	ByPeer        bool // the other host refuses this one's
	Remote        string
	Err           error
	Since, Latest int64
}

// Setting is one that members should share, on another host and here.
type Setting struct {
	Name         string
	Theirs, Ours time.Duration
}

// Repeats counts what happens again and again.
type Repeats struct{ Since, Latest, N int64 }

// Follower is what a turn of a leader has seen of a follower.
type Follower struct {
	ID           uint64
	At           int64  // of that turn
	ActiveAt     int64  // its member answered
	AckedAt      int64  // it acknowledged an entry, or had nothing to acknowledge
	LevelAt      int64  // it held everything that was committed then
	ReadingSince int64  // the entries that it needs are being read; Never: none are
	Match, Next  uint64 // it holds the log through Match, and Next is sent next
	Behind       uint64 // entries of the leader's log that it does not hold
	Slow         bool   // it acknowledges, and has been behind for long
	LostSince    int64  // it is without authority; Never: it has authority
	Snapshot     uint64 // it needs the snapshot through this entry; 0: the log is enough
	SnapshotAt   int64  // since when
}

// Hear notes when the member has answered.
func (v *Follower) Hear(at, timeout int64) {
	if at-v.ActiveAt > timeout {
		v.AckedAt = max(v.AckedAt, at) // it was away, and begins to acknowledge
	}
	v.ActiveAt = max(v.ActiveAt, at)
}

// Authority is what this member lacks to vote and to count.
type Authority struct {
	LostAt int64
	Unmet  bool // its log was repaired, and not all voters were met since
}

// Disk is how the disk of this host works.
type Disk struct {
	Full     *FullDisk // nil: it takes the entries of the group
	Stalls   bool      // work waits, and nothing was completed
	StallsAt int64     // since then
	Syncs    uint64    // completed
	Slow     *SlowDisk // nil: none was slow lately
}

// FullDisk is a log that refuses entries.
type FullDisk struct {
	Since int64
	Bytes int64 // of entries that wait in memory
	Err   error // nil: no space
}

// SlowDisk counts writes and syncs that took long and were completed.
type SlowDisk struct{ Since, N, Longest int64 }

// Machine is how the state machine of this member works.
type Machine struct {
	Turn   time.Duration // for how long a turn that calls it has been under way; 0: none is
	Lane   Lane
	Halt   *Halt   // nil: the machine works
	Object *Object // nil: the machine waits for none
}

// Lane is what the apply lanes do for a group.
type Lane struct {
	Busy, Running            bool  // it has work; a lane works on it
	Since                    int64 // when a lane began to, or since when it waits for one
	Lanes, Hung, Substitutes int
}

// Halt is a machine that could not apply a command.
type Halt struct {
	Since   int64
	At      string // which command
	One     bool   // it is known which
	Whole   bool   // they are one entry, so no start tells which
	Err     error
	Skipped bool // the group has decided to skip it
	Stays   bool // no entry of the log helps
	// WrongVersion: the program cannot do the version that the group is at.
	WrongVersion bool
}

// Object is a large object that a machine waits for.
type Object struct {
	Since int64
	Entry uint64 // that names it
	ID    string
	Lost  bool // no member that was asked has it
}

// Snapshots is how this member takes snapshots.
type Snapshots struct {
	Hangs      string // what a piece of work is at; empty: none hangs
	HangsFor   time.Duration
	Failures   int // in a row
	FailsSince int64
	FailedAt   int64 // the latest
	Err        error
	Disabled   bool // they are taken by callers only
	LogEntries uint64
	Stuck      []error // directories that this process must not touch
	Refused    *RefusedSnapshot
}

// RefusedSnapshot is a snapshot that this member needs and cannot use, as any other.
type RefusedSnapshot struct {
	Index uint64 // through which entry the latest goes
	Since int64
	Why   string
}

// Pauses are times in which the process did not run.
type Pauses struct {
	N                      int
	Missed, Longest, Since int64 // ticks; Since: ago
}

// Load is what waits in the memory of this host, and what was refused because of it.
type Load struct {
	Commands, Messages                   Repeats
	Waiting, Proposed, Received, Writing Share
	Behind                               int64 // what the machine of a leader has still to apply, if that is why
}

// Share is a part of the memory, in bytes.
type Share struct{ Used, Share int64 }

// Placement is which member should lead, as this leader sees it.
type Placement struct {
	Wants        uint64 // 0: none other
	Recent, Most int    // hand-overs for it in a window
	Window       time.Duration
}
