package host

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// A group is founded without some of its members when an operator says so: a host was never built, or has
// lost its directory before the group was founded, and the others must not wait for it. Those that remain,
// the kept members, are a majority of GroupConfig.Members. GroupConfig.Members stays the whole list, on every
// host and in the entry found.
//
//	FoundWithout     one kept member is told, and tells the others, again and again until the group is founded.
//	                 It is written on no disk. A member that knows it votes when it has met the kept ones
//	entry found      binds the kept members and names those left out. A member that has it in its log drops
//	                 every message of one left out
//	entry founded    proposed when found is durable on every kept member. A member that has it in its log
//	                 counts the kept members only
//
// # One vote of a host in a term
//
// The members use the whole list or the kept part of it, and no other part. Let a host x have voted, and then
// have lost its directory. It votes again only when it has met every kept member, or every member. One of
// them, not x, knows the lost directory, and refuses x:
//
//   - If x had voted without an entry found, it had met every kept member before that.
//   - If it had voted because of an entry found, there was a first election, whose voters had no such entry.
//     Each of them had met every kept member. They are a majority of the list, and so are the kept ones, so
//     one is in both. If that one is x, the line above applies.
//   - If x is left out, these voters need not have met it. But the entry found in its log binds it, so the
//     leader that proposed that entry knew its directory. And FoundWithout never tells x, so x votes again
//     only when it has met every member, that leader among them.
//
// This is about one lost directory at a time. If x and all that knew its directory lose theirs before
// founded, x may vote twice in a term. No command is acknowledged before founded.
//
// This is why a second call must not leave out others. It also says what FoundWithout cannot know: if the
// group was founded before, and of the kept hosts all that knew it have lost their directories, a host that
// is left out may hold what was acknowledged. FoundWithout then founds a second group, and the commands of
// the first one are lost. An operator who calls it says that the group was never founded.
//
// # The old quorums and the new ones
//
// With n members and k kept ones, k > n/2, a member counts by the old rule until founded is in its log: more
// than n/2 of the list. Then it counts by the new one: more than k/2 of the kept ones. The entry founded
// exists only when every kept member holds found durably, and then:
//
//   - A leader is elected by kept members only: the kept ones neither hear one that is left out nor vote for
//     it, and the n-k left out are less than half of the list. So an old quorum is more than n/2 kept
//     members, and a new one more than k/2. As n/2 + k/2 >= k, the two have a member in common. With n = 5
//     and k = 3 an old quorum is all kept members, a new one is any two.
//   - What an earlier quorum committed with the help of one left out is before found in the log of the leader
//     that proposed it, so it is on all kept members.
//   - No leader can replace found, since every kept member has it. So it does not matter when a member
//     changes the rule, whether its entry founded is committed, or whether it goes back to the old rule in
//     its next life because founded was not yet on its disk.
//
// Removing those left out one by one in one turn, as setVoters does, passes through quorums in between. No
// vote is counted by them, and what the leader commits by them is on all kept members or was acknowledged by
// kept members only.
//
// Rejected: counting by the new rule as soon as found is in the log. With n = 5 and k = 3 two kept members,
// which have found, would not meet the third, which has not, with the two left out. Rejected: a file that
// keeps what FoundWithout has said. A host that forgets it waits for all members, which is safe, and is told
// again.

// FoundWithout founds the group without some of its members. It returns when this host has taken that over;
// Founding, and the event GroupFounded, say how far the group is. It is called on one of the members to keep,
// which tells the others. They must be a majority of GroupConfig.Members and must all be up once. The members
// that are left out do not vote and are not counted. A host that comes later is refused in this group with a
// sentence, and its group stops; it joins later with GroupConfig.Joins and AddMember.
// GroupConfig.Members stays the same on all hosts.
//
// The caller knows that this group has never been founded. If it was, and the kept hosts have lost their
// directories since, the commands that only those left out have are lost. All calls for a group must leave
// out the same members. To leave out others, close the group on all kept hosts first, and call it again when
// no host has lost its directory in between.
//
// FoundWithout returns an error that says why if no member, this one, one that does not exist or too many
// would be left out, if one of those left out was heard within the last election timeout or refuses this
// host's directory, if an earlier call left out others, or if the group is founded already. The other kept
// members refuse it for the same reasons, and say so in their logs. It is safe for concurrent use, and may be
// repeated.
func (g *Group) FoundWithout(members ...uint64) error {
	if err := g.Err(); err != nil {
		return wrap(ErrStopped, err)
	}
	leaves := slices.Clone(members)
	slices.Sort(leaves)
	leaves = slices.Compact(leaves)
	if f := g.Founding(); f.Founded {
		if slices.Equal(f.LeftOut, leaves) {
			return nil // a call that is repeated
		}
		return fmt.Errorf("millrace: group %d cannot be founded without %v: it is founded; remove a member with Plan", g.id, leaves)
	}
	if err := g.leaveOut(leaves); err != nil {
		return fmt.Errorf("millrace: %w", err)
	}
	g.tellOthers()
	return nil
}

