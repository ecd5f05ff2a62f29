package sim

import (
	"fmt"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Users' machines that keep their state on disks of their own (Workload.Durable). What such a machine has
// after a start is what its index says: the commands of hosts through it. Its results, its digest and what it
// applies next show whether that is so.

// ask returns a machine of the user that no host has.
func (u *userRun[C, R]) ask() millrace.Machine[C, R] {
	if u.load.Durable != nil {
		return u.load.Durable(0, 0)
	}
	return u.load.Machine(1)
}

// start returns the machine of a process that starts.
func (u *userRun[C, R]) start(h *machine) millrace.Machine[C, R] {
	if u.load.Durable == nil {
		return u.load.Machine(h.id)
	}
	number, ok := u.disks[h.disk]
	if !ok {
		number = uint64(len(u.disks)) + 1
		u.disks[h.disk] = number
	}
	return u.load.Durable(h.id, number)
}

// resume makes what a machine has on its disk the state of its replica.
func (m *watchedMachine[C, R]) resume() error {
	if m.run.load.Durable == nil {
		return nil
	}
	durable, ok := m.user.(millrace.DurableStateMachine[C, R])
	if !ok {
		return fmt.Errorf("sim: Workload.Durable returns a Machine with a %T, which is no DurableStateMachine", m.user)
	}
	m.durable = durable
	index, err := durable.Applied()
	if err != nil {
		return err
	}
	r := m.replica
	if index > r.ghost.last() {
		r.life.w.breaks(property.StateMachineSafety, "the machine of %s says that its disk has the commands through entry %d, and no host has applied more than %d", r.name, index, r.ghost.last())
	}
	for at, c := range r.ghost.commands(1, index) {
		r.addToState(c.command)
		r.watch.time = m.run.times[at.Index]
	}
	if index > 0 {
		r.watch.applied = wholeEntry(index)
	}
	m.applied = index
	return nil
}

// Applied implements millrace.DurableStateMachine. A machine in memory counts what it has applied.
func (m *watchedMachine[C, R]) Applied() (uint64, error) {
	if m.durable == nil {
		return m.applied, nil
	}
	if m.replica.life.dead {
		return 0, crashfs.ErrCrashed
	}
	return m.durable.Applied()
}

// Sync implements millrace.DurableStateMachine.
func (m *watchedMachine[C, R]) Sync() error {
	if m.durable == nil {
		return nil
	}
	if m.replica.life.dead {
		return crashfs.ErrCrashed
	}
	return m.durable.Sync()
}
