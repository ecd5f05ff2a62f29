package host

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/containment"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Group is one replicated log on this host: the core, the pipeline that carries out what the core wants, and
// its queues to the lanes of the host. Its shard runs its turns. Each turn takes what is in the inbox, steps
// it, and handles one Ready. Only the turn touches the core.
type Group struct {
	member // who it is

	seat       sched.Seat      // its place in its shard
	inbox      inbox           // what has come for its next turn
	core       groupCore       // the core, owned by the turn
	work       groupWork       // what its turn works on
	proposals  groupProposals  // clients, from the door to the answer
	reads      groupReads      // reads and the lease
	writes     groupWrites     // to the log
	machine    groupMachine    // to the state machine
	members    groupMembers    // who counts
	snapshots  groupSnapshots  // in place of entries
	leadership groupLeadership // who should lead
	pulse      groupPulse      // heartbeats while it is quiet
	life       groupLife       // whether it lives, and what is seen of it
}

// member says which member of which group this is. It does not change.
type member struct {
	id, self uint64
	host     *Host
	config   GroupConfig
}

// ID returns the group's id.
func (g *Group) ID() uint64 { return g.id }

// proposeAll offers commands to the core in batches of about one append, and registers their clients at their
// indexes.
func (g *Group) proposeAll() {
	for batch := g.proposals.Next(); len(batch) > 0; {
		batch = g.propose(batch)
	}
}

// propose offers a batch, and returns the next one.
func (g *Group) propose(batch []proposals.Proposal) (next []proposals.Proposal) {
	if err := g.rejectBatch(batch); err != nil {
		return g.proposals.Refuse(batch, err)
	}
	g.work.entries = g.work.entries[:0]
	bytes := 0
	for i, p := range batch {
		data := p.Command
		if g.proposals.hasCommands {
			data = p.Entry(g.stamp(i == 0))
		}
		g.work.entries = append(g.work.entries, raftpb.Entry{Data: data})
		bytes += len(data)
	}
	first, err := g.proposeEntries(g.work.entries)
	clear(g.work.entries)
	switch {
	case errors.Is(err, raft.ErrProposalDropped):
		if g.core.node.BasicStatus().LeadTransferee == raft.None {
			g.noteOverload(len(batch))
		}
		refusal := error(outcome.ErrOverloaded)
		if g.proposals.hasCommands {
			g.proposals.Pause((*callTurn)(g).View(), 1) // those that are tried again would be refused again at once
			refusal = g.overloaded()
		}
		return g.proposals.Refuse(batch, refusal)
	case err != nil:
		return g.proposals.Refuse(batch, wrap(outcome.ErrStopped, err)) // the core has stopped, and lets nothing out any more
	default:
		g.life.counts.batches.Add(1)
		g.life.counts.commands.Add(uint64(len(batch)))
		g.life.counts.bytes.Add(uint64(bytes))
		return g.proposals.Accept(g.core.node.BasicStatus().Term, first, batch)
	}
}

func (g *Group) rejectBatch(batch []proposals.Proposal) error {
	switch st := g.core.node.BasicStatus(); {
	case g.Halted() != nil:
		return g.Halted()
	case st.RaftState != raft.StateLeader && st.Lead == raft.None && g.members.founding.bound.Load() == nil:
		return g.notFounded()
	case st.RaftState != raft.StateLeader:
		return g.host.notLeader(st.Lead)
	case !g.takesCommands():
		return g.notFounded()
	case !g.proposals.hasCommands && !g.proposals.HasSpace(proposals.Bytes(batch)): // calls are counted already
		g.noteOverload(len(batch))
		return outcome.ErrOverloaded
	}
	return nil
}

// fail stops the group for good, and no other group. The first cause wins. The event and the log line come
// last, with no lock held; the log line comes after the event, because a log may hang.
func (g *Group) fail(err error) {
	first := false
	g.life.endOnce.Do(func() {
		g.life.cause = err
		g.life.roleTimes.stopped.Store(g.host.clock.livedAtBeat()) // Explain may look as soon as Err is set
		g.life.hasEnded.Store(true)
		close(g.life.ended)
		close(g.life.failed)
		first = true
	})
	if first {
		g.leavePulses()
		g.snapshots.Stop()
		g.wake() // its next turn answers the clients that still wait
		g.host.reports.events.emit(event.GroupStopped{Group: g.id, Err: err})
		g.reportFailure(err)
		about := []any{"group", g.id, "host", g.self, "cause", err}
		if p := (*containment.Panic)(nil); errors.As(err, &p) {
			about = append(about, "stack", string(p.Stack))
		}
		g.host.env.logger.Error("group stopped", about...)
	}
}

// end stops the group because it is closed or removed.
func (g *Group) end(cause error) {
	g.life.endOnce.Do(func() {
		g.life.cause = cause
		g.life.roleTimes.stopped.Store(g.host.clock.livedAtBeat())
		g.life.hasEnded.Store(true)
		close(g.life.ended)
	})
	g.snapshots.Stop()
	g.leavePulses()
}

// leavePulses makes no pulse vouch for a group that has stopped, and drops it from those that lead here.
func (g *Group) leavePulses() {
	g.host.network.pulses.Drop((*pulseLeader)(g))
	g.host.changes.placer.drop(g)
	g.uncover()
}

// Err returns why the group has stopped, or nil: the failure, or ErrStopped after Close.
func (g *Group) Err() error {
	if g.life.hasEnded.Load() {
		return g.life.cause
	}
	return nil
}

// Failed is closed when the group has stopped by itself; Err then says why. Close does not close it, so a
// supervisor that waits for it learns of failures only.
func (g *Group) Failed() <-chan struct{} { return g.life.failed }

// Log returns entries [lo, hi) of this host's log, at least one and about maxBytes at most. They are durable
// or about to be; those up to Status().Committed are committed. It is for tools and judges. Errors are those
// of wal.Group.Entries.
func (g *Group) Log(lo, hi, maxBytes uint64) ([]statemachine.Entry, error) {
	return g.writes.storage.log.Entries(lo, hi, maxBytes)
}

// abandon answers all waiting clients, those in the inbox and those behind it. It may be called while a turn
// runs.
func (g *Group) abandon() {
	cause := g.Err()
	left := g.inbox.close()
	g.proposals.AnswerAll(left, wrap(outcome.ErrStopped, cause))
	g.proposals.Abandon(cause)
	g.reads.queue.Close(wrap(outcome.ErrStopped, cause))
	g.proposals.spaces.close(cause)
}

// now reads the clock of the host.
func (g *Group) now() time.Duration { return g.host.env.env.Clock.Now() }

// groupLife says whether a group lives, and what others see of it.
type groupLife struct {
	endOnce  sync.Once
	ended    chan struct{} // closed by a failure, by Close and by a removal
	hasEnded atomic.Bool   // the same, for turns, which ask often
	failed   chan struct{} // closed by a failure only
	cause    error         // why it ended; set before ended is closed
	leaving  leaving

	status      published // as of the last turn that changed it
	roleChanged signal
	roleTimes   roleTimes
	waiting     waitingLine // owned by the turn
	views       memberWatches
	leaderViews leaderViews
	counts      groupCounts
}

func newLife() groupLife {
	return groupLife{ended: make(chan struct{}), failed: make(chan struct{}), leaving: leaving{gone: make(chan struct{})}}
}
