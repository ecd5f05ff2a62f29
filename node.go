package millrace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/object"
)

// Types of package host that this package passes on.
type (
	// GroupConfig configures one group of a shared host.
	//
	//	ID               uint64         // the id of the group in the cluster, not 0 and never reused
	//	Members          []uint64       // the hosts that found the group; default all of host.Config.Members
	//	Joins            bool           // no founder, or its directory is lost: it waits to be added
	//	NonBlocking      bool           // set by OpenGroup from the Machine (Machine.NonBlocking)
	//	Volatile         bool           // set by OpenGroup from the Machine (InMemory)
	//	Leases           bool           // makes reads with Lease possible; the same on all members
	//	Placement        Placement      // which members should lead; default all are equal
	//	Snapshots        SnapshotPolicy // when snapshots are taken; the zero value is good
	//	PublicationBytes int64          // what is kept for subscribers; default 16 MiB, at most 1 GiB
	//	MaxLagBytes      int64          // what a leader's machine may have still to apply; default the memory
	//	MaxAppendBytes   int            // the soft size of an append to a follower; default 1 MiB
	//	MaxCommandBytes  int            // the most of one command; default 8 MiB
	//	func Validate(c host.Config) error // the first setting that a host with c would refuse
	GroupConfig = host.GroupConfig
	// Receipt says where a command is in the log.
	//
	//	Index      uint64        // the index of its entry in the log
	//	Term       uint64        // the term of that entry
	//	Pos        uint32        // its place among the commands with this index, from 0
	//	Queued     time.Duration // when this host took the first command of its batch
	//	Appended   time.Duration // when a turn of this host, as leader, put it into its log
	//	Replicated time.Duration // when this host, as leader, first passed it on for another member
	//	Committed  time.Duration // when this host learned that a quorum holds it durably
	//	Applied    time.Duration // when the state machine of this host got it
	//	By         uint64        // the member whose disk completed the quorum; 0 if this host did not lead
	Receipt = outcome.Receipt
	// Position is where a command is in the log: an entry, and a place in it.
	//
	//	Index uint64 // the entry
	//	Pos   uint32 // the place among the commands of the entry, from 0
	//	func String() string                        // index, or index.pos behind the first command of an entry
	//	func MarshalJSON() ([]byte, error)          // a number at place 0, else the text of String
	//	func UnmarshalJSON(text []byte) (err error) // reads what MarshalJSON returns
	//	func Compare(other Position) int            // -1, 0 or 1, in the order of the log
	Position = outcome.Position
	// Leader is the leader of a group, with its addresses for hosts and for clients.
	//
	//	ID         uint64 // the id of the member that leads
	//	Addr       string // its address for other members (Config.Members)
	//	ClientAddr string // its address for clients (Config.ClientAddrs); "": none was given
	//	Self       bool   // whether it is this member
	Leader = host.Leader
	// Status is the state of a group after its last turn.
	//
	//	ID                   uint64 // the id of this member
	//	Term                 uint64 // the term that it is in
	//	Role                 Role   // what it does in that term
	//	Leader               uint64 // the id of the leader; 0: not known
	//	Applied              uint64 // the last entry that the state machine has
	//	Committed            uint64 // the last entry that a quorum is known to hold
	//	Durable              uint64 // the last entry on the disk of this host
	//	LastIndex            uint64 // the last entry of the log
	//	WithoutAuthority     bool   // it may lack what it has acknowledged: no vote until it has caught up
	//	Version              uint32 // the version of the machine that the group is at
	//	LowestVersion        uint32 // the first version that this program can do
	//	HighestVersion       uint32 // the last version that this program can do
	//	FirstIndex           uint64 // the first entry of the log; a snapshot has what is before it
	//	Refused              uint64 // inputs that were not valid
	//	Dropped              uint64 // messages that found no space, or were for no group here
	//	AppliedBatches       uint64 // calls of the state machine
	//	AppliedCommands      uint64 // commands in these calls
	//	DuplicatesSuppressed uint64 // commands that sessions kept from being applied twice
	Status = diagnosis.Status
	// Role is what a member does in its term: Status.Role.
	//
	//	func String() string                  // the role as a word, such as leader
	//	func MarshalText() ([]byte, error)    // the same word, for JSON and other texts
	//	func UnmarshalText(text []byte) error // reads the word
	Role = event.Role
	// Diagnosis is the verdict of Node.Explain; its String is a page for an operator.
	//
	//	Group      uint64            // the id of the group
	//	Host       uint64            // the member that says this
	//	Status     Status            // its state at that moment
	//	Healthy    bool              // there are no causes; warnings do not count
	//	Causes     []diagnosis.Cause // what keeps the group from working, each with evidence and a remedy
	//	Warnings   []diagnosis.Cause // what should be looked at while the group works
	//	Leaderless time.Duration     // for how long this member has known no leader; 0: it knows one
	//	func Has(code diagnosis.Code) bool // whether a cause or a warning has the code
	//	func String() string               // a page for an operator
	Diagnosis = diagnosis.Diagnosis
	// GroupMetrics is what Node.Metrics returns.
	//
	//	Group         uint64                  // the id of the group
	//	Host          uint64                  // the id of this member
	//	Status        Status                  // its state, with all fields of Status
	//	Leads         bool                    // whether it leads
	//	Founded       bool                    // whether the group takes commands
	//	Stopped       bool                    // whether the group has ended on this host
	//	DiskFull      bool                    // whether the disk refuses entries
	//	HaltedAt      uint64                  // the command at which the machine is halted; 0: it works
	//	Halts         uint64                  // how often the machine has halted
	//	Divergence    host.DivergenceMetrics  // what members have found when they compared results and states
	//	Campaigns     uint64                  // elections that it has begun, pre-votes included
	//	Elected       uint64                  // elections that it has won
	//	LeaderChanges uint64                  // how often it has learned of another leader
	//	GivenUp       uint64                  // leaderships that it has handed over or given up
	//	Placed        uint64                  // of these, the ones because of Placement
	//	Proposals     host.ProposalMetrics    // commands, batches, and what was refused
	//	Batches       host.BatchMetrics       // batches under way, and when the next one begins
	//	Calls         host.CallMetrics        // commands that were forwarded or repeated, and sessions
	//	Reads         host.ReadMetrics        // reads by consistency, and the rounds for them
	//	Times         host.TimeMetrics        // histograms of commands and reads (Config.StageTimes)
	//	Queues        host.QueueMetrics       // bytes that wait in each queue
	//	Snapshots     host.SnapshotMetrics    // the latest snapshot, its age, failures, and the log behind it
	//	Objects       host.ObjectMetrics      // large objects of the group, and those that are missing here
	//	Published     host.PublicationMetrics // publications that are kept, and their subscribers
	GroupMetrics = host.GroupMetrics
	// Event is something that happened to a host, such as event.RoleChanged. Package host/event has a type
	// for each kind, with fields. A type switch tells the kinds apart.
	Event = event.Event
	// Members says who the members of a group are.
	//
	//	Version        uint64             // the entry that has changed the members last; 0: they are the founders
	//	Founded        bool               // before that, only All is set
	//	All            []host.MemberInfo  // each member: its role, address, directory, and whether it is there
	//	Voters         []uint64           // the ids of those that vote; in a change of several, of the new half
	//	Outgoing       []uint64           // the voters of the old half, during a change of several
	//	Learners       []uint64           // the ids of those that do not vote
	//	Removed        []uint64           // ids of members that were removed, which are not given again
	//	Plan           string             // how far the plan under way is; "": there is none
	//	Waits          string             // what that plan waits for
	//	Tokens         []membership.Token // join tokens that were not used, without their secrets
	//	View           uint64             // the member that says who is there, this one or the leader; 0: none
	//	Tolerates      int                // how many voters may fail now, unless View is 0; below 0: no quorum
	//	MachineVersion uint32             // the version of the machine that the group is at
	Members = host.Members
	// JoinTokenOptions say how long a join token is valid, and for whom.
	//
	//	Life    time.Duration // how long it is valid, in log time; default an hour, at most 30 days
	//	Member  uint64        // the only id that may use it; a member's id replaces its directory. 0: any new id
	//	Learner bool          // the new member stays a learner
	JoinTokenOptions = host.JoinTokenOptions
	// MemberPlan is a way from the present members to others, with what each stage does to the quorum.
	//
	//	Stages    []host.PlanStage // what happens, one after the other, and what may fail meanwhile
	//	View      uint64           // the member by whose view the plan is judged; 0: no leader has told
	//	Tolerates int              // how many voters may fail before it begins; below 0: there is no quorum
	//	Absent    []uint64         // members that were not heard lately, by that view
	//	func String() string // a page for an operator
	MemberPlan = host.MemberPlan
	// MemberChange is what a plan does to one member.
	//
	//	func At(addr string) MemberChange // the same change with the address (host:port) of the node
	MemberChange = host.MemberChange
	// Placement says which members should lead.
	//
	//	Priorities map[uint64]int // 0 to 100 by id; default 1. The highest should lead, 0 only if no other can
	//	Zones      []string       // zones (Config.Zone) for the leader, the best first; among equal priorities
	//	func Validate() error // the first value that would be refused
	Placement = host.Placement
	// PlacementStatus says which member should lead, and what it waits for.
	//
	//	Placement Placement // what is in force on this member
	//	Wants     uint64    // the member that should lead instead of this one; 0: none
	//	Waits     string    // why it does not lead yet, in words
	//	Recent    int       // hand-overs because of placement in the past hour; with 4 the leader stays
	PlacementStatus = host.PlacementStatus
)

