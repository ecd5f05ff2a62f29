package host

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// Whose messages count in a group, and who learns that it is refused. Before the group is founded the entry
// found in this host's log says so (founding.go), from then on the roster (members.go). A refusal is dropped
// messages, a control record to the other host, and once a line in the log and an event.

// setRefuses lists the members that have come with another directory than the group is bound to.
func (g *Group) setRefuses() {
	g.host.network.handshakes.Refusing.Lock()
	defer g.host.network.handshakes.Refusing.Unlock()
	refuses, hinted := g.counts().Refused(g.host.trust.admission.Incarnation)
	g.members.hinted.Store(&hinted)
	if refuses == nil {
		g.members.refuses.Store(nil)
		return
	}
	if g.members.refuses.Load() == nil {
		g.members.refusesSince.Store(g.host.clock.awakeAtBeat())
	}
	g.members.refuses.Store(&refuses)
}

// mayVote reports whether a promise of this member may count: its directory is bound, or every member that is
// to found the group knows it.
func (g *Group) mayVote() bool {
	if g.members.joins {
		i, is := g.counts().BoundTo(g.self)
		return is && i == g.host.incarnation() && g.roster() != nil
	}
	return g.members.founding.IsFounded() || g.members.founding.Bound() != nil || len(g.unmet()) == 0
}

func (g *Group) unmet() (ids []uint64) {
	for _, id := range g.memberIDs() {
		if id != g.self && !g.host.network.handshakes.Has(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// dropUncounted drops messages of members that the group refuses and, before the members have met, those that
// would make this member vote for itself or another; and the order to campaign if this member lacks
// something that it needs to apply. Requests of pre-candidates promise nothing, and pass.
func (g *Group) dropUncounted() {
	refuses := g.members.refuses.Load()
	lacks := g.cannotApply()
	if refuses == nil && g.members.founding.IsFounded() && !g.members.joins && g.members.rosters.Hint() == nil && !lacks || len(g.work.taken.messages) == 0 {
		return
	}
	mayVote := g.mayVote()
	kept := g.work.taken.messages[:0]
	for i := range g.work.taken.messages {
		m := &g.work.taken.messages[i]
		switch {
		case refuses != nil && slices.Contains(*refuses, m.From):
			g.refuse(m.From)
			continue
		case (m.Type == raftpb.MsgVoteResp || m.Type == raftpb.MsgPreVoteResp) && !g.countsVoteOf(m.From):
			continue
		case lacks && m.Type == raftpb.MsgTimeoutNow: // it could not apply: the leader goes on
			continue
		case !mayVote && (m.Type == raftpb.MsgVote || m.Type == raftpb.MsgPreVoteResp || m.Type == raftpb.MsgTimeoutNow):
			continue
		}
		kept = append(kept, *m)
	}
	clear(g.work.taken.messages[len(kept):])
	g.work.taken.messages = kept
}

// stopsAt stops the group if it must not have what a message would append: an entry found under which this
// member does not count. It is called before the message is stepped, so before the entry is in the log and
// acknowledged. A leader of an earlier term appends nothing here, so it stops nothing.
func (g *Group) stopsAt(m *raftpb.Message) (stops bool) {
	if g.members.founding.IsFounded() || m.Type != raftpb.MsgApp || m.Term < g.core.node.BasicStatus().Term {
		return false
	}
	if err := g.members.founding.Reject(m.Entries); err != nil {
		g.fail(err)
		return true
	}
	return false
}

// refuse tells a member, at most once in a heartbeat interval, that it is refused, and this host's listeners
// once. A host that is none of the members is told when the group is founded.
func (g *Group) refuse(member uint64) {
	if g.members.founding.Bound() == nil {
		return
	}
	bound, kept := g.counts().BoundTo(member)
	if !kept && !g.members.founding.IsFounded() {
		return
	}
	came, _ := g.host.trust.admission.Incarnation(member)
	isRemoved := false
	if r := g.roster(); r != nil && !kept {
		isRemoved = r.Was(member, came)
	}
	if now := g.core.at.Ticks; now >= g.members.refusedAt+ticksPerHeartbeat || g.members.refusedAt == 0 {
		g.members.refusedAt = max(now, 1)
		body := members.Refusal{Group: g.id, Bound: bound}.Encode()
		switch {
		case isRemoved:
			body = members.Removed{Group: g.id, Version: g.roster().Version, Incarnation: came}.Encode()
		case !kept:
			body = members.EncodeStranger(g.id)
		}
		g.host.network.transport.SendBytes(member, transport.Control, body)
	}
	if slices.Contains(g.members.told, member) {
		return
	}
	g.members.told = append(g.members.told, member)
	g.host.reports.events.Emit(event.MemberRefused{Group: g.id, Member: member, Bound: bound, Came: came, Stranger: !kept && !isRemoved, Removed: isRemoved})
	if isRemoved {
		g.host.env.logger.Warn("a member is refused: it was removed from the group; stop its host, or remove its data there (Host.RemoveGroup)", "group", g.id, "host", g.self, "member", member)
		return
	}
	if !kept {
		g.host.env.logger.Warn("a host is refused: it is none of the members; it joins with Joins set, and a member adds it (Plan, AddMember)", "group", g.id, "host", g.self, "member", member)
		return
	}
	g.host.env.logger.Warn("a member is refused: its host has another directory than the group is bound to; give that host its old directory back", "group", g.id, "host", g.self, "member", member, "bound", bound, "came", came)
}

// rejectBinding says why this member must not count under a binding, or returns nil.
func (g *Group) rejectBinding(b entry.Binding) error {
	if g.members.joins {
		return nil // it becomes a member later
	}
	if ids := b.IDs(); !slices.Equal(ids, g.memberIDs()) {
		return fmt.Errorf("millrace: group %d was founded with members %v, Members of host %d is %v; open it with the members that it was founded with",
			g.id, ids, g.self, g.memberIDs())
	}
	return g.rejectDirectory(b)
}

// rejectDirectory says why this host's directory does not count under a binding, or returns nil.
func (g *Group) rejectDirectory(b entry.Binding) error {
	switch bound, kept := b.Of(g.self); {
	case !kept:
		return g.noMember()
	case bound != g.host.incarnation():
		return g.otherDirectory(bound)
	}
	return nil
}

// otherDirectory is why a member stops whose directory is not the one that the group is bound to.
func (g *Group) otherDirectory(bound transport.Incarnation) error {
	return &refusedDirectoryError{fmt.Errorf("millrace: group %d is bound to directory %v of host %d, and this host runs on directory %v, %s; a wiped or exchanged directory has lost what the member promised; give the host its old directory back, or start it on an empty directory with Joins set and replace the old one (Plan, ReplaceMember)",
		g.id, bound, g.self, g.host.incarnation(), g.host.config.Dir)}
}

// noMember is why a group stops on a host that is none of its members.
func (g *Group) noMember() error {
	return fmt.Errorf("millrace: host %d is none of the members of group %d: open the group there with Joins set, and add the member (Plan, AddMember)", g.self, g.id)
}

// countsVoteOf reports whether a vote of a member counts: its directory is the one of this member's own
// roster.
func (g *Group) countsVoteOf(id uint64) bool {
	hinted := g.members.hinted.Load()
	return hinted == nil || !slices.Contains(*hinted, id)
}

// cannotApply reports whether an entry waits, or one may come that must wait: this member lacks something.
func (g *Group) cannotApply() bool {
	return g.machine.apply.WaitsAt() > 0 || g.snapshots.Section != nil && !g.snapshots.Section.IsWhole()
}
