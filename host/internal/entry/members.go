package entry

import (
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
)

// Members follows the members of a group through its log, entry by entry. It depends on the log alone: every
// member that has taken the same entries, or a snapshot in place of the first ones, has the same. The zero
// value is before the first entry.
//
// Turns do not use it: they put a change in force as soon as it is committed. A state machine may be behind
// that, and reads entries again.
type Members struct {
	found  Binding            // of the latest entry found, if the group is not founded
	roster *membership.Roster // nil: the group is not founded
}

// From makes it what a snapshot says, nil if that is before the founding.
func (m *Members) From(roster *membership.Roster) { m.found, m.roster = nil, roster }

// Take takes the next entry, and reports whether the configuration is another one since it.
func (m *Members) Take(e *raftpb.Entry) (changed bool) {
	switch {
	case m.roster == nil:
		return m.takeFounding(e)
	case !IsMemberEntry(e.Type, e.Data) || IsSkip(e.Type, e.Data) || IsVersion(e.Type, e.Data) || e.Index <= m.roster.Version:
		return false
	}
	next, _, err := RosterAfter(m.roster, e)
	if err != nil {
		return false // it changes nothing, as on every member
	}
	was := m.roster.Conf
	m.roster = next
	return was.Equivalent(next.Conf) != nil
}

// takeFounding takes an entry before the group is founded. Of several entries found, the last one counts: it
// has replaced the binding of the others.
func (m *Members) takeFounding(e *raftpb.Entry) (founded bool) {
	if e.Type != raftpb.EntryHost || IsMemberEntry(e.Type, e.Data) {
		return false
	}
	b, err := DecodeFounding(e.Data)
	switch {
	case err != nil:
		return false // the member stops for that
	case b != nil:
		m.found = b
		return false
	case m.found == nil:
		return false
	}
	m.found, m.roster = nil, m.found.Roster()
	return true
}

// Roster returns the members, nil before the founding.
func (m *Members) Roster() *membership.Roster { return m.roster }

// Configuration returns the configuration, and false before the founding. The caller must not change it.
func (m *Members) Configuration() (c raftpb.ConfState, founded bool) {
	if m.roster == nil {
		return c, false
	}
	return m.roster.Conf, true
}
