package sim

import (
	"slices"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
)

// All machines learn of the same members of their group, at the same entries, between the same commands, and
// once. As with commands, it comes again if a machine lost its state. The state of a simulated machine has
// the last configuration, and so has its snapshot.
//
//	promise                                              checked by
//	a configuration comes behind all that was applied    replica.inOrder
//	no machine passes one that another one has learned   replica.missesNoMembers, and ghost.learn
//	it is what hosts have in force with that entry       ghost.learn
//	no configuration of hosts is missing                 ghost.passesNoMembers
//	a restored machine has the one of its snapshot       replica.restoreMembers
//	in the end machines and hosts have the same          world.checkStates

// membersChanged is called where the machine of a replica learns of a configuration.
func (r *replica) membersChanged(c statemachine.Configuration) error {
	w, at := r.life.w, raftpb.Position{Index: c.Index}
	if r.life.dead {
		return crashfs.ErrCrashed
	}
	if r.suspect {
		w.breaks(property.StateMachineSafety, "the machine of %s has halted, and learns of the members of entry %d before its state was restored", r.name, c.Index)
	}
	r.inOrder(at)
	r.atVersion(at, c.Version)
	if c.Time < r.watch.time || w.calls == nil && c.Time > 0 {
		w.breaks(property.ExactlyOnce, "%s learns of the members of entry %d at log time %v, after %v", r.name, c.Index, c.Time, r.watch.time)
	}
	r.ghost.learn(r, c)
	r.watch.applied, r.members = wholeEntry(c.Index), c.Index
	w.count(Configurations)
	return nil
}

// learn checks and records a configuration of which a machine learns.
func (g *ghost) learn(r *replica, c statemachine.Configuration) {
	w, conf := r.life.w, confOf(c)
	if first, known := g.configurations[c.Index]; known {
		if first.Term != c.Term || first.Time != c.Time || confOf(first).Equivalent(conf) != nil {
			w.breaks(property.StateMachineSafety, "%s learns of members %+v, and another machine, or this one before, has learned of %+v", r.name, c, first)
		}
		return
	}
	if was, known := g.rosters[c.Index]; known {
		was.AutoLeave = false
		if was.Equivalent(conf) != nil {
			w.breaks(property.StateMachineSafety, "the machine of %s learns of members %+v, and hosts have %v with that entry", r.name, c, was)
		}
	}
	if last := max(g.last(), g.learnedThrough(^uint64(0))); last > c.Index {
		w.breaks(property.StateMachineSafety, "%s learns of the members of entry %d, and a machine that has not learned of them has applied entry %d", r.name, c.Index, last)
	}
	g.passesNoMembers(r, c.Index)
	g.configurations[c.Index] = c
	g.learned = append(g.learned, c.Index)
}

// passesNoMembers: machines learn of each configuration that hosts had in force before an entry.
func (g *ghost) passesNoMembers(r *replica, index uint64) {
	last := g.learnedThrough(index)
	for version, conf := range g.rosters {
		if conf.AutoLeave = false; 0 < last && last < version && version < index && conf.Equivalent(confOf(g.configurations[last])) != nil {
			r.life.w.breaks(property.StateMachineSafety, "%s learns of the members of entry %d, and no machine has learned of those of entry %d, %v", r.name, index, version, conf)
		}
	}
}

// confOf returns the configuration as the core has it, apart from how it is left.
func confOf(c statemachine.Configuration) raftpb.ConfState {
	return raftpb.ConfState{Voters: c.Voters, VotersOutgoing: c.Outgoing, Learners: c.Learners, LearnersNext: c.LearnersNext}
}

// learnedThrough returns the last entry through an index of whose members a machine has learned, or 0.
func (g *ghost) learnedThrough(index uint64) (last uint64) {
	n, found := slices.BinarySearch(g.learned, index)
	switch {
	case found:
		return index
	case n > 0:
		return g.learned[n-1]
	}
	return 0
}

// missesNoMembers: a machine that is given an entry has learned of all members before.
func (r *replica) missesNoMembers(at raftpb.Position) {
	if last := r.ghost.learnedThrough(at.Index - 1); last != r.members {
		r.life.w.breaks(property.StateMachineSafety, "%s is given entry %v, and knows the members of entry %d, and others have learned of those of entry %d", r.name, at, r.members, last)
	}
}

// restoreMembers makes the members those of a snapshot at an index.
func (r *replica) restoreMembers(index, members uint64) {
	if last := r.ghost.learnedThrough(index); last != members {
		r.life.w.breaks(property.SnapshotIsState, "%s is restored to entry %d, and the snapshot has the members of entry %d; machines have learned of those of entry %d", r.name, index, members, last)
	}
	r.members = members
}

// checkMembers: in the end the machine of a replica and its host have the same members.
func (r *replica) checkMembers() {
	w, g := r.life.w, r.ghost
	if w.diverging != nil || w.hardware != nil || w.user != nil && len(g.learned) == 0 {
		return // their machines do not ask
	}
	m := r.group.Members()
	last := g.learnedThrough(^uint64(0))
	have := confOf(g.configurations[r.members])
	want := raftpb.ConfState{Voters: m.Voters, VotersOutgoing: m.Outgoing, Learners: m.Learners, LearnersNext: have.LearnersNext}
	if r.members != last || have.Equivalent(want) != nil {
		w.breaks(property.StateMachineSafety, "the machine of %s has learned of the members of entry %d, %+v, others of those of entry %d, and its host has %+v", r.name, r.members, have, last, want)
	}
}

// MembersChanged implements statemachine.MembersObserver.
func (m stateMachine) MembersChanged(c statemachine.Configuration) error {
	return m.replica.membersChanged(c)
}

// MembersChanged implements statemachine.MembersObserver.
func (m callMachine) MembersChanged(c statemachine.Configuration) error {
	return m.replica.membersChanged(c)
}

// MembersChanged implements statemachine.MembersObserver: in a transaction of its own.
func (m diskMachine) MembersChanged(c statemachine.Configuration) error {
	if err := m.callMachine.MembersChanged(c); err != nil {
		return err
	}
	m.state.commands = append(m.state.commands, diskCommand{index: c.Index, time: c.Time, members: c.Index})
	if m.state.ends = append(m.state.ends, len(m.state.commands)); m.disks.rng.IntN(2) == 0 {
		m.state.sync()
	}
	return nil
}

// observingMachine is a watchedMachine that learns of members. One on a disk of its own does so only if the
// user's machine does: that says by an index what it has.
type observingMachine[C, R any] struct{ *watchedMachine[C, R] }

// observing returns the machine as the host gets it.
func (m *watchedMachine[C, R]) observing() millrace.DurableStateMachine[numbered[C], R] {
	if _, is := m.user.(statemachine.MembersObserver); m.durable != nil && !is {
		return m
	}
	return observingMachine[C, R]{m}
}

// MembersChanged implements millrace.MembersObserver. The user's machine gets it if it is one.
func (m observingMachine[C, R]) MembersChanged(c statemachine.Configuration) error {
	if err := m.replica.membersChanged(c); err != nil {
		return err
	}
	if user, is := m.user.(statemachine.MembersObserver); is {
		if err := user.MembersChanged(c); err != nil {
			return err
		}
	}
	m.applied = c.Index
	return nil
}