// rejectLeaves says why the group cannot be founded without these members, which ascend.
func (g *Group) rejectLeaves(leaves []uint64) error {
	all := g.memberIDs()
	unknown := slices.IndexFunc(leaves, func(id uint64) bool { return !slices.Contains(all, id) })
	kept := len(all) - len(leaves)
	switch {
	case len(leaves) == 0:
		return fmt.Errorf("group %d cannot be founded without some members if none is named", g.id)
	case unknown >= 0:
		return fmt.Errorf("group %d cannot be founded without %v: host %d is not one of its members, %v", g.id, leaves, leaves[unknown], all)
	case slices.Contains(leaves, g.self):
		return fmt.Errorf("group %d cannot be founded without %v on host %d: it would be left out itself; a member that is kept must be asked", g.id, leaves, g.self)
	case !isMajority(kept, len(all)):
		return fmt.Errorf("group %d cannot be founded without %v: %d of its members %v would be kept, want a majority, %d; leave out fewer, and start the others", g.id, leaves, kept, all, len(all)/2+1)
	}
	h := g.host
	if here := slices.IndexFunc(leaves, h.isThere); here >= 0 {
		return fmt.Errorf("group %d cannot be founded without %v: host %d is there: host %d has heard it within the last %v; stop it first if it must be left out",
			g.id, leaves, leaves[here], g.self, h.config.ElectionTimeout)
	}
	for _, id := range leaves {
		if why := h.meetings.refusal(id); why != nil {
			return fmt.Errorf("group %d cannot be founded without %v: host %d refuses the directory of host %d, so the group may be founded already, and host %d may have its only commands; host %d says: %s",
				g.id, leaves, id, g.self, id, id, *why)
		}
	}
	if b := g.bound.Load(); b != nil {
		if out := b.leftOut(); len(out) > 0 && !slices.Equal(out, leaves) {
			return fmt.Errorf("group %d cannot be founded without %v: its founding entry leaves out %v", g.id, leaves, out)
		}
	}
	return nil
}

// leaveOut takes over what FoundWithout has said, here or on another host.
func (g *Group) leaveOut(leaves []uint64) error {
	if was := g.leaves.Load(); was != nil && slices.Equal(*was, leaves) {
		return nil
	}
	if err := g.rejectLeaves(leaves); err != nil {
		return err
	}
	if !g.leaves.CompareAndSwap(nil, &leaves) {
		if was := g.leaves.Load(); was != nil && !slices.Equal(*was, leaves) {
			return fmt.Errorf("group %d cannot be founded without %v: an earlier call leaves out %v; close the group on all kept hosts to take that back", g.id, leaves, *was)
		}
		return nil
	}
	g.host.meetings.leaving.Add(1)
	g.host.env.logger.Warn("the group will be founded without some of its members", "group", g.id, "host", g.self, "members", g.memberIDs(), "leftout", leaves)
	if g.Err() != nil {
		g.dropLeaves() // it ended meanwhile
	}
	g.wakeAs(true)
	return nil
}

// dropLeaves forgets what FoundWithout has said: the group is founded or has ended.
func (g *Group) dropLeaves() {
	if g.leaves.Swap(nil) != nil {
		g.host.meetings.leaving.Add(-1)
	}
}

