package host

import (
	"time"

	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/wal"
)

// Metrics are plain structs: a snapshot of counts and levels, all of which exist from the first moment with
// the value zero, so that a dashboard has no holes and a rate begins at nothing. How they reach a monitoring
// system is the program's business; package ops renders them for Prometheus. Neither expvar nor
// net/http is imported here: each would add megabytes and a handler to the programs of all users.
//
// A count costs an atomic add for each batch at most. What can be derived when it is asked for is not
// counted.

// ProposalMetrics are the outcomes of proposals on this host, since the group was opened.
type ProposalMetrics struct {
	// Batches, Commands and Bytes are what this leader has put into its log. Commands / Batches is how well
	// commands share the cost of a write and of a message.
	Batches, Commands, Bytes uint64

	Committed     uint64 // answered with a receipt
	Refused       Refusals
	Indeterminate uint64 // answered with ErrIndeterminate because the group stopped
}

// Refusals are commands that were answered with an error after which they are surely not committed, by the
// error.
type Refusals struct {
	NotLeader, NotFounded, Overloaded, TooLarge, Empty, Stopped uint64

	Dropped   uint64 // another leader's entry took their place
	Withdrawn uint64 // their clients gave up before they were proposed
	Other     uint64
}

// CallMetrics are about commands with a session, and those that were forwarded. They are zero for a group
// that has none.
type CallMetrics struct {
	Forwarded  uint64 // commands that this host has sent to a leader
	Taken      uint64 // commands of other hosts that this leader has proposed
	Retried    uint64 // commands that were sent or proposed once more
	Duplicates uint64 // commands that came a second time and were not applied again
	Expired    uint64 // commands that were refused because their session had expired
	// Sessions is how many sessions this member knows now. SessionsEvicted counts those that it has forgotten
	// before they expired, because the table was full (CommandOptions.Sessions, MaxBytes).
	Sessions        int
	SessionsEvicted uint64
}

// BatchMetrics are about the batches that a leader has put into its log and that are not committed.
type BatchMetrics struct {
	Open  int           // now
	Round time.Duration // the moving mean of the time from the beginning of a batch to its commit; 0: not measured
	// Rule decides when a batch begins: batches.Immediate or batches.Cohorts. It is Automatic where this member
	// does not lead, or has had no command since. Changes is how often it chose the other one while it led.
	Rule    batches.Kind
	Changes uint64
}

// ReadMetrics are about reads on this host.
type ReadMetrics struct {
	Linearizable, Bounded, AtLeast uint64 // that were answered
	LeaseServed, LeaseMissed       uint64 // lease reads, and those for which the lease did not hold
	Rounds                         uint64 // with which this leader has asked its quorum
	Refused                        uint64 // of any kind, with ErrOverloaded
}

// TimeMetrics say how long commands and reads on this host took. All is zero without Config.StageTimes.
type TimeMetrics struct {
	// Commands are those of Group.Call, and so of package millrace. A stage that happens on another host is not
	// measured here: of forwarded commands only Committed and Applied are.
	Commands outcome.CommandTimes
	// Reads are answered reads of all kinds but leases: a lease read waits for nothing.
	Reads outcome.Histogram
}

// QueueMetrics are bytes that a group holds now, with overhead.
type QueueMetrics struct {
	Waiting  int64 // commands that wait for a turn
	Proposed int64 // commands that are proposed and not answered
	Received int64 // messages that wait for a turn
	Writing  int64 // what waits for the disk
	Applying int64 // what waits for the state machine
	Behind   int64 // what the machine of this leader has still to apply, while it is more than MaxLagBytes
}

