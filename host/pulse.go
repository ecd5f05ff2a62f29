package host

import (
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
)

// The turn's part in pulses (internal/pulse). A follower looks at its list when its election timeout would
// expire, and before it looks at anything else (Group.stepInputs), and then tells the core that it has
// heard the leader (raft.RawNode.HeardLeader). While only pulses concern the group, its shard looks for it
// (quiescent.go).

// pulseLeader is a group as the sender of pulses sees it.
type pulseLeader Group

func (g *pulseLeader) ID() uint64         { return g.id }
func (g *pulseLeader) Ended() bool        { return (*Group)(g).Err() != nil }
func (g *pulseLeader) Shard() pulse.Shard { return g.seat.Shard() }

func (g *pulseLeader) IsQuorum(has func(id uint64) bool) bool { return g.members.IsQuorum(has) }

// groupOf is the group of a leader.
func groupOf(l pulse.Leader) *Group { return (*Group)(l.(*pulseLeader)) }

// pulseShards are shards as the sender of pulses sees them.
func pulseShards(of []*sched.Shard) (shards []pulse.Shard) {
	for _, s := range of {
		shards = append(shards, s)
	}
	return shards
}

// sendPulses is the beat of a host: one record to each other host that has something to hear.
func (h *Host) sendPulses() {
	for _, r := range h.network.pulses.Beat() {
		r.Answer, r.Answers = h.network.receiver.Answer(r.Peer)
		if r.Pulses || r.Answers {
			h.network.transport.SendBytes(r.Peer, transport.Pulse, r.Append(nil))
		}
	}
}

// leadQuietly leaves the heartbeats of a quiet leader to the pulses, and takes them back when it has
// something to say. It is called at the end of a turn.
func (g *Group) leadQuietly() (again bool) {
	now := g.core.at.Ticks
	switch leads := g.core.node.BasicStatus().RaftState == raft.StateLeader; {
	case !leads:
		g.endPulses(0)
	case !g.core.node.Quiet() || g.work.taken.notCovered:
		g.endPulses(now + pulseRest)
	case !g.leadership.quietLead.pulsed && now >= g.leadership.quietLead.pulseAfter:
		st := g.core.node.BasicStatus()
		if g.host.network.pulses.Set((*pulseLeader)(g), g.memberIDs(), st.Term, st.Commit) {
			g.leadership.quietLead.pulsed, g.leadership.quietLead.activeAt = true, g.core.at.Ticks-g.core.at.Missed
			g.core.node.SetPulsed(true)
			g.shrink()
		}
	}
	// A leader that is not quiet rests for a while; each tick moves that.
	return g.leadership.quietLead.pulsed || g.core.node.Quiet() && g.leadership.quietLead.pulseAfter < now+pulseRest
}

// endPulses takes the heartbeats back, and rests until a tick.
func (g *Group) endPulses(until int64) {
	g.leadership.quietLead.pulseAfter = until
	if g.leadership.quietLead.pulsed {
		g.leadership.quietLead.pulsed = false
		g.host.network.pulses.Drop((*pulseLeader)(g))
		g.core.node.SetPulsed(false)
	}
}

// pulseRest is for how many ticks a leader must be quiet before it is pulsed: two heartbeats, which bring the
// commit index to all followers.
const pulseRest = 2*ticksPerHeartbeat + 1

// observePeers tells the core of a leader which followers have answered pulses since its latest check of the
// quorum, and its view of each follower when that was. The view counts answers before a check, too.
func (g *Group) observePeers() {
	if !g.leadership.quietLead.pulsed {
		return
	}
	quiet, views, now := &g.leadership.quietLead, &g.life.views, g.core.at.Ticks-g.core.at.Missed
	var heard []examination.Heard
	g.host.network.pulses.Active((*pulseLeader)(g), min(quiet.activeAt, views.At()), func(peer uint64, at int64) {
		heard = append(heard, examination.Heard{ID: peer, At: min(at, now)})
	})
	for _, peer := range heard {
		if peer.At >= quiet.activeAt {
			g.countRefusal(g.core.node.PeerActive(peer.ID))
		}
	}
	views.Hear(heard, int64(g.host.config.electionTicks()))
	quiet.activeAt = now
}

// followPulse makes a group rely on a list, if it follows the host in that term and lacks nothing.
func (h *Host) followPulse(line pulse.Line, leader uint64, c *pulse.Cover) bool {
	g := h.groups.get(line.Group)
	return g != nil && g.pulse.subscription.Begin(c, func() bool { return g.follows(line, leader) })
}

func (g *Group) follows(line pulse.Line, leader uint64) bool {
	s := g.life.status.Load()
	return s.Role == event.RoleFollower && s.Term == line.Term && s.Leader == leader && s.Committed >= line.Commit && !g.members.withoutAuthority.Load() && g.Err() == nil
}

// hearPulses tells the core of a follower that its leader was heard, and advances its clock to that moment.
// It returns the ticks that have passed since.
func (g *Group) hearPulses(passed int) (left int) {
	c := g.pulse.subscription.Cover()
	if c == nil {
		return passed
	}
	n := c.List.Count()
	if c.List == g.pulse.peerPulses && n == g.pulse.pulseCount {
		return passed
	}
	g.pulse.peerPulses, g.pulse.pulseCount = c.List, n
	since := int(min(max(g.core.at.Ticks-g.core.at.Missed-c.List.At(), 0), int64(passed)))
	g.pass(min(passed-since, g.core.node.TicksToEvent()-1))
	follows, err := g.core.node.HeardLeader(c.Term, c.List.From())
	g.countRefusal(err)
	if !follows {
		g.pulse.subscription.End(g.id)
	} else {
		g.writes.discarding.unheard = 0
		g.pulse.idle = len(g.work.taken.messages)+len(g.work.taken.answers)+len(g.work.taken.proposals) == 0
	}
	return since
}
