package raft

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// A checkpoint is the whole state of a core between two inputs, as bytes. A node that is made of it answers
// every further input as the first node does, so a recording of inputs may begin in the middle of a node's
// life (host/flight). It is no format for storage: a node restarts from what is durable, and a checkpoint is
// read by the version that wrote it.
//
// One walk over the state both writes and reads (checkpointcodec.go), so that the two cannot disagree.
// TestCheckpointHoldsEveryField changes each field of the core and demands that the checkpoint changes.
// Rejected: to encode the structs by reflection. The core's fields are private, and most of its memory is
// arrays with spare room, which is no state.
//
// Not state: the arrays in which messages and entries are stored, beyond what they hold; the positions of a
// leader's voters, which follow from its members; settings, which come from Config.

// EntryCodec writes entries into a checkpoint and reads them back. It may leave out the data of entries of
// types into which the core does not look (EntryType.IsOpaque), and return other data of equal length.
type EntryCodec interface {
	// AppendEntries appends the encoding of entries to b. It says how many there are and where it ends.
	AppendEntries(b []byte, entries []raftpb.Entry) []byte
	// ReadEntries decodes entries from the front of b, and returns the rest of b.
	ReadEntries(b []byte) (entries []raftpb.Entry, rest []byte, err error)
}

const checkpointVersion = 2

// ErrBusy is the error of AppendCheckpoint while the node has something to hand out.
var ErrBusy = errors.New("raft: a checkpoint needs a node that has handed out its messages")

// AppendCheckpoint appends the state of the node to b, for NewFromCheckpoint. It needs a node that has handed
// out all messages (right after Ready or, in synchronous mode, after Advance), and otherwise returns ErrBusy.
// A node that has stopped returns Err. Both leave b as it was.
func (rn *RawNode) AppendCheckpoint(b []byte, entries EntryCodec) ([]byte, error) {
	out := &rn.raft.out
	switch {
	case rn.Err() != nil:
		return b, rn.Err()
	case len(out.now.waiting) > 0 || out.answersWrite() || len(out.reads) > 0 || len(out.droppedReads) > 0 || rn.onAdvance.due:
		return b, ErrBusy
	}
	c := checkpoint{b: append(b, checkpointVersion), entries: entries}
	c.node(rn)
	return c.b, nil
}

// NewFromCheckpoint makes the node that b, of AppendCheckpoint, describes. c must be the Config of that node,
// except Storage and Logger. Storage is not asked for anything. The error says where b is damaged. Damage
// that gives other numbers is not found: a node of altered bytes may break any invariant.
func NewFromCheckpoint(c *Config, b []byte, entries EntryCodec) (*RawNode, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if len(b) == 0 || b[0] != checkpointVersion {
		return nil, fmt.Errorf("raft: the checkpoint is of another version than %d, the only one that this program reads", checkpointVersion)
	}
	readers, _ := c.Storage.(ReaderStorage)
	rn := &RawNode{async: c.AsyncStorageWrites, raft: &raft{id: c.ID, cfg: c.limits(), events: c.Logger}}
	rn.raft.log = raftLog{
		storage:       c.Storage,
		readers:       readers,
		apply:         applying{maxBytes: c.maxApplyingBytes()},
		applyUnstable: c.ApplyUnstable,
		applyRanges:   c.ApplyRanges,
		overheadBytes: c.EntryOverheadBytes,
	}
	r := checkpoint{b: b[1:], reads: true, entries: entries}
	r.node(rn)
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes follow its end", len(r.b))
	}
	if r.err != nil {
		return nil, fmt.Errorf("raft: the checkpoint is damaged: %w", r.err)
	}
	return rn, nil
}

