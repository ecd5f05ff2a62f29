package members

import "github.com/millrace/millrace/host/membership"

// A member that was away may have missed what has changed the members, and cannot find out then. If it was
// removed, no member sends it anything any more. If the leader is a member with a new directory, it refuses
// its leader. So a member that hears no leader for two election timeouts asks all hosts for their rosters
// (record.go). One whose later roster is without the member says that instead.
//
// A later roster is true: its sender has applied the entry that makes it. The member admits hosts by it,
// and takes what a leader sends. It still counts votes by its own roster. Until it has caught up it should
// not win an election.

// AskForRosters asks all hosts for a later roster, if this member hears no leader.
func (m *Group) AskForRosters() {
	if !m.hearsNoLeader() {
		return
	}
	version := uint64(0)
	if r := m.Rosters.Now(); r != nil {
		version = r.Version
	}
	body := RosterRecord{Group: m.settings.Group, Version: version}.Encode()
	for _, id := range m.w.Others() {
		m.w.Send(id, body)
	}
}

// hearsNoLeader reports whether a member that was founded elsewhere, or here, does not hear its leader.
func (m *Group) hearsNoLeader() bool {
	return (m.Rosters.Now() != nil || m.Joins) && m.IsLeaderSilent()
}

// AnswerRoster tells another host what this member knows of the members.
func (m *Group) AnswerRoster(to, version uint64) {
	r := m.Rosters.Now()
	if r == nil || r.Version <= version {
		return
	}
	body := RosterRecord{Group: m.settings.Group, Roster: r}.Encode()
	came, _ := m.w.Came(to)
	if r.Was(to, came) {
		body = Removed{Group: m.settings.Group, Version: r.Version, Incarnation: came}.Encode()
	}
	m.w.Send(to, body)
}

// ReceiveRoster keeps a roster that is later than this member's, if the member hears no leader. Otherwise it
// needs no hint, and would keep a false one until the group reaches its version.
func (m *Group) ReceiveRoster(r *membership.Roster) {
	if m.hearsNoLeader() && m.Rosters.AcceptHint(r) {
		m.SetExcluded()
	}
}
