package host

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
)

// What a follower knows of who is there: what its leader has said lately (leadership.View).

// view returns the view of the member that leads now, or nil if it has said nothing within two election
// timeouts.
func (g *Group) view() *leadership.View {
	s := g.life.status.Load()
	return g.life.leaderViews.Of(s.Leader, s.Term, g.host.clock.awakeAtBeat()-2*int64(g.host.config.electionTicks()))
}

// viewer returns the member whose view is what this one says of who is there; 0: no leader has told.
func (g *Group) viewer() uint64 {
	if g.life.status.leads.Load() {
		return g.self
	}
	if v := g.view(); v != nil {
		return v.From
	}
	return raft.None
}

// isHere reports whether a member is this one, or was heard lately by the leader. A member that no leader has
// told counts those that it has met in this life: it refuses no plan because of what it cannot know.
func (g *Group) isHere(id uint64) bool {
	if id == g.self {
		return true
	}
	if g.life.status.leads.Load() {
		return g.isThere(id)
	}
	if v := g.view(); v != nil {
		return slices.Contains(v.Here, id)
	}
	return g.host.network.handshakes.Has(id)
}

// isKnownHere is isHere for a reader: a member that no leader has told has heard the others itself, or not.
func (g *Group) isKnownHere(id uint64) bool {
	if g.viewer() != raft.None || id == g.self {
		return g.isHere(id)
	}
	return g.host.isThere(id)
}

// askView asks the leader, at most once in a heartbeat interval.
func (g *Group) askView() {
	s := g.life.status.Load()
	if s.Leader != raft.None && s.Leader != g.self && g.Err() == nil && g.life.leaderViews.MayAsk(g.host.clock.awakeAtBeat(), ticksPerHeartbeat) {
		g.host.network.transport.SendBytes(s.Leader, transport.Control, leadership.EncodeViewQuestion(g.id))
	}
}

// viewTime is how long an operator's question waits for the leader.
const viewTime = 2 * time.Second

// awaitView asks the leader, and waits for its answer or for a while.
func (g *Group) awaitView(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, viewTime)
	defer cancel()
	again := time.NewTicker(watchPace)
	defer again.Stop()
	for g.viewer() == raft.None && g.life.status.Load().Leader != raft.None {
		g.askView()
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// receiveView receives a question or an answer.
func (h *Host) receiveView(from uint64, body []byte) error {
	group, here, err := leadership.DecodeView(body)
	g := h.groups.get(group)
	if err != nil || g == nil {
		return err
	}
	switch s := g.life.status.Load(); {
	case body[0] == control.ViewAnswer && s.Leader == from:
		g.life.leaderViews.Store(&leadership.View{From: from, Term: s.Term, At: h.clock.awakeAtBeat(), Here: here})
	case body[0] == control.ViewQuestion && g.members.HasOther(from) && g.life.status.leads.Load():
		h.network.transport.SendBytes(from, transport.Control, leadership.EncodeView(g.id, slices.DeleteFunc(slices.Clone(g.memberIDs()), func(id uint64) bool { return !g.isHere(id) })))
	}
	return nil
}

// waitHeard waits until it is known with which directories hosts come, or for hearTime in all.
func (g *Group) waitHeard(ctx context.Context, hosts []uint64) {
	ctx, cancel := context.WithTimeout(ctx, hearTime)
	defer cancel()
	again := time.NewTicker(watchPace)
	defer again.Stop()
	for {
		r := g.roster()
		isMissing := func(id uint64) bool { return g.host.presented(id, r) == (identity.NewDirectory{}) }
		if r == nil || !slices.ContainsFunc(hosts, isMissing) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

const (
	// watchTime is how long an answer about a plan waits for news, and watchPace how often it looks: for what
	// a plan waits has no signal.
	watchTime = 2 * time.Second
	watchPace = 50 * time.Millisecond
	// hearTime is how long a plan waits until a host was heard whose address came with it.
	hearTime = 5 * time.Second
)
