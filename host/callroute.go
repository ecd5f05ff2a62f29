package host

import (
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/raft"
)

// How calls of a group go on: which commands its turns take.

// proposalSettings are the settings of a queue of plain entries.
func (g *Group) proposalSettings() proposals.Settings {
	return proposals.Settings{Budget: &g.host.memory.proposed, MaxBytes: g.config.MaxAppendBytes}
}

// callSettings are the settings of a queue of calls.
func (g *Group) callSettings(o session.Options) proposals.Settings {
	s := g.proposalSettings()
	s.Clock, s.Callers, s.Wake = g.host.env.env.Clock.Now, (*callers)(g), g.wake
	s.Times = g.host.config.StageTimes
	s.DrawSession = func() session.ID { return g.drawSession(g.machine.apply.Time.Last()) }
	s.Freed = func() {
		if g.inbox.hasProposals() {
			g.wake()
		}
	}
	s.Group, s.MaxNumbers, s.FrameBytes = g.id, min(proposals.MaxNumbers, o.MaxNumbers()), g.host.memory.waiting.Max/4
	if g.machine.objects != nil {
		s.Alone = isAboutObjects
	}
	s.ElectionTicks, s.HeartbeatTicks = int64(g.host.config.electionTicks()), ticksPerHeartbeat
	return s
}

// callers are the owners of calls, which are told in the containment of user code: proposals.Callers.
type callers Group

func (c *callers) Committed(o outcome.Caller, r outcome.Receipt) { (*Group)(c).tellCommitted(o, r) }
func (c *callers) Failed(o outcome.Caller, err error)            { (*Group)(c).tellFailed(o, err) }
func (c *callers) Duplicate(o outcome.Caller, r outcome.Receipt, result []byte, kept bool) {
	(*Group)(c).tellDuplicate(o, r, result, kept)
}

// callBytes returns how many bytes of commands a turn may take out of the inbox, less than 0 for none at all.
func (g *Group) callBytes(most int64) int64 {
	if !g.proposals.hasCommands {
		return most
	}
	if !g.proposals.CanGo((*callTurn)(g).View()) {
		if g.inbox.hasProposals() {
			g.sweepInbox()
		}
		return -1
	}
	return min(most, g.proposals.Space())
}

// sweepInbox ends the calls in the inbox that do not wait for a leader, or for nothing any more.
func (g *Group) sweepInbox() {
	st := g.core.node.BasicStatus()
	gone := g.inbox.dequeueIf(func(p proposals.Proposal) bool {
		return !p.Waits() || p.IsHere() && st.RaftState != raft.StateLeader
	})
	if len(gone) > 0 {
		g.proposals.AnswerAll(gone, g.host.notLeader(st.Lead))
	}
}

// mustRoute reports whether calls can go on in another turn.
func (g *Group) mustRoute() bool {
	if !g.proposals.hasCommands || !g.proposals.CanGo((*callTurn)(g).View()) {
		return false
	}
	bytes, waits := g.inbox.firstProposal()
	return g.proposals.HasFresh() || waits && bytes <= g.proposals.Space()
}

// callsDue returns the tick at which calls need a turn if nothing else happens.
func (g *Group) callsDue() int64 {
	if !g.proposals.hasCommands {
		return never
	}
	due := g.proposals.CallsDue(g.core.at.Ticks)
	if g.inbox.hasProposals() || g.proposals.spaceWaiters.Waiting() > 0 {
		due = min(due, g.core.at.Ticks+1)
	}
	return due
}

// drawSession draws a session with that birth.
func (g *Group) drawSession(birth time.Duration) session.ID {
	id := session.ID{Birth: birth}
	if _, err := io.ReadFull(g.host.secrets(), id.Client[:]); err != nil {
		panic(fmt.Sprintf("millrace: no random bytes for the id of a session: %v", err)) // crypto/rand never fails
	}
	return id
}
