package host

import (
	"fmt"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// This file wires members.Commits: what the log says of the members is noted when it is appended, and comes
// into force when it is committed.

// recordMembers notes the entries among those that are appended to this host's log, and forgets those that
// they replace.
func (g *Group) recordMembers(entries []raftpb.Entry) {
	replaced, noted := g.members.Noted.Append(entries)
	if replaced {
		g.want(dutyPlan) // it waits for those that were noted
	}
	if noted || replaced {
		g.want(dutySkips)
	}
	if noted {
		for _, e := range g.members.Noted.All() {
			g.machine.apply.HoldBack(&e)
		}
	}
}

// readMembers notes what this host's log has behind an index when the group is opened.
func (g *Group) readMembers(after uint64) error {
	log := g.writes.storage.log
	for _, i := range log.Typed(max(after+1, log.FirstIndex()), log.LastIndex()+1) {
		entries, err := log.Entries(i, i+1, 1)
		if err != nil {
			return fmt.Errorf("millrace: read entry %d of group %d, which may change its members: %w", i, g.id, err)
		}
		if err := g.rejectLater(entries); err != nil {
			return err
		}
		g.recordMembers(entries)
	}
	return nil
}

// rejectLater refuses entries of this host's log that a later program has written. Nothing of the group has
// changed yet.
func (g *Group) rejectLater(entries []raftpb.Entry) error {
	for i := range entries {
		if e := &entries[i]; entry.RejectLater(e.Type, e.Data) != nil {
			return fmt.Errorf("millrace: group %d cannot be opened: entry %d of its log in %s has %w; start this host with that version; the group is as it was",
				g.id, e.Index, identity.LogDir(g.host.config.Dir), entry.RejectLater(e.Type, e.Data))
		}
	}
	return nil
}

// forgetMembers forgets what was noted and is not in the log any more, when the core was started again from
// the log.
func (g *Group) forgetMembers() {
	g.members.Noted.Keep(func(e *raftpb.Entry) bool {
		term, ok := g.core.node.EntryTerm(e.Index)
		return ok && term == e.Term
	})
}

// commitMembers puts in force what was noted through an index, before the entries are handed to the state
// machine.
func (g *Group) commitMembers(through uint64) {
	if g.members.commits.Commit(through) {
		g.want(dutyPlan)
	}
}

// adoptFounders makes the founding list of the log that of a new member, and its configuration the one that
// the log begins with.
func (g *Group) adoptFounders() {
	b := g.members.founding.Bound()
	if b == nil || g.roster() != nil || len(g.writes.storage.Conf.Voters) > 0 {
		return
	}
	ids := b.IDs()
	g.host.learnHosts(ids)
	g.members.Rosters.SetIDs(ids)
	g.writes.storage.Conf = raftpb.ConfState{Voters: ids}
	for _, id := range ids {
		g.core.node.ApplyConfChange(raftpb.ConfChange{Type: raftpb.ConfChangeAddNode, NodeID: id})
	}
}

// commitWiring is the group as its commits see it: members.CommitWiring.
type commitWiring Group

func (g *commitWiring) LearnMembers(r *membership.Roster) { g.host.learnMembers(r) }
func (g *commitWiring) Applied() uint64                   { return g.machine.apply.Applied() }

func (g *commitWiring) ApplyConfChange(cc raftpb.ConfChangeV2) *raftpb.ConfState {
	return g.core.node.ApplyConfChange(cc)
}

func (g *commitWiring) Differs(index uint64, core, roster raftpb.ConfState) {
	(*Group)(g).fail(fmt.Errorf("millrace: after entry %d the core of group %d has configuration %s, and its host %s; this is a bug",
		index, g.id, raft.DescribeConfState(core), raft.DescribeConfState(roster)))
}

func (g *commitWiring) Ignored(e *raftpb.Entry, why error) {
	(*Group)(g).reportIgnored(e, why)
}

// Changed passes a roster on. What other parts do then is in wiring.go.
func (g *commitWiring) Changed(was, now *membership.Roster) {
	g.members.time.Observe(now.Time, (*Group)(g).now())
	(*Group)(g).rosterChanged(was, now)
}

func (g *commitWiring) SkipCommand(e *raftpb.Entry) error { return (*Group)(g).orderSkip(e) }
