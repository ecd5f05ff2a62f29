package host

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/internal/planted"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// Group is one replicated log on this host: the core, the pipeline that carries out what the core wants, and
// its three workers: the turn and two storage workers. Each turn takes everything from the inbox, steps it,
// and handles one Ready. Only the turn touches the core.
type Group struct {
	id, self        uint64
	maxCommandBytes int
	maxBatchBytes   int   // of commands offered to the core at once: about one append
	maxPendingBytes int64 // bounds the commands proposed and not yet answered

	inbox    inbox
	pending  pendingByTerm
	task     env.Task
	log      *wal.Log
	pipeline pipeline.Pipeline
	append   *appendWorker
	apply    *applyWorker
	logger   *slog.Logger
	events   eventHook

	// Owned by the turn.
	node     *raft.RawNode
	taken    inputs
	outgoing outgoing
	flusher  env.Timer
	armed    bool             // flusher is set
	hard     raftpb.HardState // basic and parallel: as last told by the core,
	stated   stated           // and as written
	entries  []raftpb.Entry   // scratch for proposals
	role     raft.SoftState
	gathering
	forgetting

	status      atomic.Pointer[Status] // as of the last turn that changed it
	roleChanged signal
	refused,
	dropped atomic.Uint64

	endOnce sync.Once
	ended   chan struct{} // closed by a failure or by Close
	failed  chan struct{} // closed by a failure only
	cause   error         // why it ended; set before ended is closed
}

// turn is the group as its scheduler sees it: env.Gatherer. It is a type of its own so that a user's Group
// does not export what only the scheduler may call.
type turn Group

// RunOnce implements env.Worker: one turn.
func (t *turn) RunOnce() (more bool) { return (*Group)(t).runTurn() }

func (g *Group) runTurn() (more bool) {
	if g.Err() != nil {
		g.abandon()
		return false
	}
	defer func() {
		// A broken invariant is our bug. It stops this group, not the process.
		if p := recover(); p != nil {
			broken, ours := p.(*raft.BrokenInvariant)
			if !ours {
				panic(p)
			}
			g.fail(broken)
			more = true
		}
	}()
	left := g.inbox.take(&g.taken)
	g.pending.offer(g.taken.proposals)
	g.onHold(&g.taken)
	g.stepInputs()
	g.goOn()
	if g.taken.flush {
		g.armed = false
		g.outgoing.flushHeld()
	}
	if g.hasReady() {
		g.handle(g.node.Ready())
	}
	g.ask()
	if err := g.node.Err(); err != nil {
		g.fail(err)
	}
	g.dropDeposed()
	g.publish()
	return left || g.hasReady() || g.Err() != nil
}

func (g *Group) hasReady() bool { return !g.asked && g.node.HasReady() }

// dropDeposed answers the clients of an ended leadership as soon as an entry of a later term is committed.
func (g *Group) dropDeposed() {
	if st := g.node.BasicStatus(); !planted.KeepDeposed && g.pending.before(st.Term) {
		if term, ok := g.node.EntryTerm(st.Commit); ok {
			g.pending.dropDeposed(st.Commit, term, g.node.EntryTerm)
		}
	}
}

// handle carries out one Ready, unless the core could not read its own log and has stopped.
func (g *Group) handle(rd raft.Ready) {
	if g.node.Err() != nil {
		return
	}
	if err := g.pipeline.Handle(rd, (*steps)(g)); err != nil {
		g.fail(err)
	}
	if !g.armed && g.outgoing.holding() {
		g.armed = true
		g.flusher.Set(maxHold)
	}
}

// stepInputs steps one turn's inputs into the core. Inputs that move the commit index come before proposals,
// so that the appends for these carry it. Messages of peers come before ticks, so that a follower hears its
// leader before it gives it up. Missed ticks come first, as the core requires.
func (g *Group) stepInputs() {
	missed := missedTicks(g.taken.ticks)
	g.node.TickMissed(missed)
	if g.taken.campaign {
		g.noteRefusal(g.node.Campaign())
	}
	for i := range g.taken.answers {
		g.noteRefusal(g.node.Step(g.taken.answers[i]))
	}
	for _, id := range g.taken.unreachable {
		g.node.ReportUnreachable(id)
	}
	for i := range g.taken.messages {
		g.noteRefusal(g.node.Step(g.taken.messages[i]))
		if g.unheard > 0 {
			g.hears(&g.taken.messages[i], g.node.BasicStatus().Term)
		}
	}
	g.pass(g.taken.ticks - missed)
	g.proposeAll()
}

// pass advances the core's clock by ticks. A member whose disk refuses entries has no use for an election of
// its own: its requests for votes would wait for the disk, and the higher term would only delay other
// members. So for such a member the ticks are quiet (raft.RawNode.TickQuiesced). A leader's clock advances as
// usual.
func (g *Group) pass(ticks int) {
	if !g.append.full.Load() || g.node.BasicStatus().RaftState == raft.StateLeader {
		g.node.TickN(ticks)
		g.unheard = 0
		return
	}
	g.unheard += ticks
	for range ticks {
		g.node.TickQuiesced()
	}
}

