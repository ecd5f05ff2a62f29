package members

import (
	"errors"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
)

// Commits puts in force what the log says of the members. Each committed entry that changes them makes the
// next roster, in order, before the entry is handed to the state machine. An entry that changes nothing does
// so on every member.
//
// A turn owns it. It has no lock, so a panic here stops one group and not the process (containment).
type Commits struct {
	w       CommitWiring
	rosters *Rosters
	noted   *Noted
}

// CommitWiring is the group and its host as Commits sees them. A turn is the caller.
type CommitWiring interface {
	// LearnMembers makes the members of a roster known to the host, which may have to send to them at once.
	LearnMembers(*membership.Roster)
	// ApplyConfChange puts one change of the configuration in force in the core.
	ApplyConfChange(raftpb.ConfChangeV2) *raftpb.ConfState
	// Applied returns the index through which the state machine has applied the log.
	Applied() uint64
	// SkipCommand puts a committed entry in force that skips a command.
	SkipCommand(*raftpb.Entry) error
	// Ignored learns of a committed entry that changes nothing, and why.
	Ignored(*raftpb.Entry, error)
	// Changed learns that a roster is in force, and which was before it.
	Changed(was, now *membership.Roster)
	// Differs stops the group: behind an entry, core and roster have different configurations. That is a bug.
	Differs(index uint64, core, roster raftpb.ConfState)
}

// Init prepares the commits of a group whose rosters and noted entries are given.
func (c *Commits) Init(w CommitWiring, m *Group) {
	c.w, c.rosters, c.noted = w, &m.Rosters, &m.Noted
}

// Commit puts in force what was noted through an index. It reports whether there was anything.
func (c *Commits) Commit(through uint64) (any bool) {
	now := c.noted.Through(through)
	for i := range now {
		c.commit(&now[i])
	}
	if len(now) == 0 {
		return false
	}
	c.noted.DropThrough(through)
	return true
}

func (c *Commits) commit(e *raftpb.Entry) {
	if entry.IsSkip(e.Type, e.Data) {
		if err := c.w.SkipCommand(e); err != nil {
			c.w.Ignored(e, err)
		}
		return
	}
	if entry.IsVersion(e.Type, e.Data) {
		return // the state machine takes it, in the order of the log
	}
	now := c.rosters.Now()
	if now == nil {
		c.w.Ignored(e, errors.New("the group is not founded"))
		return
	}
	if e.Index <= now.Version {
		return // a snapshot has it
	}
	next, err := c.next(now, e)
	if err != nil {
		c.w.Ignored(e, err)
		return
	}
	c.SetRoster(next)
}

// next returns the roster after an entry, and puts a change of the configuration in force in the core. The
// core does not learn of an entry that changes nothing.
func (c *Commits) next(now *membership.Roster, e *raftpb.Entry) (*membership.Roster, error) {
	next, changes, err := entry.RosterAfter(now, e)
	if err != nil {
		return next, err
	}
	c.w.LearnMembers(next) // before the core, which may send to a new member at once
	for i, cc := range changes {
		if have := c.w.ApplyConfChange(cc); i == len(changes)-1 && have.Equivalent(next.Conf) != nil {
			c.w.Differs(e.Index, *have, next.Conf)
		}
	}
	return next, nil
}

// SetRoster puts a roster in force. From then on every part of the host may ask for its members, so they are
// known before. That holds for a group that is being opened, too: only its snapshot may name them.
func (c *Commits) SetRoster(next *membership.Roster) {
	c.w.LearnMembers(next)
	c.w.Changed(c.rosters.Set(next, c.w.Applied()), next)
}

// Found makes the first roster of a group, when founded is committed.
func (c *Commits) Found(b entry.Binding) {
	if c.rosters.Now() == nil {
		c.SetRoster(b.Roster())
	}
}