// The roles (thesis §3.3): what Status.Role may be.
const (
	// RoleFollower follows the leader of its term, or knows none.
	RoleFollower = event.RoleFollower
	// RolePreCandidate asks whether it could win, before it becomes a candidate (§9.6).
	RolePreCandidate = event.RolePreCandidate
	// RoleCandidate asks for votes.
	RoleCandidate = event.RoleCandidate
	// RoleLeader puts commands into the log.
	RoleLeader = event.RoleLeader
)

// Node is one member of a replicated state machine with commands C and results R. Its methods may be called
// by any number of goroutines, and not by the state machine.
type Node[C, R any] struct {
	host    *host.Host
	group   *host.Group
	machine Machine[C, R]
	owns    bool // the host was opened with it

	pendings pendings[R]
	home     home[R]
	told     chan struct{} // closed when the leader's clock has ended; nil: the machine has no timers
}

// Open opens a node with a host of its own, in a new directory or in one that it was in before: the call is
// the same. It returns when the log is read, without waiting for other members or a leader; what is called
// then waits for them. ctx bounds the opening only.
//
// At the first start, each member must come once before the group takes commands; from then on a majority is
// enough. Close the node when done.
func Open[C, R any](ctx context.Context, c Config, m Machine[C, R], opts ...Option) (node *Node[C, R], err error) {
	var o options
	for i, option := range opts {
		if option != nil {
			option(&o)
		} else if err == nil {
			err = fmt.Errorf("millrace: option %d of Open is nil; leave it out", i)
		}
	}
	if err == nil {
		err = m.validate()
	}
	if err == nil {
		err = c.validate(o.transport == nil)
	}
	if err != nil {
		if o.transport != nil {
			err = errors.Join(err, o.transport.Close())
		}
		return nil, err
	}
	h, err := host.Open(ctx, c.host(), append(c.options(), o.host...)...)
	if err != nil {
		return nil, err
	}
	opened := false
	defer func() {
		if !opened { // or the machine's Applied has panicked
			err = errors.Join(err, h.Close(ctx))
		}
	}()
	if node, err = OpenGroup(ctx, h, c.group(), m); err != nil {
		return nil, err
	}
	node.owns, opened = true, true
	return node, nil
}

