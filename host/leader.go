package host

import (
	"context"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
)

// Campaign makes the group start an election in its next turn, without waiting for its timeout.
func (g *Group) Campaign() {
	g.inbox.orderCampaign()
	g.wakeUrgently()
}

// HandOver makes the groups that lead here hand their leadership to the member with most of their log,
// without waiting. Groups without such a member stay. It is for a host that will be stopped: for 600 election
// timeouts no leader hands over to it for placement. Close does it by itself, when its context can end.
func (h *Host) HandOver() {
	h.changes.placer.StopsSoon()
	for _, g := range h.groups.all() {
		if g.life.status.leads.Load() {
			g.leadership.staysLeader.Store(false) // it may be possible now
			g.inbox.orderHandOver()
			g.wakeUrgently()
		}
	}
}

// handOverAll hands over and waits until no group leads that could hand over, for an election timeout at
// most: then the followers elect a leader without it.
func (h *Host) handOverAll(ctx context.Context) {
	h.HandOver()
	late := make(chan struct{})
	timer := h.env.env.Clock.Timer(func() { close(late) })
	timer.Set(h.config.ElectionTimeout)
	defer timer.Stop()
	for _, g := range h.groups.all() {
		for {
			changed := g.life.roleChanged.wait()
			if g.Err() != nil || g.leadership.staysLeader.Load() || !g.life.status.leads.Load() {
				break
			}
			select {
			case <-changed:
				continue
			case <-late:
			case <-ctx.Done():
			}
			return
		}
	}
}

// Leader is the leader of a group, as far as this host knows it.
type Leader struct {
	ID         uint64
	Addr       string // in Config.Members
	ClientAddr string // in Config.ClientAddrs; "": none is given there
	Self       bool   // it is this host
}

// leader returns what this host knows of a host that leads.
func (h *Host) leader(id uint64) Leader {
	return Leader{ID: id, Addr: h.network.peers.Addr(id), ClientAddr: h.config.ClientAddrs[id], Self: id == h.config.ID}
}

// notLeader is the error for what only a leader takes; leader is 0 if none is known.
func (h *Host) notLeader(leader uint64) *outcome.NotLeaderError {
	l := h.leader(leader)
	return &outcome.NotLeaderError{Leader: leader, Addr: l.Addr, ClientAddr: l.ClientAddr}
}

// Leader returns the leader, or false if this host knows none. It never waits.
func (g *Group) Leader() (Leader, bool) {
	id := g.Status().Leader
	return g.host.leader(id), id != raft.None
}