func (c *checkpoint) node(rn *RawNode) {
	r := rn.raft
	c.hardState(&rn.prevHard)
	c.role(&rn.prevSoft.RaftState)
	c.uints(&rn.prevSoft.Lead, &r.term, &r.vote, &r.lead)
	c.role(&r.role)
	c.config(&r.conf)
	c.superseded(r)
	c.log(&r.log)
	c.ints(&r.electionElapsed, &r.electionTimeout, &r.promisedTicks)
	c.bools(&r.promised)
	c.uints(&r.start.Term, &r.start.Index, &r.savedCommit, &r.random.state, &r.far.from, &r.far.term, &r.window.base, &r.lastAtTick)
	c.ints(&r.far.ticks, &r.far.lasts, &r.window.ticks)
	a := &r.authority
	c.bools(&a.without, &a.lacksTerms, &a.regains)
	c.uints(&a.life, &a.epoch)
	c.acknowledgement(&r.out.ack)
	c.acknowledgement(&r.out.ackHandedOut)
	c.candidate(r)
	c.leader(r)
}

func (c *checkpoint) hardState(h *raftpb.HardState) { c.uints(&h.Term, &h.Vote, &h.Commit) }

func (c *checkpoint) role(s *StateType) {
	role := uint64(*s)
	c.uints(&role)
	if role > uint64(StatePreCandidate) {
		c.fail("its role is %d", role)
	}
	*s = StateType(role)
}

func (c *checkpoint) acknowledgement(a *acknowledgement) {
	c.uints(&a.term, &a.to, &a.epoch, &a.index)
	c.bools(&a.without)
}

func (c *checkpoint) config(config *tracker.Config) {
	if !c.reads {
		cs := config.ConfState()
		text := cs.Append(nil)
		c.bytes(&text)
		return
	}
	var text []byte
	var cs raftpb.ConfState
	c.bytes(&text)
	if err := cs.Unmarshal(text); err != nil {
		c.fail("its configuration: %w", err)
	}
	*config = tracker.MakeConfig(cs)
}

func (c *checkpoint) superseded(r *raft) {
	has := r.superseded != nil
	if c.bools(&has); has && c.reads {
		r.superseded = new(tracker.Config)
	}
	if has {
		c.config(r.superseded)
	}
}

func (c *checkpoint) log(l *raftLog) {
	u := &l.unstable
	c.uints(&l.first, &l.committed, &l.applying, &l.applied, &l.beforeRestore, &u.offset, &u.inProgress, &u.ackTerm, &u.beforeTerm, &u.keepSizes)
	c.tail(&u.array.live)
	if first := u.offset; c.reads && (u.inProgress < first || u.inProgress > u.end()) {
		c.fail("entries [%d,%d) are in memory, and written through %d", first, u.end(), u.inProgress)
	}
	c.snapshot(u)
	c.sizes(&u.sizes)
	if s := &u.sizes; c.reads && c.err == nil && (s.first > s.end() || s.end() != u.end()) {
		c.fail("the sizes of [%d,%d) are known, and the log ends at %d", s.first, s.end(), u.end())
	}
	c.uints(&l.apply.bytes)
	c.bools(&l.apply.paused, &l.apply.reading)
	walkQueue(c, &l.apply.batches, func(b *applyBatch) { c.uints(&b.through, &b.bytes, &b.own) })
	walk(c, &l.changes.indexes, func(i *uint64) { c.uints(i) })
}

// tail walks over the entries of the unstable log.
func (c *checkpoint) tail(live *[]raftpb.Entry) {
	switch {
	case c.err != nil:
	case !c.reads:
		c.b = c.entries.AppendEntries(c.b, *live)
	default:
		entries, rest, err := c.entries.ReadEntries(c.b)
		if err != nil {
			c.fail("its entries: %w", err)
		}
		*live, c.b = entries, rest
	}
}