// toldToLeaveOut is told by another host what FoundWithout has said.
func (g *Group) toldToLeaveOut(from uint64, leaves []uint64) error {
	if !g.isOther(from) || slices.Contains(leaves, from) {
		return fmt.Errorf("%w: host %d, which is not kept, says which members group %d is founded without", errBadControl, from, g.id)
	}
	if g.Err() != nil || g.Founding().Founded {
		return nil
	}
	if err := g.leaveOut(leaves); err != nil {
		return fmt.Errorf("host %d says: %w", from, err)
	}
	return nil
}

// tellWithout repeats what FoundWithout has said, for each group that is not founded. It is called once in a
// heartbeat interval.
func (h *Host) tellWithout() {
	if h.meetings.leaving.Load() == 0 {
		return
	}
	for _, g := range h.groups.all() {
		g.tellOthers()
	}
}

// tellOthers tells the other kept members.
func (g *Group) tellOthers() {
	leaves := g.leaves.Load()
	if leaves == nil || g.Err() != nil {
		return
	}
	if g.Founding().Founded {
		g.dropLeaves()
		return
	}
	body := without{g.id, *leaves}.encode()
	for _, id := range g.memberIDs() {
		if id != g.self && !slices.Contains(*leaves, id) {
			g.host.transport.SendBytes(id, transport.Control, body)
		}
	}
}

// leftOut returns the members that the entry found leaves out, or before that those that FoundWithout has
// named.
func (g *Group) leftOut() []uint64 {
	if b := g.bound.Load(); b != nil {
		if out := b.leftOut(); len(out) > 0 {
			return out
		}
	}
	if leaves := g.leaves.Load(); leaves != nil {
		return slices.Clone(*leaves)
	}
	return nil
}

// founders returns the members that found the group, which is all members or the kept ones, in ascending
// order; when it is founded, the members that it has now.
func (g *Group) founders() []uint64 {
	if r := g.roster(); r != nil {
		return g.memberIDs()
	}
	out := g.leftOut()
	if out == nil {
		return g.memberIDs()
	}
	return slices.DeleteFunc(slices.Clone(g.memberIDs()), func(id uint64) bool { return slices.Contains(out, id) })
}

// voters returns the members that the core counts, in either half of a joint configuration: before the first
// roster, the kept ones when founded is in the log.
func (g *Group) voters() []uint64 {
	if r := g.roster(); r != nil {
		return r.Voters()
	}
	if g.reached.Load().Founded {
		return g.founders()
	}
	return g.memberIDs()
}

// leavesMore reports whether FoundWithout has named members, and the binding leaves out none. A leader then
// proposes another entry found.
func (g *Group) leavesMore(b binding) bool { return g.leaves.Load() != nil && len(b.leftOut()) == 0 }

// setVoters removes those left out from the voters of the core when founded gets into the log, or is in it at
// the start. No entry of a membership change says so, and the core's rules for such entries do not apply;
// what is shown above takes their place.
func (g *Group) setVoters() {
	if g.reduced || g.founded {
		return
	}
	found, founded := g.current(true), g.current(false)
	if found == nil || founded == nil || founded.index < found.index {
		return
	}
	out := found.bound.leftOut()
	if len(out) == 0 {
		return
	}
	g.reduced = true
	g.storage.conf = raftpb.ConfState{Voters: found.bound.kept()} // for a new core (forget.go)
	for _, id := range out {
		g.node.ApplyConfChange(raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode, NodeID: id})
	}
}

// foundedWithout is why a member stops that the group was founded without.
func (g *Group) foundedWithout() error {
	return fmt.Errorf("millrace: group %d was founded without host %d (host.Group.FoundWithout): it does not vote there and has none of its commands; open the group with Joins set and add the member (Plan, AddMember)",
		g.id, g.self)
}

// leftOutBy is told by another host that the group was founded without this one. Only a member knows that. If
// this member's own log says that the group is founded and keeps it, the other one is wrong.
func (g *Group) leftOutBy(member uint64) {
	if !g.isOther(member) {
		return
	}
	if _, kept := g.boundTo(g.self); kept && g.Founding().Founded || g.members.joins {
		return
	}
	g.fail(fmt.Errorf("%w; host %d says so", g.foundedWithout(), member))
}
