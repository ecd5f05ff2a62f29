package members

import (
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft/quorum"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// Group says who counts in one group, as this member sees it. Before the group is founded the entry found in
// this host's log says so, from then on the roster.
//
// A turn calls Counted, MayVote and ObserveLeader, and owns Noted. Any goroutine may call the rest.
type Group struct {
	Rosters Rosters
	Noted   Noted
	Joins   bool // this member was not, or not with this directory, among the founders; set when it is opened

	settings Settings
	w        Wiring
	removal  Removal

	mu            lock.Mutex               // held while it is computed who is excluded, so that the newest answer stays
	excluded      atomic.Pointer[[]uint64] // members that come with another directory; nil: none
	excludedSince atomic.Int64             // there are some since then
	hinted        atomic.Pointer[[]uint64] // members that come with the directory of a later roster

	leaderAt  atomic.Int64 // tick at which the leader was heard last, without pulses
	refusedAt int64        // tick of the turn at which a refusal was sent last
	refused   []uint64     // members that were refused; owned by the turn
}

// Settings say which member of which group this is. Times are in ticks.
type Settings struct {
	Group, Self         uint64
	Dir                 string // of the host
	Heartbeat, Election int64
}

// Wiring is the group and its host as the membership sees them. Any goroutine may be the caller.
type Wiring interface {
	// Bound returns the binding of the entry found in this host's log, or nil.
	Bound() *entry.Binding
	// IsFounded reports whether founded is committed. Only a turn asks. IsSeenFounded reports whether it was
	// seen in the log.
	IsFounded() bool
	IsSeenFounded() bool
	// Directory returns the directory of this host, and Came the one with which another has come last.
	Directory() transport.Incarnation
	Came(id uint64) (i transport.Incarnation, known bool)
	// HasMet reports whether this host has met another one in this life.
	HasMet(id uint64) bool
	Others() []uint64
	Now() int64 // in ticks that were not missed
	// Leader returns the leader that this member knows, or 0, and PulsesAt when its pulses were heard last.
	Leader() uint64
	PulsesAt() int64
	Send(to uint64, body []byte)
	// Refused learns, once for each, that a member is refused.
	Refused(event.MemberRefused)
	Stop(error)
}

// Init prepares the membership of a group.
func (m *Group) Init(w Wiring, s Settings) { m.w, m.settings = w, s }

// Voters returns the members that the core counts, in either half of a joint configuration.
func (m *Group) Voters() []uint64 {
	if r := m.Rosters.Now(); r != nil {
		return r.Voters()
	}
	return m.Rosters.IDs()
}

// Has reports whether a host is a member.
func (m *Group) Has(id uint64) bool { return slices.Contains(m.Rosters.IDs(), id) }

// HasOther reports whether a host is another member.
func (m *Group) HasOther(id uint64) bool { return id != m.settings.Self && m.Has(id) }

// HasOrFollows reports whether a host is a member, or leads: a member that is behind may not know its leader
// as a member yet.
func (m *Group) HasOrFollows(id uint64) bool {
	return m.Has(id) || id == m.w.Leader() && !m.Excludes(id)
}

// HasRemoved reports whether a host was a member and was removed.
func (m *Group) HasRemoved(id uint64) bool { return HasRemoved(m.Rosters.Now(), id) }

// Own returns this member as its roster has it, if that has its directory.
func (m *Group) Own() (own membership.Member, is bool) {
	if r := m.Rosters.Now(); r != nil {
		own, is = r.Member(m.settings.Self)
	}
	return own, is && own.Incarnation == m.w.Directory()
}

// IsBound reports whether this member's roster has its directory.
func (m *Group) IsBound() bool {
	_, is := m.Own()
	return is
}

// IsQuorum reports whether the members for which is returns true are a quorum.
func (m *Group) IsQuorum(is func(id uint64) bool) bool {
	if r := m.Rosters.Now(); r != nil {
		return r.Spare(is) >= 0
	}
	n, voters := 0, m.Voters()
	for _, id := range voters {
		if is(id) {
			n++
		}
	}
	return n >= quorum.Size(len(voters))
}

// View is what this member goes by when it decides who counts.
func (m *Group) View() View {
	return View{Self: m.settings.Self, Bound: m.w.Bound(), Roster: m.Rosters.Now(), Hint: m.Rosters.Hint()}
}

// Unmet returns the other members that this host has not met.
func (m *Group) Unmet() (ids []uint64) {
	for _, id := range m.Rosters.IDs() {
		if id != m.settings.Self && !m.w.HasMet(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// IsLeaderSilent reports whether this member neither leads nor hears its leader.
func (m *Group) IsLeaderSilent() bool {
	return m.w.Leader() != m.settings.Self && m.w.Now()-max(m.leaderAt.Load(), m.w.PulsesAt()) > 2*m.settings.Election
}

// ObserveLeader records that a message of a leader was stepped.
func (m *Group) ObserveLeader(msg *raftpb.Message) {
	if msg.Type == raftpb.MsgApp || msg.Type == raftpb.MsgHeartbeat {
		m.leaderAt.Store(m.w.Now())
	}
}