func (c *checkpoint) snapshot(u *unstable) {
	has := u.snapshot != nil
	if c.bools(&has, &u.snapshotInProgress); !has {
		return
	}
	var text []byte
	if !c.reads {
		text = u.snapshot.Append(nil)
	}
	if c.bytes(&text); c.reads {
		u.snapshot = new(raftpb.Snapshot)
		if err := u.snapshot.Unmarshal(text); err != nil {
			c.fail("its snapshot: %w", err)
		}
	}
}

// sizes walks over the running totals by their differences, which are small.
func (c *checkpoint) sizes(s *sizes) {
	c.uints(&s.first, &s.before.encoded, &s.before.payload)
	last := s.before
	walkQueue(c, &s.totals, func(total *size) {
		added := total.minus(last)
		c.uints(&added.encoded, &added.payload)
		if c.reads {
			*total = size{last.encoded + added.encoded, last.payload + added.payload}
		}
		last = *total
	})
}

func (c *checkpoint) candidate(r *raft) {
	has := r.candidate != nil
	if c.bools(&has); has && c.reads {
		r.candidate = newCandidate()
	}
	if has {
		walkMap(c, &r.candidate.votes, func(granted *bool) { c.bools(granted) })
	}
}

func (c *checkpoint) leader(r *raft) {
	has := r.leader != nil
	if c.bools(&has); has && c.reads {
		r.leader = &leader{}
	}
	if c.reads && c.err == nil && (has != (r.role == StateLeader) || (r.candidate != nil) != (r.role == StateCandidate || r.role == StatePreCandidate)) {
		c.fail("it has not the state of its role, %v", r.role)
	}
	if !has {
		return
	}
	l := r.leader
	walk(c, (*[]tracker.Member)(&l.members), func(m *tracker.Member) {
		c.uints(&m.ID)
		c.progress(&m.Progress, r.cfg)
	})
	c.uints(&l.termStart, &l.committedBy, &l.pendingConf, &l.uncommittedBytes, &l.transfer.target, &l.epochs)
	c.ints(&l.heartbeatElapsed, &l.transfer.elapsed, &l.ticks, &l.leaseUntil)
	c.bools(&l.pulsed, &l.orderedElection)
	c.readsOf(&l.reads)
	walkPointers(c, &l.returning, func(b *returning) {
		c.uints(&b.epoch, &b.life, &b.position, &b.target)
		c.bools(&b.lacksTerms, &b.authority, &b.asked)
	})
	if c.reads {
		l.voters = tracker.MakeJointVoters(r.conf, l.members)
	}
}

func (c *checkpoint) progress(p *tracker.Progress, cfg limits) {
	state := uint64(p.State)
	c.uints(&p.Match, &p.Next, &state, &p.PendingSnapshot)
	if state > uint64(tracker.StateSnapshot) {
		c.fail("the state of a member is %d", state)
	}
	p.State = tracker.StateType(state)
	c.bools(&p.RecentActive, &p.MsgAppFlowPaused, &p.EntriesPending, &p.IsLearner, &p.WithoutAuthority)
	var h tracker.Hidden
	if !c.reads {
		h = p.Hidden()
	}
	c.uints(&h.SentCommit)
	c.bools(&h.Asked)
	c.ints(&h.AskedAt)
	walk(c, &h.Window, func(f *tracker.InFlight) { c.uints(&f.Index, &f.Bytes) })
	if c.reads && !p.SetHidden(h, cfg.maxInflightMsgs, cfg.maxInflightBytes) {
		c.fail("%d appends are under way to a member, and %d may be", len(h.Window), cfg.maxInflightMsgs)
	}
}

func (c *checkpoint) readsOf(s *reads) {
	request := func(q *readRequest) {
		c.uints(&q.from)
		c.bytes(&q.context)
	}
	walk(c, &s.parked, request)
	walk(c, &s.waiting, func(w *waitingRead) {
		request(&w.readRequest)
		c.uints(&w.index)
		c.ints(&w.askedAt)
	})
	c.uints(&s.released)
	walkMap(c, &s.echoed, func(position *uint64) { c.uints(position) })
}