// OpenGroup opens a group of a host that many groups share. The host stays open when the node is closed.
// What the machine says of itself stands over GroupConfig.Volatile and NonBlocking.
func OpenGroup[C, R any](ctx context.Context, h *host.Host, c GroupConfig, m Machine[C, R]) (*Node[C, R], error) {
	if err := m.validate(); err != nil {
		return nil, err
	}
	if h == nil {
		return nil, errors.New("millrace: OpenGroup needs a host; open one with host.Open, or use Open")
	}
	c.Volatile, c.NonBlocking = m.durable == nil, m.nonBlocking
	g, err := h.OpenGroup(ctx, c, m.commands())
	if err != nil {
		return nil, err
	}
	n := &Node[C, R]{host: h, group: g, machine: m, home: home[R]{group: g, results: m.results}}
	if m.timers != nil {
		n.told = make(chan struct{})
		go n.tell()
	}
	return n, nil
}

// Close closes the node. If the host is its own, it first hands its leadership over. That takes two round
// trips if a member is level, and at most an election timeout. Then it answers all callers, stops, and
// syncs and closes the log. If ctx ends earlier, Close returns an error that names what hangs: the process
// may end, and nothing else should open the directory before that. It may be called repeatedly.
func (n *Node[C, R]) Close(ctx context.Context) error {
	if err := n.rejectReentry("Close"); err != nil {
		return err
	}
	if n.owns {
		err := n.host.Close(ctx)
		n.awaitClock(ctx)
		return err
	}
	err := n.group.Close(ctx)
	n.awaitClock(ctx)
	return err
}

