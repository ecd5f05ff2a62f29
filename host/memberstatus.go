package host

import (
	"slices"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport"
)

// Members says who the members of a group are, as one of them has applied it.
type Members struct {
	// Version is the index of the entry that has changed the members last; 0: they are the founding ones.
	Version uint64
	// Founded is false before the group is founded; then only All is set, without directories.
	Founded bool
	// All are the members, by id. Voters and Learners are their ids. In a joint configuration Voters are
	// those of the new half, and Outgoing those of the old half.
	All                        []MemberInfo
	Voters, Outgoing, Learners []uint64
	// Removed are the ids of members that were removed. They are not given again.
	Removed []uint64
	// Plan says how far the plan under way is, and Waits for what it waits, as far as this host knows; both
	// are empty if there is none.
	Plan, Waits string
	// Tokens are the join tokens that were not used, without their secrets.
	Tokens []membership.Token
	// View is the member by whose view There and Tolerates are. It is this member if it leads, or else the
	// leader, which was asked and has answered within two election timeouts. View is 0 if no leader has
	// told. Then There is true of members that this one hears itself, the others may be well, and Tolerates
	// means nothing.
	View uint64
	// Tolerates is how many of the voters that were heard lately may fail before there is no quorum. It is
	// negative if there is none now.
	Tolerates int
	// MachineVersion is the version of the state machine that the group is at, as this member has applied it.
	MachineVersion uint32
}

// MemberInfo is one member.
type MemberInfo struct {
	ID          uint64
	Role        membership.Role
	Incarnation transport.Incarnation // the directory that it is bound to
	Key         membership.Key        // of the certificate to which it is bound; zero: to none
	Addr        string                // where it was when it was added, or Config.Members
	// Versions are the versions of the state machine that its program can do, if KnowsVersions is set. It has
	// said so when this member asked last, for an upgrade or for millrace members list.
	Versions      statemachine.Versions
	KnowsVersions bool
	There         bool // it was heard within an election timeout, by the member that Members.View names
}

// Members returns who the members of the group are, as this member has applied it, and which of them are
// there, as the leader knows it. It never waits: a member that does not lead asks the leader, and the answer
// is in a later call.
func (g *Group) Members() Members {
	g.askView()
	r := g.roster()
	if r == nil {
		m := Members{View: g.viewer(), MachineVersion: g.machine.apply.At().Version}
		for _, id := range g.memberIDs() {
			m.All = append(m.All, MemberInfo{ID: id, Addr: g.host.network.peers.Addr(id), There: g.isKnownHere(id)})
		}
		return m
	}
	m := Members{
		Version: r.Version, Founded: true, View: g.viewer(), MachineVersion: g.machine.apply.At().Version,
		Voters: slices.Clone(r.Conf.Voters), Outgoing: slices.Clone(r.Conf.VotersOutgoing), Learners: slices.Clone(r.Conf.Learners),
		Tolerates: r.Spare(g.isHere), Tokens: slices.Clone(r.Tokens),
	}
	for _, member := range r.Members {
		info := MemberInfo{ID: member.ID, Role: r.Role(member.ID), Incarnation: member.Incarnation, Key: member.Keys[0], Addr: member.Addr, There: g.isKnownHere(member.ID)}
		if addr := g.host.network.peers.Addr(member.ID); addr != "" {
			info.Addr = addr
		}
		info.Versions, info.KnowsVersions = g.versionsOf(member.ID)
		m.All = append(m.All, info)
	}
	for _, member := range r.Removed {
		if r.Role(member.ID) == membership.None && !slices.Contains(m.Removed, member.ID) {
			m.Removed = append(m.Removed, member.ID)
		}
	}
	if r.Plan != nil {
		m.Plan, m.Waits = r.Plan.String(), g.members.plan.Waits()
	}
	return m
}
