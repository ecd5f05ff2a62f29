package raft

import (
	"cmp"
	"fmt"
	"math"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// StateType is a node's role.
type StateType uint64

// The roles (thesis §3.3). A pre-candidate asks whether it could win before it becomes a candidate (§9.6).
const (
	StateFollower StateType = iota
	StateCandidate
	StateLeader
	StatePreCandidate
)

func (s StateType) String() string {
	switch s {
	case StateFollower:
		return "StateFollower"
	case StateCandidate:
		return "StateCandidate"
	case StateLeader:
		return "StateLeader"
	case StatePreCandidate:
		return "StatePreCandidate"
	}
	return fmt.Sprintf("StateType(%d)", uint64(s))
}

// raft is the protocol state of one node, grouped by owner. The state that only a candidate or only a leader
// has is in a struct that is dropped when the role is left.
type raft struct {
	id  uint64
	cfg limits

	// For every role. Term and vote must be durable before any message about them leaves; see outbox.go.
	term uint64
	vote uint64
	lead uint64
	log  raftLog
	conf tracker.Config
	// superseded is the configuration that followed the entries handed out for apply when the pending
	// snapshot arrived; see membership.go. nil: no snapshot is pending.
	superseded *tracker.Config

	role      StateType // assigned by becomeX only
	candidate *candidate
	leader    *leader

	// electionElapsed counts ticks: since the last message of a leader (follower), since the election began
	// (candidate), or since the last check of the quorum (leader). A new electionTimeout is drawn with every
	// role.
	electionElapsed int
	electionTimeout int
	promisedTicks   int            // ticks until this node may take part in elections again; see lease.go
	promised        bool           // a promise was made since the last StretchPromise
	start           raftpb.EntryID // the term and the end of the log that this run found on disk
	savedCommit     uint64         // the commit index that this run found, in the hard state or by a snapshot
	random          splitmix
	authority       authority
	window          termWindow // see farterm.go, also for far
	far             farClaim
	lastAtTick      uint64 // the end of the log at the last tick; see shrink

	// out holds the messages that leave with the next Ready.
	out outbox

	events Logger // nil: no events are reported
}

// limits are the settings, which never change.
type limits struct {
	electionTicks, heartbeatTicks int
	maxMessageBytes               uint64
	maxUncommittedBytes           uint64
	maxInflightMsgs               int
	maxInflightBytes              uint64
	checkQuorum, preVote          bool
	answerTicks                   int // after which a member that owes the answer to an append counts as silent
	forwardProposals              bool
	leaseReads, promises          bool
	validateConfChanges           bool
	stepDownOnRemoval             bool
}

// limits returns the settings that a node keeps.
func (c *Config) limits() limits {
	answerTicks := math.MaxInt
	if c.CheckAppends {
		answerTicks = cmp.Or(c.AnswerTicks, c.ElectionTick)
	}
	return limits{
		electionTicks:       c.ElectionTick,
		heartbeatTicks:      c.HeartbeatTick,
		maxMessageBytes:     c.MaxSizePerMsg,
		maxUncommittedBytes: orUnlimited(c.MaxUncommittedEntriesSize),
		maxInflightMsgs:     c.MaxInflightMsgs,
		maxInflightBytes:    c.MaxInflightBytes,
		checkQuorum:         c.CheckQuorum,
		preVote:             c.PreVote,
		answerTicks:         answerTicks,
		forwardProposals:    !c.DisableProposalForwarding,
		leaseReads:          c.ReadOnlyOption == ReadOnlyLeaseBased,
		promises:            c.ReadOnlyOption != ReadOnlySafe,
		validateConfChanges: !c.DisableConfChangeValidation,
		stepDownOnRemoval:   c.StepDownOnRemoval,
	}
}

// maxApplyingBytes returns the bound on what is handed out for apply and not yet applied.
func (c *Config) maxApplyingBytes() uint64 {
	return max(cmp.Or(c.MaxCommittedSizePerReady, c.MaxSizePerMsg), 1)
}

func newRaft(c *Config) (*raft, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	hs, cs, err := c.Storage.InitialState()
	if err != nil {
		return nil, fmt.Errorf("raft: read initial state from storage: %w", err)
	}
	log, err := newLog(c.Storage, c.maxApplyingBytes(), c.EntryOverheadBytes)
	if err != nil {
		return nil, err
	}
	log.applyUnstable, log.applyRanges = c.ApplyUnstable, c.ApplyRanges
	r := &raft{
		id:        c.ID,
		cfg:       c.limits(),
		log:       log,
		random:    splitmix{state: c.Seed ^ c.ID*0x9e3779b97f4a7c15},
		events:    c.Logger,
		authority: authority{without: c.WithoutAuthority, lacksTerms: c.LacksTerms, life: c.Life},
	}
	if r.conf, err = r.restored(cs); err != nil {
		return nil, fmt.Errorf("raft: the stored configuration (%s) is invalid: %w; check the ConfState that Storage.InitialState returns", DescribeConfState(cs), err)
	}
	if err := r.restart(hs, c.Applied); err != nil {
		return nil, err
	}
	r.becomeFollower(r.term, None)
	return r, nil
}

// restart takes over what storage and the state machine have kept from the last run.
func (r *raft) restart(hs raftpb.HardState, applied uint64) error {
	l := &r.log
	if hs.Commit > l.lastIndex() {
		return fmt.Errorf("raft: stored commit index %d is beyond the stored log, which ends at %d: committed entries are missing", hs.Commit, l.lastIndex())
	}
	l.committed = max(l.committed, hs.Commit)
	r.savedCommit = l.committed
	if applied > l.lastIndex() {
		return fmt.Errorf("raft: Config.Applied is %d, but the stored log ends at %d: the state machine is ahead of its log", applied, l.lastIndex())
	}
	if applied > 0 && applied+1 < l.first {
		return fmt.Errorf("raft: Config.Applied is %d, but the stored log begins at %d: the state machine lacks entries that are no longer stored; restore it from a snapshot through %d or later", applied, l.first, l.first-1)
	}
	if applied > 0 {
		// Applied entries were committed, whether or not the commit index had reached the disk.
		l.committed = max(l.committed, applied)
		l.applying, l.applied = max(l.applying, applied), max(l.applied, applied)
	}
	if err := l.findChanges(l.applied); err != nil {
		return err
	}
	r.term, r.vote = hs.Term, hs.Vote
	r.start = raftpb.EntryID{Term: hs.Term, Index: l.durable()}
	if hs.Term > 0 {
		r.promise() // the last run may have made a promise
	}
	last := l.lastEntryID()
	// A founder's storage may hold a snapshot of term 1 and nothing else: it is from before the founder's
	// first term.
	founded := hs == raftpb.HardState{} && last.Index+1 == l.first && last.Term == 1
	switch {
	case l.failure != nil:
		return l.failure
	case last.Term > r.term && !founded && hs == raftpb.HardState{}:
		return fmt.Errorf("raft: the stored log ends in term %d, but no hard state is stored: it was lost, or was not written with a restored snapshot; if this node cannot have voted in term %d or later, store a hard state of that term", last.Term, last.Term)
	case last.Term > r.term && !founded:
		return fmt.Errorf("raft: the stored log ends in term %d, but the stored term is %d: the hard state is older than the log", last.Term, r.term)
	}
	return nil
}

// promotable reports whether this node may lead: it is a voter with authority, and no pending snapshot will
// replace its log.
func (r *raft) promotable() bool {
	return r.conf.IsVoter(r.id) && r.log.unstable.snapshot == nil && !r.authority.without
}

func (r *raft) hardState() raftpb.HardState {
	return raftpb.HardState{Term: r.term, Vote: r.vote, Commit: r.log.committed}
}

func (r *raft) softState() SoftState { return SoftState{Lead: r.lead, RaftState: r.role} }

// splitmix is a small seeded random source (Steele, Lea, Flood 2014): election timeouts need to spread, not
// to be secret.
type splitmix struct{ state uint64 }

func (s *splitmix) intn(n int) int {
	s.state += 0x9e3779b97f4a7c15
	z := s.state
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return int((z ^ (z >> 31)) % uint64(n))
}
