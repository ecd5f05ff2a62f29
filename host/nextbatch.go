package host

import (
	"time"

	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/raft"
)

// dequeueCommands takes the commands of the next batch, if it begins now. A member that does not lead, or not
// yet, takes them at once: it forwards or refuses them.
func (g *Group) dequeueCommands(crowded bool) (left bool) {
	b, most := &g.proposals.batching, int64(maxTurnBytes)
	if crowded {
		most = maxCrowdedTurnBytes
	}
	callBytes := g.callBytes(most)
	if !b.IsIdle() {
		b.Measure(g.core.node.BasicStatus(), g.turnNow)
	}
	if g.inbox.due.Load() || b.MustAsk(g.turnNow) {
		left = g.askForCommands(most, callBytes)
	}
	if g.proposals.hasCommands {
		g.proposals.drainRate.Add(proposals.Bytes(g.work.taken.proposals))
		g.grantSpace()
	}
	if len(g.work.taken.proposals) > 0 {
		g.pulse.idle = false
	}
	g.proposals.Offer(g.work.taken.proposals, g.work.taken.since)
	return left
}

// isLate reports, at the end of a turn, whether commands are held and the rule must be asked in another one.
func (g *Group) isLate() bool {
	b := &g.proposals.batching
	return b.Holds() && (g.inbox.due.Load() || b.MustAsk(g.turnNow))
}

// askForCommands asks the rule about the commands that wait, and takes them if they begin a batch.
func (g *Group) askForCommands(most, callBytes int64) (left bool) {
	b, now, st := &g.proposals.batching, g.turnNow(), g.core.node.BasicStatus()
	leads := st.RaftState == raft.StateLeader && st.LeadTransferee == raft.None && g.members.founding.TakesCommands() && g.Halted() == nil
	if leads && !g.inbox.hasProposals() {
		held, v := b.Holds(), b.Ask(batches.State{Now: now})
		if !held && !b.Holds() {
			return false // as before: the next command wakes the group
		}
		if v.Wake == 0 {
			b.Leave()
		}
		left = g.inbox.setVerdict(v)
		g.expect(v, now)
		return left
	}
	v, left := g.inbox.dequeueCommands(&g.work.taken, most, callBytes, now, func(s batches.State) batches.Verdict {
		if !leads {
			return b.Pass()
		}
		return b.Ask(s)
	})
	if v.Wake == 0 {
		b.Leave()
	}
	g.expect(v, now)
	return left
}

// expect sets the alarm that a verdict asks for.
func (g *Group) expect(v batches.Verdict, now time.Duration) {
	if v.Again > 0 {
		g.proposals.alarm.Set(v.Again, now)
	} else {
		g.proposals.alarm.Clear()
	}
}