// GroupMetrics are counts and levels of one group on one host, since the group was opened there.
type GroupMetrics struct {
	Group, Host uint64
	diagnosis.Status

	Leads, Founded, Stopped, DiskFull bool

	// HaltedAt is the first of the commands of which one has halted the state machine (Group.Halted); 0: it
	// works. Halts counts how often it has halted.
	HaltedAt uint64
	Halts    uint64

	Divergence DivergenceMetrics

	Campaigns     uint64 // elections that this member has begun, pre-votes included
	Elected       uint64 // leaderships that this member has won
	LeaderChanges uint64 // times that this member has learned of another leader
	GivenUp       uint64 // leaderships that this member has handed over or given up,
	Placed        uint64 // and those of them for the sake of placement

	Proposals ProposalMetrics
	Batches   BatchMetrics
	Calls     CallMetrics
	Reads     ReadMetrics
	Times     TimeMetrics
	Queues    QueueMetrics
	Snapshots SnapshotMetrics
	Objects   ObjectMetrics
	Published PublicationMetrics
}

// PublicationMetrics are about what the machine publishes, and the subscribers on this host.
type PublicationMetrics struct {
	Published   uint64 // in this life of the host
	Bytes       int64  // that are kept (GroupConfig.PublicationBytes)
	Subscribers int    // now
	Behind      uint64 // publications that the slowest subscriber has not taken
	Forgotten   uint64 // times that a subscriber was told that what it lacks is not kept
}

// DivergenceMetrics are about what members compare (event.Diverged).
type DivergenceMetrics struct {
	// DifferAt is the entry after which members are seen to differ; 0: they are not. This host has found it
	// as the leader, or was told by its leader.
	DifferAt uint64
	// AgreedAt is the last entry after which this leader has seen members agree in everything that they
	// compare; 0: none in this life.
	AgreedAt uint64
	Found    uint64 // differences that this host has found as the leader, in this life
}

// SnapshotMetrics are about the snapshots of a group on this host.
type SnapshotMetrics struct {
	Index uint64        // of the latest on the disk; 0: there is none
	Bytes int64         // of the latest
	Age   time.Duration // now, since it was taken in this life of the host; 0: it was there before
	Taken uint64        // that were published and read back
	// Failed is how many have failed, and FailedInARow how many since the last success.
	Failed       uint64
	FailedInARow int
	Taking       time.Duration // the time that all of Taken took, from the capture to the end
	// LogBytes is how much the log has grown since the latest, in bytes with the overhead of each entry, as
	// far as it is applied. LogEntries is how many entries the log has now.
	LogBytes   int64
	LogEntries uint64
}

// HostMetrics are counts and levels of a host, since it was opened.
type HostMetrics struct {
	Host uint64

	Groups, Leading, StoppedGroups, FullGroups int    // now: open groups, and those of them that are so
	Placed                                     uint64 // hand-overs that leaders here have begun for the sake of placement
	WithoutAuthority                           int    // the same
	// Unhealthy are the groups that Explain does not call healthy, and Causes how many groups have a cause
	// or a warning, for each code that Explain knows. Both are what Explain says at this moment.
	Unhealthy int
	Causes    []CauseCount

	Memory    MemoryStats
	Log       wal.Stats
	Transport transport.Stats
	Lanes     LaneMetrics
	Transfers TransferMetrics // of snapshots
	// ObjectTransfers are those of large objects.
	ObjectTransfers TransferMetrics
	Peers           []PeerMetrics // all other hosts of the founding list, ascending

	EventsDropped, LogLinesDropped uint64 // for readers that did not keep up
	Strays                         uint64 // messages that were not for a group that is open here
	Pauses                         uint64 // times in which the process did not run for more than a heartbeat interval
	Paused                         time.Duration
}

// CauseCount is how many groups of a host have a cause.
type CauseCount struct {
	Code   diagnosis.Code
	Groups int
}

// countCauses counts what Explain says of a group.
func (m *HostMetrics) countCauses(d diagnosis.Diagnosis) {
	if !d.Healthy {
		m.Unhealthy++
	}
	for i := range m.Causes {
		if d.Has(m.Causes[i].Code) {
			m.Causes[i].Groups++
		}
	}
}

// TransferMetrics are about what a host sends and receives of one kind, in all groups. Bytes are those of
// blocks, so what is lost on the way counts where it was sent, and what comes twice counts twice.
type TransferMetrics struct {
	Sending, Receiving       int    // now
	Sent, Received           uint64 // that have ended well
	Aborted                  uint64 // of both kinds; a fetch that starts over counts, too
	BytesSent, BytesReceived uint64
	Unwanted                 uint64 // blocks that came and were not asked for, or were here already
}

