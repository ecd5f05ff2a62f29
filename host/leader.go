package host

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
)

// Campaign makes the group start an election in its next turn, without waiting for its timeout.
func (g *Group) Campaign() {
	g.inbox.putCampaign()
	g.wakeUrgently()
}

// HandOver makes the groups that lead here hand their leadership to the member with most of their log,
// without waiting. Groups without such a member stay. It is for a host that will be stopped: for 600 election
// timeouts no leader hands over to it for placement. Close does it by itself, when its context can end.
func (h *Host) HandOver() {
	h.changes.placer.stops.Store(h.clock.livedAtBeat() + stopTimeouts*int64(h.config.electionTicks()))
	for _, g := range h.groups.all() {
		if g.life.status.leads.Load() {
			g.leadership.staysLeader.Store(false) // it may be possible now
			g.inbox.putHandOver()
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

// WaitLeader returns the leader as soon as this host knows one: at once, or after an election. It returns
// ErrStopped if the group has stopped, and an error that wraps the context's when ctx ends.
func (g *Group) WaitLeader(ctx context.Context) (Leader, error) {
	for {
		changed := g.life.roleChanged.wait()
		if err := g.Err(); err != nil {
			return Leader{}, outcome.WithCause(outcome.ErrStopped, err)
		}
		if leader := g.life.status.Load().Leader; leader != raft.None {
			return g.host.leader(leader), nil
		}
		select {
		case <-changed:
		case <-g.life.ended:
			return Leader{}, outcome.WithCause(outcome.ErrStopped, g.Err())
		case <-ctx.Done():
			return Leader{}, fmt.Errorf("millrace: no leader was known: %w", g.waitEnd(ctx))
		}
	}
}
