package apply

import (
	"slices"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// A machine may observe the members of its group (statemachine.MembersObserver). It learns of a configuration
// where its lane meets the entry: all commands before that are applied, and none behind it. The lane follows
// the members by itself (entry.Members). Turns are ahead of it, and do not keep what a machine needs that is
// made again from a snapshot.
//
// To the halts and skips of commands such an entry is a command without data, at its index.
//
// Invariant: what a machine is told depends on the log alone.
//
// A machine that observes nothing costs nothing: its lane does not follow the members.

// observing is what a queue knows for such a machine. The lane or the turn that calls the machine owns it.
type observing struct {
	machine statemachine.MembersObserver // nil: it observes nothing
	members entry.Members                // behind the last entry that is applied
	telling bool                         // the machine is being called
}

// observe learns whether the machine observes members, when the group is opened.
func (q *Queue) observe() {
	machine := any(q.Machine)
	if m, is := q.Machine.(*Commands); is {
		machine = m.Machine
	}
	q.observing.machine, _ = machine.(statemachine.MembersObserver)
}

// takeMembers takes an entry that is no command. It tells the machine the configuration behind it if that has
// changed, or if a version of the machine begins there. The error is a halt at the entry or in front of it,
// or retried.
func (q *Queue) takeMembers(e *raftpb.Entry, begins bool) error {
	o := &q.observing
	if o.machine == nil {
		return nil
	}
	next := o.members // an entry at which the machine halts, or that waits, comes again
	changed := next.Take(e)
	conf, founded := next.Configuration()
	if founded && (changed || begins) {
		if err := q.tell(e, conf); err != nil {
			return err
		}
	}
	o.members = next
	return nil
}

// tell tells the machine the configuration behind an entry, unless it holds the effect or the group skips it.
func (q *Queue) tell(e *raftpb.Entry, conf raftpb.ConfState) error {
	m, hasSessions := q.Machine.(*Commands)
	at := ownEntry(e)
	switch {
	case hasSessions && e.Index <= m.held:
		return nil
	case q.Skips.Of(at[0].Position()) > 0:
		if err := q.prepareSkips(at); err != nil {
			return err
		}
		q.passBy(at[0].Position())
		return nil
	}
	if halted := q.rejectVersion(q.At(), e.Index); halted != nil {
		return halted
	}
	if _, held := q.free(at); held != nil {
		return held
	}
	c := statemachine.Configuration{
		Index: e.Index, Term: e.Term, Version: q.At().Version, Voters: ascending(conf.Voters), Outgoing: ascending(conf.VotersOutgoing),
		Learners: ascending(conf.Learners), LearnersNext: ascending(conf.LearnersNext),
	}
	if hasSessions {
		c.Time = m.table.Now()
	}
	q.observing.telling = true
	err := q.observing.machine.MembersChanged(c)
	q.observing.telling = false
	if err != nil {
		return q.haltAt(at, "state machine failed to take the members of", err)
	}
	if q.calls.Add(1); hasSessions {
		m.last = e.Index
	}
	if q.isOnDisk() {
		storeMax(&q.kept, e.Index)
	}
	return nil
}

// ascending returns ids that the machine may keep.
func ascending(ids []uint64) []uint64 {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return ids
}
