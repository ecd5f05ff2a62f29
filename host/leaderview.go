package host

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
)

// Followers need not hear each other, so only the leader knows which members are there. A follower that is
// asked (Group.Members, Group.Plan) asks its leader, and answers by what that has said lately:
//
//	view question  62 │ group
//	view answer    63 │ group │ n │ n × id of a member that the leader has heard within an election timeout
//
// in bodies of kind transport.Control; integers are uvarints. A leader of an earlier version answers nothing.
// Then the follower says that it does not know. It never says "no" of a member that it merely does not hear.

// leaderView is which members a leader has heard.
type leaderView struct {
	from, term uint64
	at         int64 // in ticks that were not missed
	here       []uint64
}

// leaderViews are the latest view of a follower, and when it asked for one.
type leaderViews struct {
	latest  atomic.Pointer[leaderView]
	askedAt atomic.Int64 // plus one; 0: never
}

// view returns the view of the member that leads now, or nil if it has said nothing within two election
// timeouts.
func (g *Group) view() *leaderView {
	v, s := g.life.leaderViews.latest.Load(), g.life.status.Load()
	if v == nil || v.from != s.Leader || v.term != s.Term || g.host.clock.livedAtBeat()-v.at > 2*int64(g.host.config.electionTicks()) {
		return nil
	}
	return v
}

// viewer returns the member whose view is what this one says of who is there; 0: no leader has told.
func (g *Group) viewer() uint64 {
	if g.life.status.leads.Load() {
		return g.self
	}
	if v := g.view(); v != nil {
		return v.from
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
		return slices.Contains(v.here, id)
	}
	return g.host.network.handshakes.has(id)
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
	s, now := g.life.status.Load(), g.host.clock.livedAtBeat()+1
	if s.Leader == raft.None || s.Leader == g.self || g.Err() != nil {
		return
	}
	if was := g.life.leaderViews.askedAt.Load(); was == 0 || now-was >= ticksPerHeartbeat {
		if g.life.leaderViews.askedAt.CompareAndSwap(was, now) {
			g.host.network.transport.SendBytes(s.Leader, transport.Control, binary.AppendUvarint([]byte{control.ViewQuestion}, g.id))
		}
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

// takeView takes a question or an answer.
func (h *Host) takeView(from uint64, body []byte) error {
	r := entry.Reader{Rest: body[1:]}
	g := h.groups.get(r.Uvarint(^uint64(0)))
	if body[0] == control.ViewQuestion {
		if r.Bad || len(r.Rest) > 0 {
			return fmt.Errorf("%w: %d bytes ask who is there", control.ErrBad, len(body))
		}
		if g != nil && g.isOther(from) && g.life.status.leads.Load() {
			h.network.transport.SendBytes(from, transport.Control, g.encodeView())
		}
		return nil
	}
	v := &leaderView{from: from, at: h.clock.livedAtBeat()}
	for range r.Uvarint(membership.MaxMembers) {
		v.here = append(v.here, r.Uvarint(^uint64(0)))
	}
	if r.Bad || len(r.Rest) > 0 {
		return fmt.Errorf("%w: %d bytes say who is there", control.ErrBad, len(body))
	}
	if g == nil {
		return nil
	}
	if s := g.life.status.Load(); s.Leader == from {
		v.term = s.Term
		g.life.leaderViews.latest.Store(v)
	}
	return nil
}

// encodeView says which members this leader has heard, itself included.
func (g *Group) encodeView() []byte {
	here := slices.DeleteFunc(slices.Clone(g.memberIDs()), func(id uint64) bool { return !g.isHere(id) })
	body := binary.AppendUvarint(binary.AppendUvarint([]byte{control.ViewAnswer}, g.id), uint64(len(here)))
	for _, id := range here {
		body = binary.AppendUvarint(body, id)
	}
	return body
}
