package host

import (
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// This file wires package members: what it knows of a group and of its host, and who tells it what.

// memberWiring implements members.Wiring.
type memberWiring Group

func (g *memberWiring) Bound() *entry.Binding            { return g.members.founding.Bound() }
func (g *memberWiring) IsFounded() bool                  { return g.members.founding.IsFounded() }
func (g *memberWiring) IsSeenFounded() bool              { return g.members.founding.Reached().Founded }
func (g *memberWiring) Directory() transport.Incarnation { return g.host.incarnation() }
func (g *memberWiring) HasMet(id uint64) bool            { return g.host.network.handshakes.Has(id) }
func (g *memberWiring) Others() []uint64                 { return g.host.others() }
func (g *memberWiring) Now() int64                       { return g.host.clock.awakeAtBeat() }
func (g *memberWiring) Leader() uint64                   { return g.life.status.Load().Leader }
func (g *memberWiring) Stop(err error)                   { (*Group)(g).fail(err) }

func (g *memberWiring) Came(id uint64) (i transport.Incarnation, known bool) {
	return g.host.trust.admission.Incarnation(id)
}

func (g *memberWiring) PulsesAt() int64 {
	if c := g.pulse.subscription.Cover(); c != nil {
		return c.List.At()
	}
	return 0
}

func (g *memberWiring) Send(to uint64, body []byte) {
	g.host.network.transport.SendBytes(to, transport.Control, body)
}

func (g *memberWiring) Refused(e event.MemberRefused) {
	g.host.reports.events.Emit(e)
	words, args := "a member is refused: its host has another directory than the group is bound to; give that host its old directory back", []any{"bound", e.Bound, "came", e.Came}
	if e.Removed {
		words, args = "a member is refused: it was removed from the group; stop its host, or remove its data there (Host.RemoveGroup)", nil
	} else if e.Stranger {
		words, args = "a host is refused: it is none of the members; it joins with Joins set, and a member adds it (Plan, AddMember)", nil
	}
	g.host.env.logger.Warn(words, append([]any{"group", g.id, "host", g.self, "member", e.Member}, args...)...)
}

func (g *Group) memberSettings() members.Settings {
	c := &g.host.config
	return members.Settings{Group: g.id, Self: g.self, Dir: c.Dir, Heartbeat: ticksPerHeartbeat, Election: int64(c.electionTicks())}
}

// dropUncounted drops the messages of this turn that do not count.
func (g *Group) dropUncounted() {
	lacks := g.machine.apply.WaitsAt() > 0 || g.snapshots.Section != nil && !g.snapshots.Section.IsWhole() // or may lack when an entry comes
	g.work.taken.messages = g.members.Counted(g.work.taken.messages, g.core.at.Ticks, lacks)
}

// stopsAt stops the group if it must not have what a message would append: an entry found under which this
// member does not count. It is called before the message is stepped, so before the entry is in the log and
// acknowledged. A leader of an earlier term appends nothing here, so it stops nothing.
func (g *Group) stopsAt(m *raftpb.Message) (stops bool) {
	if g.members.founding.IsFounded() || m.Type != raftpb.MsgApp || m.Term < g.core.node.BasicStatus().Term {
		return false
	}
	if err := g.members.founding.Reject(m.Entries); err != nil {
		g.fail(err)
		return true
	}
	return false
}

// observeJoined forgets why this host was not made a member, when it is one.
func (g *Group) observeJoined() {
	if g.members.IsBound() {
		g.members.joinRefused.Store(nil)
	}
}

// askForRosters asks for the groups here that hear no leader. It is called once in two election timeouts.
func (h *Host) askForRosters() {
	for _, g := range h.groups.all() {
		if g.Err() == nil {
			g.members.AskForRosters()
		}
	}
}

// receiveRosterRecord takes a question or an answer.
func (h *Host) receiveRosterRecord(from uint64, body []byte) error {
	r, err := members.DecodeRoster(body)
	if err != nil {
		return err
	}
	switch g := h.groups.get(r.Group); {
	case g == nil:
	case r.Roster != nil:
		g.members.ReceiveRoster(r.Roster)
	default:
		g.members.AnswerRoster(from, r.Version)
		if h.changes.applicants.Asks(from, r.Group) {
			g.wake()
		}
	}
	return nil
}