// LaneMetrics are about the workers that the groups of a host share.
type LaneMetrics struct {
	Turns     uint64 // of all groups
	HungTurns int    // now: turns that their shards have left behind

	AppendWork    uint64        // pieces of work of the append lane: writes and syncs
	AppendStalled time.Duration // now: for how long it has had work and completed none

	ApplyLanes, ApplyBusy, ApplyHung int // now: lanes, lanes in a state machine, and lanes in it for a second or longer
	ApplySubstitutes                 int // now: lanes that were started in place of lanes that hung; at most 1 for each group
}

// PeerMetrics are what a host knows of another one.
type PeerMetrics struct {
	Host   uint64
	Met    bool          // in this life
	Silent time.Duration // now: nothing has come from it for so long; followers of the same leader need not hear each other
	// Refuses means that the other host refuses this host's directory. Refused means that this host has
	// refused the directory of the other host lately.
	Refuses, Refused bool
}

// Metrics returns the group's counts and levels. It takes a few short locks, never waits for the group, a
// disk or a state machine, and may be called by any goroutine.
func (g *Group) Metrics() GroupMetrics {
	c := &g.life.counts
	m := GroupMetrics{
		Group: g.id, Host: g.self, Status: g.Status(),
		Founded: g.Founding().Founded, Stopped: g.Err() != nil, DiskFull: g.writes.append.Full.Load(),
		Campaigns: c.campaigns.Load(), Elected: c.elected.Load(), LeaderChanges: c.leaderChanges.Load(), GivenUp: c.givenUp.Load(), Placed: c.placed.Load(),
		Reads: ReadMetrics(g.reads.queue.Counts()),
	}
	m.Leads = m.Role == event.RoleLeader
	m.Halts = g.machine.apply.Halts()
	if h := g.machine.apply.Halted(); h != nil {
		m.HaltedAt = h.First
	}
	m.Divergence = g.divergenceMetrics()
	r := &g.proposals.Refusals
	m.Proposals = ProposalMetrics{
		Batches: c.batches.Load(), Commands: c.commands.Load(), Bytes: c.bytes.Load(), Indeterminate: r.Indeterminate.Load(),
		Refused: Refusals{
			NotLeader: r.NotLeader.Load(), NotFounded: r.NotFounded.Load(), Overloaded: r.Overloaded.Load(), TooLarge: r.TooLarge.Load(),
			Empty: r.Empty.Load(), Stopped: r.Stopped.Load(), Dropped: r.Dropped.Load(), Withdrawn: r.Withdrawn.Load(), Other: r.Other.Load(),
		},
	}
	m.Batches = BatchMetrics(g.proposals.batching.Counts())
	m.Times.Commands, _ = g.proposals.Times()
	m.Times.Reads, _ = g.reads.queue.Took()
	p := g.proposals.Counts()
	m.Proposals.Committed, m.Queues.Proposed = p.Committed, p.Bytes
	m.Calls = CallMetrics{Forwarded: p.Forwarded, Taken: c.taken.Load(), Retried: p.Retried, Expired: p.Expired}
	m.Calls.Duplicates = m.DuplicatesSuppressed
	if s, ok := g.machine.apply.Machine.(*apply.Commands); ok {
		m.Calls.Sessions, m.Calls.SessionsEvicted, _ = s.Counts()
	}
	m.Queues.Waiting, m.Queues.Received = g.inbox.bytes()
	m.Snapshots = g.snapshotMetrics()
	m.Objects = ObjectMetrics(g.machine.objects.Metrics())
	if f := g.machine.feed; f != nil {
		m.Published = PublicationMetrics(f.Measure())
	}
	m.Queues.Writing, m.Queues.Applying = g.writes.append.Held(), g.machine.apply.Held()
	m.Queues.Behind = g.machine.backlog.Behind(g.machine.apply.Applied())
	return m
}

