package host

import (
	"errors"
	"time"

	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/crcjoin"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

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
	first, err := g.proposeEntries(g.work.entries, len(g.work.entries))
	clear(g.work.entries)
	switch {
	case errors.Is(err, raft.ErrProposalDropped):
		if g.core.node.BasicStatus().LeadTransferee == raft.None {
			g.countOverload(len(batch))
		}
		refusal := error(outcome.ErrOverloaded)
		if g.proposals.hasCommands {
			g.proposals.Pause((*callTurn)(g).View(), 1) // those that are tried again would be refused again at once
			refusal = g.overloaded()
		}
		return g.proposals.Refuse(batch, refusal)
	case err != nil:
		return g.proposals.Refuse(batch, outcome.WithCause(outcome.ErrStopped, err)) // the core has stopped, and lets nothing out any more
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
	case st.RaftState != raft.StateLeader && st.Lead == raft.None && g.members.founding.Bound() == nil:
		return g.notFounded()
	case st.RaftState != raft.StateLeader:
		return g.host.notLeader(st.Lead)
	case !g.members.founding.TakesCommands():
		return g.notFounded()
	case !g.proposals.hasCommands && !g.proposals.HasSpace(proposals.Bytes(batch)): // calls are counted already
		g.countOverload(len(batch))
		return outcome.ErrOverloaded
	}
	return nil
}

// proposeEntries proposes entries, all or none, and returns the index of the first. own is how many are
// commands from the inbox. The data of each is summed here, and not again on this host (decision 0037).
func (g *Group) proposeEntries(entries []raftpb.Entry, own int) (first uint64, err error) {
	for i := range entries {
		entries[i].Sum = crcjoin.Sum(entries[i].Data)
	}
	if err := g.core.node.Step(raftpb.Message{Type: raftpb.MsgProp, From: g.self, Entries: entries}); err != nil {
		return 0, err
	}
	last := g.core.node.BasicStatus().LastIndex
	g.proposals.batching.Record(last, len(entries), own)
	return last + 1 - uint64(len(entries)), nil
}

// stamp returns the stamp of an entry, if it is the first of its batch and one is due.
func (g *Group) stamp(first bool) (stamp time.Duration, due bool) {
	if !first {
		return 0, false
	}
	return g.machine.apply.Time.Next(g.now())
}

// callTurn is the turn of a group as calls see it: proposals.Turn.
type callTurn Group

func (t *callTurn) View() proposals.View {
	return proposals.View{Ticks: t.core.at.Ticks, Core: t.core.node.BasicStatus(), Stands: t.writes.discarding.waitsForLane}
}

func (t *callTurn) TakesCommands() bool                              { return t.members.founding.TakesCommands() }
func (t *callTurn) Stamp(first bool) (stamp time.Duration, due bool) { return (*Group)(t).stamp(first) }
func (t *callTurn) Propose(entries []raftpb.Entry) (first uint64, err error) {
	return (*Group)(t).proposeEntries(entries, 0)
}
func (t *callTurn) ProposeOffered()   { (*Group)(t).proposeAll() }
func (t *callTurn) NextFrame() uint64 { return t.host.nextFrame() }
func (t *callTurn) Send(to uint64, kind transport.Kind, body []byte) bool {
	return t.host.network.transport.SendBytes(to, kind, body)
}