// Addr returns the address on which the host listens: the port, if Config.Listen has port 0.
func (n *Node[C, R]) Addr() string { return n.host.Addr() }

// Host returns the node's host, for what is not in this package.
func (n *Node[C, R]) Host() *host.Host { return n.host }

// Group returns the node's group, for what is not in this package.
func (n *Node[C, R]) Group() *host.Group { return n.group }

// SetPlacement changes which members should lead, as this one sees it, until it is closed. The zero value
// makes all equal. It acts while this member leads; set it on all members.
func (n *Node[C, R]) SetPlacement(p Placement) error { return n.group.SetPlacement(p) }

// Placement returns which member should lead, as this one sees it, and what it waits for. It never waits.
func (n *Node[C, R]) Placement() PlacementStatus { return n.group.Placement() }

// Cluster returns the number of the cluster as a text, as a new node needs it (Config.Cluster). A member that
// founds the cluster, or joins it, has it as soon as it is open.
func (n *Node[C, R]) Cluster() string { return strconv.FormatUint(n.host.Cluster(), 10) }

// WaitLeader returns the leader as soon as this host knows one: at once, or after an election. Propose and
// the reads wait for a leader themselves.
func (n *Node[C, R]) WaitLeader(ctx context.Context) (Leader, error) {
	if err := n.rejectReentry("WaitLeader"); err != nil {
		return Leader{}, err
	}
	return n.group.WaitLeader(ctx)
}

// WaitReady returns nil when the node can serve: it is a member of a founded group with a leader. It has then
// applied everything that was committed before the call. If ctx ends first, the error says what was
// missing. A program calls it once, before it takes requests; a probe asks Explain.
func (n *Node[C, R]) WaitReady(ctx context.Context) error {
	if _, err := n.Read(ctx, Linearizable); err != nil {
		return fmt.Errorf("millrace: not ready: %w", err)
	}
	return nil
}

// LogTime returns about the log time now: how long the group has had leaders (Command.Time). It never waits.
func (n *Node[C, R]) LogTime() time.Duration { return n.group.LogTime() }

// Status returns the state of the group as of its last turn. It never waits.
func (n *Node[C, R]) Status() Status { return n.group.Status() }

// Err returns why the group has stopped on this host, or nil while it runs.
func (n *Node[C, R]) Err() error { return n.group.Err() }

// Failed returns a channel that is closed when the group has stopped on this host, by Close or by a failure;
// Err says why.
func (n *Node[C, R]) Failed() <-chan struct{} { return n.group.Ended() }

// Halted returns why the state machine of this member is halted, a HaltedError, or nil while it works. The
// group has not failed then: Err is nil. It never waits.
func (n *Node[C, R]) Halted() error { return n.group.Halted() }

// SkipCommand makes every member skip a command that machines cannot apply, as if it had never been proposed,
// and returns when that is decided. Any member may be asked. It is refused, with an error that wraps
// ErrMembersUnchanged, unless the machine of the leader is halted exactly at that command. A machine
// with a snapshot continues at once; another one after its next start. A member that has applied the command
// must be replaced. HaltedError.Command says which command it is.
func (n *Node[C, R]) SkipCommand(ctx context.Context, at Position) error {
	if err := n.rejectReentry("SkipCommand"); err != nil {
		return err
	}
	return n.group.SkipCommand(ctx, at)
}

