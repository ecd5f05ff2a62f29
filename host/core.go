package host

import (
	"errors"

	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// passed returns the ticks that have passed for a group since its last turn, and how many of them count as
// missed. Those are what the process has missed, and what this turn is late, because the shard was busy. A
// group that is not due sleeps, and its ticks are not missed.
func (g *Group) passed(at sched.Time) (ticks, missed int) {
	passed := at.Ticks - g.core.at.Ticks
	late := int64(0)
	if g.core.nextDue < never {
		late = missedTicks(at.Ticks - g.core.nextDue)
	}
	lost := min(max(at.Missed-g.core.at.Missed, late), passed)
	g.core.at = at
	return int(passed), int(lost)
}

// dueIn returns the tick that is a number of ticks after another, as raft.RawNode.TicksToEvent counts them.
func dueIn(from int64, ticks int) int64 {
	if ticks == raft.NoEvent {
		return never
	}
	return from + int64(ticks)
}

// stretchPromise makes a promise that the core has just made as long as it must be. The core counts from
// the time of its clock. That is the latest beat of the host's clock, less the ticks that the turn has not
// told it yet.
func (g *Group) stretchPromise(untold int) {
	if g.config.Leases {
		g.core.node.StretchPromise(int(g.host.clock.metronome.ticks()-g.core.at.Ticks) + untold + 1)
	}
}

// pass advances the core's clock by ticks. A member whose disk refuses entries has no use for an election
// of its own. Its requests for votes would wait for the disk, and the higher term would only delay other
// members. So for such a member the ticks are quiet (raft.RawNode.TickQuiesced). A leader's clock advances
// as usual.
func (g *Group) pass(ticks int) {
	if !g.countsUnheard() {
		if g.writes.discarding.unheard = 0; ticks > 0 {
			g.core.node.TickN(ticks)
		}
		return
	}
	g.writes.discarding.unheard += ticks
	g.want(dutyRefused)
	for range ticks {
		g.core.node.TickQuiesced()
	}
}

// countsUnheard reports whether the group's disk refuses entries and the group does not lead.
func (g *Group) countsUnheard() bool {
	return g.writes.append.Full.Load() && g.core.node.BasicStatus().RaftState != raft.StateLeader
}

func (g *Group) hasReady() bool { return !g.writes.discarding.waitsForLane && g.core.node.HasReady() }

// shrink releases the scratch memory of a group that has begun to be idle: most groups of a process may be.
func (g *Group) shrink() {
	g.work.taken, g.work.entries, g.work.joiner = inputs{}, nil, raftpb.Joiner{}
	g.work.outgoing.Shrink()
	g.inbox.shrink()
	g.proposals.batching.Shrink()
	g.proposals.Shrink()
}

// proposeHost proposes an entry of the host. One that the core drops is proposed again by a later turn.
func (g *Group) proposeHost(data []byte) {
	err := g.core.node.Step(raftpb.Message{Type: raftpb.MsgProp, From: g.self, Entries: []raftpb.Entry{{Type: raftpb.EntryHost, Data: data}}})
	if err != nil && !errors.Is(err, raft.ErrProposalDropped) {
		g.countRefusal(err)
	}
}
