package host

import (
	"fmt"

	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/transport"
)

// believesRemoval reports whether this member is to believe that it was removed, now that a host says so.
func (g *Group) believesRemoval(by uint64) bool {
	now := g.host.clock.awakeAtBeat()
	return g.members.removal.Believes(members.Notice{
		By: by, Now: now, After: members.RemovalTimeouts * int64(g.host.config.electionTicks()),
		LeaderAt: g.members.leaderAt.Load(), IsSilent: g.isLeaderSilent(now), IsOnly: g.counts().IsOnlyOther(by, g.host.others()),
	})
}

// removedBy is told by another host that this one's directory was removed. It may never have applied that it
// was added.
func (g *Group) removedBy(member uint64, r members.Removed) {
	now := g.roster()
	// A founder that was closed early may not know that the group is founded, but its log binds it.
	mayBe := now != nil && r.Version > now.Version || now == nil && (g.members.joins || g.members.founding.Bound() != nil)
	if r.Incarnation != g.host.incarnation() || !mayBe {
		return // it is about another directory, or late
	}
	if !g.believesRemoval(member) {
		return
	}
	g.fail(fmt.Errorf("%w; host %d says so", &members.RemovedError{Group: g.id, Self: g.self, Index: r.Version}, member))
}

// refusedBy is told by another host that this one is refused because the group is bound to another directory.
// Only a member knows that. If this member's own log says that it is bound to this directory, the other one
// is wrong.
func (g *Group) refusedBy(member uint64, bound transport.Incarnation) {
	own := g.host.incarnation()
	if bound == own || !g.isOther(member) {
		return
	}
	if mine, _ := g.counts().BoundTo(g.self); mine == own || g.members.joins {
		return
	}
	g.fail(fmt.Errorf("%w; host %d says so", g.otherDirectory(bound), member))
}

// strangerTo is told by another host that this one is none of the members. Only a member knows that. If this
// member's own log says that the group is founded and has it, the other one is wrong.
func (g *Group) strangerTo(member uint64) {
	if !g.isOther(member) {
		return
	}
	if _, is := g.counts().BoundTo(g.self); is && g.Founding().Founded || g.members.joins {
		return
	}
	g.fail(fmt.Errorf("%w; host %d says so", g.noMember(), member))
}