// bytes returns what waits for a turn.
func (b *inbox) bytes() (proposals, messages int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lockGiven()
	defer b.unlockGiven()
	return b.proposalBytes, b.messageBytes
}

// Metrics returns the host's counts and levels. It takes a few short locks for each open group, and never
// waits for a disk or a state machine. It may be called by any goroutine, also after Close.
func (h *Host) Metrics() HostMetrics {
	now := h.clock.awake()
	m := HostMetrics{
		Host: h.config.ID, Memory: h.Memory(), Log: h.LogStats(), Transport: h.TransportStats(),
		EventsDropped: h.reports.events.Dropped(), LogLinesDropped: h.reports.logWriter.Dropped(), Strays: h.network.strays.Load(),
		Placed: h.changes.placer.Begun(),
	}
	for _, code := range diagnosis.Codes() {
		m.Causes = append(m.Causes, CauseCount{Code: code})
	}
	for _, g := range h.groups.all() {
		m.Groups++
		m.countCauses(g.Explain())
		switch {
		case g.Err() != nil:
			m.StoppedGroups++
		case g.life.status.leads.Load():
			m.Leading++
		}
		if g.writes.append.Full.Load() {
			m.FullGroups++
		}
		if g.members.withoutAuthority.Load() {
			m.WithoutAuthority++
		}
	}
	m.Transfers = TransferMetrics(h.bulk.transfers.Counts(h.bulk.transfers.snapshots))
	m.ObjectTransfers = TransferMetrics(h.bulk.transfers.Counts(h.bulk.transfers.objects.Class))
	lanes := h.appliers.Counts()
	m.Lanes = LaneMetrics{ApplyLanes: lanes.Lanes, ApplyBusy: lanes.Busy, ApplyHung: lanes.Hung, ApplySubstitutes: lanes.Substitutes}
	for _, s := range h.shards {
		turns, hung := s.Counts()
		m.Lanes.Turns += turns
		m.Lanes.HungTurns += hung
	}
	m.Lanes.AppendWork = h.storage.lane.Pieces.Load()
	if since, stalls := h.reports.watch.StalledDisk(h.storage.lane, now); stalls {
		m.Lanes.AppendStalled = time.Duration(now-since) * h.config.tickPeriod()
	}
	pauses, missed := h.reports.watch.AllPauses()
	m.Pauses, m.Paused = pauses, time.Duration(missed)*h.config.tickPeriod()
	for _, id := range h.others() {
		p := h.network.handshakes.Of(id)
		if p == nil {
			continue // it was forgotten just now
		}
		refused := h.reports.watch.Refusal(id).Lasts(now, h.config.bounds())
		m.Peers = append(m.Peers, PeerMetrics{
			Host: id, Met: p.Met.Load(), Refuses: p.Refuses.Load() != nil, Refused: refused,
			Silent: time.Duration(max(now-p.HeardAt.Load(), 0)) * h.config.tickPeriod(),
		})
	}
	return m
}

// snapshotMetrics returns counts and levels.
func (g *Group) snapshotMetrics() (m SnapshotMetrics) {
	s := &g.snapshots
	c := s.Counts()
	m.Taken, m.Failed, m.Taking, m.FailedInARow = c.Taken, c.Failed, c.Took, c.FailedInARow
	m.LogBytes = s.Growth.Applied()
	if p := s.Latest(); p != nil {
		m.Index, m.Bytes, m.LogBytes = p.ID.Index, p.Bytes, s.Growth.Since(p.ID.Index)
		if p.At > 0 {
			m.Age = time.Duration(max(g.host.clock.awake()-p.At, 0)) * g.host.config.tickPeriod()
		}
	}
	m.LogEntries = g.writes.storage.entries()
	return m
}

// divergenceMetrics returns what Metrics says of the comparison.
func (g *Group) divergenceMetrics() (m DivergenceMetrics) {
	if found, _, _ := g.machine.divergence.Standing(); found != nil {
		m.DifferAt = found.Index
	}
	m.AgreedAt, m.Found = g.machine.divergence.Counts()
	return m
}
