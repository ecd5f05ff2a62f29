package host

import "github.com/millrace/millrace/host/internal/members"

// believesRemoval reports whether this member is to believe that it was removed, now that a host says so.
func (g *Group) believesRemoval(by uint64) bool {
	now := g.host.clock.livedAtBeat()
	return g.members.removal.Believes(members.Notice{
		By: by, Now: now, After: members.RemovalTimeouts * int64(g.host.config.electionTicks()),
		LeaderAt: g.members.leaderAt.Load(), IsSilent: g.isLeaderSilent(now), IsOnly: g.counts().IsOnlyOther(by, g.host.others()),
	})
}