// Upgrade makes the group go on at a version of its machine (Machine.Versions), and returns when this member
// has applied the entry that says so. Every command behind that entry has the version, on every member. Any
// member may be asked. It is refused unless every member can do the version, with an error that wraps
// ErrMembersUnchanged and names each member that cannot, or does not say so. A group never goes back.
// If ctx ends first, the group may be upgraded all the same. Upgrade may be repeated.
func (n *Node[C, R]) Upgrade(ctx context.Context, version uint32) error {
	if err := n.rejectReentry("Upgrade"); err != nil {
		return err
	}
	return n.group.Upgrade(ctx, version)
}

// Explain says whether anything is wrong with the group as this host sees it: causes with their evidence,
// since when, and what to do. A healthy group has none. It never waits.
func (n *Node[C, R]) Explain() Diagnosis { return n.group.Explain() }

// Metrics returns what this member has counted and measured, with every series, also those at zero. It never
// waits. Package ops renders it for Prometheus.
func (n *Node[C, R]) Metrics() GroupMetrics { return n.group.Metrics() }

// TransferLeadership makes the member to the leader, and returns when it leads. If to is 0, it is the member
// that has most of the log. Only the leader can do that; others return a NotLeaderError.
func (n *Node[C, R]) TransferLeadership(ctx context.Context, to uint64) error {
	if err := n.rejectReentry("TransferLeadership"); err != nil {
		return err
	}
	return n.group.TransferLeadership(ctx, to)
}

// TakeSnapshot takes a snapshot of what this member has applied, after the one under way if there is one. It
// returns when the snapshot is on this host's disk and was read back; then the log forgets what is before it.
// Nodes take snapshots by themselves (Config.Snapshots); this is for before a planned stop, and for tests. If
// ctx ends first, the snapshot may be taken nevertheless.
func (n *Node[C, R]) TakeSnapshot(ctx context.Context) (SnapshotInfo, error) {
	if err := n.rejectReentry("TakeSnapshot"); err != nil {
		return SnapshotInfo{}, err
	}
	return n.group.TakeSnapshot(ctx)
}

// LatestSnapshot returns the newest snapshot on this host's disk, if there is one.
func (n *Node[C, R]) LatestSnapshot() (s SnapshotInfo, ok bool) { return n.group.LatestSnapshot() }

// Export writes a backup to w: one archive with the state and the sessions of everything that this node had
// applied before the call. It takes a snapshot, if the latest one has not all of that. Read linearizably
// before, to have everything that was acknowledged. millrace snapshot restore begins a new cluster with it.
// After an error what was written is no archive.
func (n *Node[C, R]) Export(ctx context.Context, w io.Writer) (SnapshotInfo, error) {
	if err := n.rejectReentry("Export"); err != nil {
		return SnapshotInfo{}, err
	}
	return n.group.Export(ctx, w)
}

// Log returns the committed commands with indexes in [from, to), as they are in the log; to 0 means all.
// Duplicates, which the state machine does not get, are included. Raft's own entries are left out. A
// Command's Time is that of the latest stamp among those returned. The sequence ends with an error, if
// there is one. It wraps ErrCompacted if the log has forgotten a command of the range
// (Status.FirstIndex).
func (n *Node[C, R]) Log(ctx context.Context, from, to uint64) iter.Seq2[Command[C], error] {
	return func(yield func(Command[C], error) bool) {
		var at time.Duration
		for e, err := range n.group.Entries(ctx, from, to) {
			if err != nil {
				yield(Command[C]{}, err)
				return
			}
			for place, data := range e.Commands() { // Raft's own entries have none
				c, ofHost, err := n.commandOf(place, e.Term, data)
				at = max(at, c.Time)
				if c.Time = at; ofHost {
					continue
				}
				if !yield(c, err) || err != nil {
					return
				}
			}
		}
	}
}

