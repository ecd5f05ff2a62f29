package members

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// Whose messages count, and who learns that it is refused. A refusal is dropped messages, a control record to
// the other host, and once a line in the log and an event.

// View is what a member goes by when it decides whose messages count. Before the group is founded the entry
// found in this host's log says so, from then on the roster.
type View struct {
	Self         uint64
	Bound        *entry.Binding     // by the entry found; nil: there is none
	Roster, Hint *membership.Roster // in force, and a later one of another member; either may be nil
}

// BoundTo returns the directory that the group has bound a member to, if it has.
func (v View) BoundTo(id uint64) (i transport.Incarnation, bound bool) {
	if v.Roster != nil {
		m, ok := v.Roster.Member(id)
		return m.Incarnation, ok
	}
	if v.Bound != nil {
		return v.Bound.Of(id)
	}
	return i, false
}

// IsHinted reports whether a later roster than this member's binds a host to a directory.
func (v View) IsHinted(id uint64, i transport.Incarnation) bool {
	if v.Hint == nil || v.Roster != nil && v.Hint.Version <= v.Roster.Version {
		return false
	}
	m, ok := v.Hint.Member(id)
	return ok && m.Incarnation == i
}

// Refused returns the members that do not count. They were removed, or have come with another directory. A
// hinted member counts, and its votes do not. came returns the directory with which a host has come last.
func (v View) Refused(came func(id uint64) (i transport.Incarnation, known bool)) (refuses, hinted []uint64) {
	sort := func(id uint64) {
		if i, _ := came(id); v.IsHinted(id, i) {
			hinted = append(hinted, id)
		} else {
			refuses = append(refuses, id)
		}
	}
	isOther := func(id uint64, bound transport.Incarnation) bool {
		i, known := came(id)
		return known && id != v.Self && i != bound
	}
	if v.Roster == nil {
		if v.Bound != nil {
			for _, m := range *v.Bound {
				if isOther(m.ID, m.Incarnation) {
					sort(m.ID)
				}
			}
		}
		return refuses, hinted
	}
	for _, m := range v.Roster.Members {
		if isOther(m.ID, m.Incarnation) {
			sort(m.ID)
		}
	}
	for _, m := range v.Roster.Removed {
		if v.Roster.Role(m.ID) == membership.None && m.ID != v.Self {
			sort(m.ID)
		}
	}
	return refuses, hinted
}

// HasRemoved reports whether a host was a member and was removed.
func HasRemoved(r *membership.Roster, id uint64) bool {
	return r != nil && r.Role(id) == membership.None && slices.ContainsFunc(r.Removed, func(m membership.Member) bool { return m.ID == id })
}

// WillHave reports whether a host is a member by a hint, or by the plan under way.
func (v View) WillHave(id uint64) bool {
	if v.Hint != nil && v.Hint.Role(id) != membership.None {
		return true
	}
	return v.Roster != nil && v.Roster.Plan != nil && slices.ContainsFunc(v.Roster.Plan.Stages, func(steps []membership.Step) bool {
		return slices.ContainsFunc(steps, func(s membership.Step) bool { return s.ID == id })
	})
}

// IsOnlyOther reports whether no other host than this one and another can know something of the group. others
// are the hosts that this one knows.
func (v View) IsOnlyOther(id uint64, others []uint64) bool {
	if v.Roster != nil {
		others = slices.DeleteFunc(v.Roster.IDs(), func(id uint64) bool { return id == v.Self })
	}
	return len(others) == 1 && others[0] == id
}

// SetExcluded lists the members that have come with another directory than the group is bound to.
func (m *Group) SetExcluded() {
	m.mu.Lock()
	defer m.mu.Unlock()
	excluded, hinted := m.View().Refused(m.w.Came)
	m.hinted.Store(&hinted)
	if excluded == nil {
		m.excluded.Store(nil)
		return
	}
	if m.excluded.Load() == nil {
		m.excludedSince.Store(m.w.Now())
	}
	m.excluded.Store(&excluded)
}

// Excluded returns the members that the group does not hear, and since when there are some.
func (m *Group) Excluded() (ids []uint64, since int64) {
	if all := m.excluded.Load(); all != nil {
		ids = *all
	}
	return ids, m.excludedSince.Load()
}

// Excludes reports whether the group does not hear a member: it comes with another directory.
func (m *Group) Excludes(id uint64) bool {
	all := m.excluded.Load()
	return all != nil && slices.Contains(*all, id)
}

// countsVoteOf reports whether a vote of a member counts: its directory is the one of this member's own
// roster.
func (m *Group) countsVoteOf(id uint64) bool {
	hinted := m.hinted.Load()
	return hinted == nil || !slices.Contains(*hinted, id)
}

// MayVote reports whether a promise of this member may count: its directory is bound, or every member that is
// to found the group knows it.
func (m *Group) MayVote() bool {
	if m.Joins {
		i, is := m.View().BoundTo(m.settings.Self)
		return is && i == m.w.Directory() && m.Rosters.Now() != nil
	}
	return m.w.IsFounded() || m.w.Bound() != nil || len(m.Unmet()) == 0
}

