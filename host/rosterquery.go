package host

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// A member that was away may have missed what has changed the members, and then cannot find out: if it was
// removed no member sends it anything any more, and if the leader is a member with a new directory it refuses
// its leader. So a member that hears no leader for two election timeouts asks all hosts for their rosters:
//
//	roster question  58 │ group │ version of the roster that it has
//	roster answer    59 │ group │ a later roster
//	removed              (foundingcodec.go), if the later one is without it
//
// A later roster is true: its sender has applied the entry that makes it. The member admits hosts by it,
// and takes what a leader sends. It still counts votes by its own roster. Until it has caught up it should
// not win an election.

// askForRosters asks for the groups here that hear no leader. It is called once in two election timeouts.
func (h *Host) askForRosters() {
	now := h.clock.livedAtBeat()
	for _, g := range h.groups.all() {
		if g.Err() != nil || !g.hearsNoLeader(now) {
			continue
		}
		version := uint64(0)
		if r := g.roster(); r != nil {
			version = r.Version
		}
		body := binary.AppendUvarint(binary.AppendUvarint([]byte{control.RosterQuestion}, g.id), version)
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
	if c := g.pulse.cover.Cover(); c != nil {
		last = max(last, c.List.At())
	}
	return now-last > 2*int64(g.host.config.electionTicks())
}

// noteLeader notes that a message of a leader was stepped.
func (g *Group) noteLeader(m *raftpb.Message) {
	if m.Type == raftpb.MsgApp || m.Type == raftpb.MsgHeartbeat {
		g.members.leaderAt.Store(g.host.clock.livedAtBeat())
	}
}

// takeRosterRecord takes a question or an answer.
func (h *Host) takeRosterRecord(from uint64, body []byte) error {
	group, n := binary.Uvarint(body[1:])
	rest := body[1+max(n, 0):]
	if n <= 0 {
		return fmt.Errorf("%w: %d bytes about a roster", control.ErrBad, len(body))
	}
	g := h.groups.get(group)
	if body[0] == control.RosterQuestion {
		version, n := binary.Uvarint(rest)
		if n <= 0 || n != len(rest) {
			return fmt.Errorf("%w: %d bytes ask for a roster", control.ErrBad, len(body))
		}
		if g != nil {
			g.answerRoster(from, version)
			if h.changes.applicants.Asks(from, group) {
				g.wake()
			}
		}
		return nil
	}
	if len(rest) > entry.MaxRosterBytes {
		return fmt.Errorf("%w: a roster of %d bytes, want at most %d", control.ErrBad, len(rest), entry.MaxRosterBytes)
	}
	r, err := membership.DecodeRoster(rest)
	if err != nil {
		return err
	}
	if g != nil {
		g.hintRoster(r)
	}
	return nil
}

// answerRoster tells another host what this member knows of the members.
func (g *Group) answerRoster(to, version uint64) {
	r := g.roster()
	if r == nil || r.Version <= version {
		return
	}
	body := append(binary.AppendUvarint([]byte{control.RosterAnswer}, g.id), r.Encode()...)
	came, _ := g.host.trust.admission.Incarnation(to)
	if r.Was(to, came) {
		body = removal{g.id, r.Version, came}.encode()
	}
	g.host.network.transport.SendBytes(to, transport.Control, body)
}

// hintRoster takes a roster that is later than this member's, if the member hears no leader. One that does
// needs no hint, and would keep a false one until the group reaches its version.
func (g *Group) hintRoster(r *membership.Roster) {
	if !g.hearsNoLeader(g.host.clock.livedAtBeat()) {
		return
	}
	now := g.roster()
	if was := g.members.hint.Load(); now != nil && r.Version <= now.Version || was != nil && r.Version <= was.Version {
		return
	}
	g.members.hint.Store(r)
	g.setRefuses()
}

// isHinted reports whether a later roster than this member's binds a host to a directory.
func (g *Group) isHinted(id uint64, i transport.Incarnation) bool {
	r, now := g.members.hint.Load(), g.roster()
	if r == nil || now != nil && r.Version <= now.Version {
		return false
	}
	m, ok := r.Member(id)
	return ok && m.Incarnation == i
}

// countsVoteOf reports whether a vote of a member counts: its directory is the one of this member's own
// roster.
func (g *Group) countsVoteOf(id uint64) bool {
	hinted := g.members.hinted.Load()
	return hinted == nil || !slices.Contains(*hinted, id)
}