// noteRefusal counts and logs an input that the core refused without a change of its state.
func (g *Group) noteRefusal(err error) {
	if err == nil {
		return
	}
	// Powers of two: the first is seen at once, and a flood does not fill the log.
	if n := g.refused.Add(1); n&(n-1) == 0 {
		g.logger.Warn("input refused", "group", g.id, "host", g.self, "cause", err, "refused", n)
	}
}

// proposeAll offers commands to the core in batches of about one append, and registers their clients at their
// indexes.
func (g *Group) proposeAll() {
	for batch := g.pending.next(g.maxBatchBytes); len(batch) > 0; batch = g.pending.next(g.maxBatchBytes) {
		g.propose(batch)
	}
}

func (g *Group) propose(batch []proposal) {
	if err := g.rejectBatch(batch); err != nil {
		g.pending.refuse(batch, err)
		return
	}
	g.entries = g.entries[:0]
	for _, p := range batch {
		g.entries = append(g.entries, raftpb.Entry{Data: p.command})
	}
	err := g.node.Step(raftpb.Message{Type: raftpb.MsgProp, From: g.self, Entries: g.entries})
	clear(g.entries)
	switch {
	case errors.Is(err, raft.ErrProposalDropped):
		g.pending.refuse(batch, ErrOverloaded)
	case err != nil:
		g.pending.refuse(batch, wrap(ErrStopped, err)) // the core has stopped, and lets nothing out any more
	default:
		st := g.node.BasicStatus()
		g.pending.accept(st.Term, st.LastIndex+1-uint64(len(batch)), batch)
	}
}

func (g *Group) rejectBatch(batch []proposal) error {
	var bytes int64
	for _, p := range batch {
		bytes += p.bytes()
	}
	switch st := g.node.BasicStatus(); {
	case st.RaftState != raft.StateLeader:
		return &NotLeaderError{Leader: st.Lead}
	case !g.pending.hasSpace(bytes, g.maxPendingBytes):
		return ErrOverloaded
	}
	return nil
}

// fail stops the group for good. The first cause wins. The event and the log line come last, with no lock
// held; the log line comes after the event, because a log may hang.
func (g *Group) fail(err error) {
	first := false
	g.endOnce.Do(func() {
		g.cause = err
		close(g.ended)
		close(g.failed)
		first = true
	})
	if first {
		g.task.Wake() // its next turn answers the clients that still wait
		g.events.emit(GroupStopped{Group: g.id, Err: err})
		g.logger.Error("group stopped", "group", g.id, "host", g.self, "cause", err)
	}
}

// end stops the group because its host closes.
func (g *Group) end() {
	g.endOnce.Do(func() {
		g.cause = ErrStopped
		close(g.ended)
	})
}

// Err returns why the group has stopped, or nil: the failure, or ErrStopped after Close.
func (g *Group) Err() error {
	select {
	case <-g.ended:
		return g.cause
	default:
		return nil
	}
}

// Failed is closed when the group has stopped by itself; Err then says why. Close does not close it, so a
// supervisor that waits for it learns of failures only.
func (g *Group) Failed() <-chan struct{} { return g.failed }

// Log returns entries [lo, hi) of this host's log, at least one and about maxBytes at most. They are durable
// or about to be; those up to Status().Committed are committed. It is for tools and judges. Errors are those
// of wal.Group.Entries.
func (g *Group) Log(lo, hi, maxBytes uint64) ([]Entry, error) {
	return g.log.Group(g.id).Entries(lo, hi, maxBytes)
}

// abandon answers all waiting clients, those in the inbox and those behind it. It may be called while a turn
// runs.
func (g *Group) abandon() {
	cause := g.Err()
	answerAll(g.inbox.close(), wrap(ErrStopped, cause))
	g.pending.abandon(cause)
}

// steps is the group as its pipeline sees it: pipeline.Steps.
type steps Group

func (s *steps) Save(hs raftpb.HardState, entries []raftpb.Entry, sync bool) error {
	if !raft.IsEmptyHardState(hs) {
		s.hard = hs
	}
	w := wal.Write{Group: s.id, Entries: entries, HardState: s.hard}
	if !sync || !s.stated.setHardState(&w) {
		return nil // at most a commit index, which goes with a later write
	}
	if err := s.log.Append([]wal.Write{w}); err != nil {
		return err
	}
	s.stated.wrote(&w)
	return s.log.Sync()
}

func (s *steps) Send(messages []raftpb.Message)       { s.outgoing.send(messages) }
func (s *steps) Acknowledge(committed []raftpb.Entry) { s.pending.answerCommitted(committed) }

func (s *steps) AcknowledgeEarly(committed []raftpb.Entry) {
	s.pending.answerCommitted(committed)
	if st := s.node.BasicStatus(); st.RaftState == raft.StateLeader {
		s.pending.answerOwn(st.Term, st.Commit)
	}
}

func (s *steps) Advance(rd raft.Ready)        { s.node.Advance(rd) }
func (s *steps) QueueAppend(m raftpb.Message) { s.append.put(m) }

func (s *steps) QueueApply(m raftpb.Message) {
	s.handed = m.Entries[len(m.Entries)-1].Index
	s.apply.put(m)
}

func (s *steps) Apply(committed []raftpb.Entry) error {
	if len(committed) == 0 {
		return nil
	}
	return s.apply.applier.apply(committed)
}
