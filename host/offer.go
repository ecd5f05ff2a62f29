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
	g.proposals.Together = g.packs()
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
	together := g.proposals.Together && len(batch) > 1
	if together {
		joined := g.work.joiner.Join(g.work.entries)
		clear(g.work.entries)
		g.work.entries = append(g.work.entries[:0], joined)
	}
	first, err := g.proposeEntries(g.work.entries, len(batch), len(batch))
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
		return g.proposals.Accept(g.core.node.BasicStatus().Term, first, batch, together)
	}
}

// packs reports whether commands may share an entry: every member has said that it reads such entries.
func (g *Group) packs() bool {
	if g.host.config.SingleEntries {
		return false
	}
	for _, id := range g.memberIDs() {
		if id != g.self && !g.host.readsBatches(id) {
			return false
		}
	}
	return true
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

// proposeEntries proposes entries, all or none, and returns the index of the first. They hold some
// commands, of which own are from the inbox. The data of each entry is summed here, and not again on this
// host (decision 0037). Nothing is proposed while the machine of this leader is too far behind. A halted one
// does not hold up those that forward to it.
func (g *Group) proposeEntries(entries []raftpb.Entry, commands, own int) (first uint64, err error) {
	st := g.core.node.BasicStatus()
	if g.Halted() == nil && g.machine.backlog.IsFull(st.Term, g.machine.apply.MachineApplied(st.Applied)) {
		return 0, raft.ErrProposalDropped
	}
	bytes := 0
	for i := range entries {
		entries[i].Sum = crcjoin.Sum(entries[i].Data)
		bytes += len(entries[i].Data)
	}
	if err := g.core.node.Step(raftpb.Message{Type: raftpb.MsgProp, From: g.self, Entries: entries}); err != nil {
		return 0, err
	}
	last := g.core.node.BasicStatus().LastIndex
	g.machine.backlog.Add(st.Term, last, commands, bytes)
	g.proposals.batching.Record(last, commands, own)
	return last + 1 - uint64(len(entries)), nil
}

// proposePacked proposes entries with one command each that no client of this host waits for in the ring, all
// or none. Those that may share an entry do. It returns the indexes of the first and the last entry.
func (g *Group) proposePacked(entries []raftpb.Entry) (first, last uint64, err error) {
	commands := len(entries)
	if commands > 1 && g.packs() {
		entries = g.proposals.Pack(entries, &g.work.joiner)
	}
	first, err = g.proposeEntries(entries, commands, 0)
	return first, first + uint64(len(entries)) - 1, err
}

// stamp returns the stamp of an entry, if it is the first of its batch and one is due.
func (g *Group) stamp(first bool) (stamp time.Duration, due bool) {
	if !first {
		return 0, false
	}
	return g.machine.apply.Time.Next(g.turnNow())
}

// callTurn is the turn of a group as calls see it: proposals.Turn.
type callTurn Group

func (t *callTurn) View() proposals.View {
	return proposals.View{Ticks: t.core.at.Ticks, Core: t.core.node.BasicStatus(), Stands: t.writes.discarding.waitsForLane}
}

func (t *callTurn) TakesCommands() bool                              { return t.members.founding.TakesCommands() }
func (t *callTurn) Stamp(first bool) (stamp time.Duration, due bool) { return (*Group)(t).stamp(first) }
func (t *callTurn) Propose(entries []raftpb.Entry) error {
	_, _, err := (*Group)(t).proposePacked(entries)
	return err
}
func (t *callTurn) ProposeOffered()   { (*Group)(t).proposeAll() }
func (t *callTurn) NextFrame() uint64 { return t.host.nextFrame() }
func (t *callTurn) Send(to uint64, kind transport.Kind, body []byte) bool {
	return t.host.network.transport.SendBytes(to, kind, body)
}