// Counted returns the messages that count, in place. Those of members that the group refuses do not. Before
// the members have met, none counts that would make this member vote for itself or another. An order to
// campaign does not count if this member lacks something that it needs to apply. Requests of pre-candidates
// promise nothing, and pass. now is the tick of the turn.
func (m *Group) Counted(messages []raftpb.Message, now int64, lacks bool) []raftpb.Message {
	excluded := m.excluded.Load()
	if excluded == nil && m.w.IsFounded() && !m.Joins && m.Rosters.Hint() == nil && !lacks || len(messages) == 0 {
		return messages
	}
	mayVote := m.MayVote()
	return slices.DeleteFunc(messages, func(msg raftpb.Message) bool {
		if excluded != nil && slices.Contains(*excluded, msg.From) {
			m.refuse(msg.From, now)
			return true
		}
		switch msg.Type {
		case raftpb.MsgVoteResp:
			return !m.countsVoteOf(msg.From)
		case raftpb.MsgPreVoteResp:
			return !mayVote || !m.countsVoteOf(msg.From)
		case raftpb.MsgVote:
			return !mayVote
		case raftpb.MsgTimeoutNow:
			return !mayVote || lacks // it could not apply: the leader goes on
		}
		return false
	})
}

// refuse tells a member, at most once in a heartbeat interval, that it is refused, and this host's listeners
// once. A host that is none of the members is told when the group is founded.
func (m *Group) refuse(member uint64, now int64) {
	if m.w.Bound() == nil {
		return
	}
	bound, kept := m.View().BoundTo(member)
	if !kept && !m.w.IsFounded() {
		return
	}
	came, _ := m.w.Came(member)
	r := m.Rosters.Now()
	isRemoved := r != nil && !kept && r.Was(member, came)
	if now >= m.refusedAt+m.settings.Heartbeat || m.refusedAt == 0 {
		m.refusedAt = max(now, 1)
		body := Refusal{Group: m.settings.Group, Bound: bound}.Encode()
		switch {
		case isRemoved:
			body = Removed{Group: m.settings.Group, Version: r.Version, Incarnation: came}.Encode()
		case !kept:
			body = EncodeStranger(m.settings.Group)
		}
		m.w.Send(member, body)
	}
	if !slices.Contains(m.refused, member) {
		m.refused = append(m.refused, member)
		m.w.Refused(event.MemberRefused{Group: m.settings.Group, Member: member, Bound: bound, Came: came, Stranger: !kept && !isRemoved, Removed: isRemoved})
	}
}

// RejectBinding says why this member must not count under a binding, or returns nil.
func (m *Group) RejectBinding(b entry.Binding) error {
	if m.Joins {
		return nil // it becomes a member later
	}
	if ids := b.IDs(); !slices.Equal(ids, m.Rosters.IDs()) {
		return fmt.Errorf("millrace: group %d was founded with members %v, Members of host %d is %v; open it with the members that it was founded with",
			m.settings.Group, ids, m.settings.Self, m.Rosters.IDs())
	}
	return m.RejectDirectory(b)
}

// RejectDirectory says why this host's directory does not count under a binding, or returns nil.
func (m *Group) RejectDirectory(b entry.Binding) error {
	switch bound, kept := b.Of(m.settings.Self); {
	case !kept:
		return m.noMember()
	case bound != m.w.Directory():
		return m.otherDirectory(bound)
	}
	return nil
}

// RefusedDirectoryError is why a group stops whose host comes with a directory that it must not have.
type RefusedDirectoryError struct{ Err error }

func (e *RefusedDirectoryError) Error() string { return e.Err.Error() }
func (e *RefusedDirectoryError) Unwrap() error { return e.Err }

// otherDirectory is why a member stops whose directory is not the one that the group is bound to.
func (m *Group) otherDirectory(bound transport.Incarnation) error {
	return &RefusedDirectoryError{Err: fmt.Errorf("millrace: group %d is bound to directory %v of host %d, and this host runs on directory %v, %s; a wiped or exchanged directory has lost what the member promised; give the host its old directory back, or start it on an empty directory with Joins set and replace the old one (Plan, ReplaceMember)",
		m.settings.Group, bound, m.settings.Self, m.w.Directory(), m.settings.Dir)}
}

// noMember is why a group stops on a host that is none of its members.
func (m *Group) noMember() error {
	return fmt.Errorf("millrace: host %d is none of the members of group %d: open the group there with Joins set, and add the member (Plan, AddMember)", m.settings.Self, m.settings.Group)
}

// ReceiveRefusal learns from another host that this one is refused because the group is bound to another
// directory. Only a member knows that. If this member's own log says that it is bound to this directory, the
// other one is wrong.
func (m *Group) ReceiveRefusal(by uint64, bound transport.Incarnation) {
	own := m.w.Directory()
	if bound == own || !m.HasOther(by) {
		return
	}
	if mine, _ := m.View().BoundTo(m.settings.Self); mine == own || m.Joins {
		return
	}
	m.w.Stop(fmt.Errorf("%w; host %d says so", m.otherDirectory(bound), by))
}

// ReceiveStranger learns from another host that this one is none of the members. Only a member knows that. If
// this member's own log says that the group is founded and has it, the other one is wrong.
func (m *Group) ReceiveStranger(by uint64) {
	if !m.HasOther(by) {
		return
	}
	if _, is := m.View().BoundTo(m.settings.Self); is && m.w.IsSeenFounded() || m.Joins {
		return
	}
	m.w.Stop(fmt.Errorf("%w; host %d says so", m.noMember(), by))
}