// commandOf decodes a command of the log. Its Time is that of its stamp, or 0. ofHost says that it is about
// objects, and no state machine gets it.
func (n *Node[C, R]) commandOf(at Position, term uint64, entry []byte) (c Command[C], ofHost bool, err error) {
	h, data, err := session.Decode(entry)
	if err != nil {
		return c, false, fmt.Errorf("millrace: entry %v: %w", at, err)
	}
	c = Command[C]{Index: at.Index, Pos: at.Pos, Term: term, Time: h.Stamp, Session: h.Mark.ID, Number: h.Mark.Number}
	if n.machine.objects != nil {
		of, err := object.DecodeCommand(data)
		if err != nil || of.IsOfHost() {
			return c, true, nil // (one that cannot be read is refused by all members)
		}
		c.Objects, data = of.Names, of.Data
	}
	if c.Value, err = decodeSafely(n.machine.codec, data); err != nil {
		return Command[C]{}, false, fmt.Errorf("millrace: the codec cannot decode command %v, of %d bytes: %w", at, len(data), err)
	}
	return c, false, nil
}

// Events returns the events of the host from now on, in order, until ctx ends or the host is closed. A reader
// that does not keep up misses events, and gets an event.EventsDropped in their place.
func (n *Node[C, R]) Events(ctx context.Context) iter.Seq[Event] { return n.host.Events(ctx) }

// Members returns who the members of the group are, as this one has applied it, and how far a plan under way
// is. It never waits.
func (n *Node[C, R]) Members() Members { return n.group.Members() }

// Plan says what changes of the members would do to the group, stage by stage, and changes nothing. It waits
// until nodes that are added have come and the leader has said who is there, for 7 s at most. Its String is a
// page for an operator. The error wraps ErrMembersUnchanged and says what cannot be.
func (n *Node[C, R]) Plan(ctx context.Context, changes ...MemberChange) (*MemberPlan, error) {
	if err := n.rejectReentry("Plan"); err != nil {
		return nil, err
	}
	return n.group.WaitPlan(ctx, changes...)
}

// Execute carries out a plan, and returns nil when all of it is in force on this member. The plan is in the
// log: if ctx ends first it continues, also under another leader, and Execute with the same plan waits for
// it, on any member. CancelPlan ends it.
func (n *Node[C, R]) Execute(ctx context.Context, p *MemberPlan) error {
	if err := n.rejectReentry("Execute"); err != nil {
		return err
	}
	return n.group.Execute(ctx, p)
}

// CancelPlan ends the plan under way, and returns nil when none is under way on this member. Stages that are
// in force stay so.
func (n *Node[C, R]) CancelPlan(ctx context.Context) error {
	if err := n.rejectReentry("CancelPlan"); err != nil {
		return err
	}
	return n.group.CancelPlan(ctx)
}

// NewJoinToken makes a join token, and returns its text: the secret with which a node with an empty directory
// becomes a member, once (Config.JoinToken). Any member may make one. An error that wraps
// ErrMembersUnchanged says why there is none.
func (n *Node[C, R]) NewJoinToken(ctx context.Context, o JoinTokenOptions) (string, error) {
	return n.group.NewJoinToken(ctx, o)
}

// AddMember adds a node as a voter: a learner first, until it has caught up. The node was opened with
// Config.Joins, at addr (host:port). addr is empty if it comes by itself: its Config.Members names this node.
func AddMember(id uint64, addr string) MemberChange { return host.AddMember(id).At(addr) }

// AddLearner adds a node that has everything, serves reads, and does not vote.
func AddLearner(id uint64, addr string) MemberChange { return host.AddLearner(id).At(addr) }

// ReplaceMember gives the id of a member to the directory with which its node comes now, because the old one
// is lost. addr is empty if its address is the old one.
func ReplaceMember(id uint64, addr string) MemberChange { return host.ReplaceMember(id).At(addr) }

// PromoteMember makes a learner a voter, when it has caught up.
func PromoteMember(id uint64) MemberChange { return host.PromoteMember(id) }

// DemoteMember makes a voter a learner.
func DemoteMember(id uint64) MemberChange { return host.DemoteMember(id) }

// RemoveMember removes a member. Its node stops.
func RemoveMember(id uint64) MemberChange { return host.RemoveMember(id) }
