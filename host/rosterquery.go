package host

import (
	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// A member that was away may have missed what has changed the members, and then cannot find out: if it was
// removed no member sends it anything any more, and if the leader is a member with a new directory it refuses
// its leader. So a member that hears no leader for two election timeouts asks all hosts for their rosters:
//
// (host/internal/members, record.go). One whose later roster is without the member says that instead.
//
// A later roster is true: its sender has applied the entry that makes it. The member admits hosts by it,
// and takes what a leader sends. It still counts votes by its own roster. Until it has caught up it should
// not win an election.

// askForRosters asks for the groups here that hear no leader. It is called once in two election timeouts.
func (h *Host) askForRosters() {
	now := h.clock.awakeAtBeat()
	for _, g := range h.groups.all() {
		if g.Err() != nil || !g.hearsNoLeader(now) {
			continue
		}
		version := uint64(0)
		if r := g.roster(); r != nil {
			version = r.Version
		}
		body := members.RosterRecord{Group: g.id, Version: version}.Encode()
		for _, id := range h.others() {
			h.network.transport.SendBytes(id, transport.Control, body)
		}
	}
}

// hearsNoLeader reports whether a member that was founded elsewhere, or here, does not hear its leader.
func (g *Group) hearsNoLeader(now int64) bool {
	return (g.roster() != nil || g.members.joins) && g.isLeaderSilent(now)
}

// isLeaderSilent reports whether this member neither leads nor hears its leader.
func (g *Group) isLeaderSilent(now int64) bool {
	if g.life.status.Load().Leader == g.self {
		return false
	}
	last := g.members.leaderAt.Load()
	if c := g.pulse.subscription.Cover(); c != nil {
		last = max(last, c.List.At())
	}
	return now-last > 2*int64(g.host.config.electionTicks())
}

// observeLeader notes that a message of a leader was stepped.
func (g *Group) observeLeader(m *raftpb.Message) {
	if m.Type == raftpb.MsgApp || m.Type == raftpb.MsgHeartbeat {
		g.members.leaderAt.Store(g.host.clock.awakeAtBeat())
	}
}

// receiveRosterRecord receives a question or an answer.
func (h *Host) receiveRosterRecord(from uint64, body []byte) error {
	r, err := members.DecodeRoster(body)
	if err != nil {
		return err
	}
	switch g := h.groups.get(r.Group); {
	case g == nil:
	case r.Roster != nil:
		g.hintRoster(r.Roster)
	default:
		g.answerRoster(from, r.Version)
		if h.changes.applicants.Asks(from, r.Group) {
			g.wake()
		}
	}
	return nil
}

// answerRoster tells another host what this member knows of the members.
func (g *Group) answerRoster(to, version uint64) {
	r := g.roster()
	if r == nil || r.Version <= version {
		return
	}
	body := members.RosterRecord{Group: g.id, Roster: r}.Encode()
	came, _ := g.host.trust.admission.Incarnation(to)
	if r.Was(to, came) {
		body = members.Removed{Group: g.id, Version: r.Version, Incarnation: came}.Encode()
	}
	g.host.network.transport.SendBytes(to, transport.Control, body)
}

// hintRoster takes a roster that is later than this member's, if the member hears no leader. One that does
// needs no hint, and would keep a false one until the group reaches its version.
func (g *Group) hintRoster(r *membership.Roster) {
	if !g.hearsNoLeader(g.host.clock.awakeAtBeat()) {
		return
	}
	if g.members.rosters.AcceptHint(r) {
		g.setRefuses()
	}
}
