package host

import "sync"

// A member that was removed while it was away is told so by others (rosterquery.go, refusals.go), and stops.
// One host that lies must not stop a member: so one says so and another one confirms it, and neither counts
// while this member hears a leader, which sends nothing to those that were removed.
//
// A member that has stopped because it was removed still says so of others: one of three may be left.
//
// A single host is believed if this member knows no other, or if it repeats the notice for removalTimeouts
// election timeouts without a leader: it may be the only member left.
//
// Rejected: a majority of the roster. The members of an old roster may all be gone.
type removalNotice struct {
	mu    sync.Mutex
	first uint64 // the host that said so first, since a leader was heard; 0: none
	since int64  // when that was, in ticks that were not missed
}

// removalTimeouts is how long one host alone is not believed.
const removalTimeouts = 64

// believesRemoval reports whether this member is to believe that it was removed, now that a host says so.
func (g *Group) believesRemoval(by uint64) bool {
	now := g.host.clock.livedAtBeat()
	t := &g.members.removal
	t.mu.Lock()
	defer t.mu.Unlock()
	if !g.isLeaderSilent(now) {
		t.first = 0
		return false
	}
	if t.first == 0 || g.members.leaderAt.Load() >= t.since {
		t.first, t.since = by, now
	}
	return t.first != by || now-t.since >= removalTimeouts*int64(g.host.config.electionTicks()) || g.isOnlyOther(by)
}

// isOnlyOther reports whether a host is the only one besides this one that can know something of the group.
func (g *Group) isOnlyOther(id uint64) bool {
	others := g.host.others()
	if r := g.roster(); r != nil {
		others = nil
		for _, m := range r.Members {
			if m.ID != g.self {
				others = append(others, m.ID)
			}
		}
	}
	return len(others) == 1 && others[0] == id
}
