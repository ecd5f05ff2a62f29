package host

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
)

// A member whose machine is halted gets a snapshot of another member. One of an entry before the command does
// not matter, and one of an entry behind it makes the machine work again, with the state of the others.
func TestHaltedMachineInstalls(t *testing.T) {
	c := newInstallCluster(t, 6).start()
	c.load("commands", 1, func() bool { return c.calls > 20 })
	leader := c.leader()
	behind := c.hosts[leader.id%3]
	taking := leader.group.StartSnapshot()
	c.load("a snapshot of the leader", 0, func() bool { _, done, _ := taking.Poll(); return done })
	if _, _, err := taking.Poll(); err != nil {
		t.Fatal(err)
	}
	before := leader.group.snapshots.Latest()
	given := 0
	behind.machine.fails = func(*statemachine.Command) error {
		given++
		return errMachine
	}
	c.load("a command halts a machine", 1, func() bool { return behind.group.Halted() != nil })
	var halted *outcome.HaltedError
	if err := behind.group.Halted(); !errors.As(err, &halted) || halted.First <= before.ID.Index {
		t.Fatalf("halted by %v, and the snapshot is of entry %d", err, before.ID.Index)
	}
	behind.group.snapshots.Received.Store(before)
	behind.group.want(dutyInstall)
	behind.group.wake()
	c.load("the turn looks at it", 0, func() bool { return behind.group.snapshots.Received.Load() == nil })
	if behind.group.Halted() == nil || given != 1 || count[event.MachineResumed](behind) > 0 {
		t.Errorf("after a snapshot of entry %d: %v; Apply was called %d times", before.ID.Index, behind.group.Halted(), given)
	}
	c.isolate(behind.id)
	c.load("log grows", 2, func() bool { return c.isBeyond(behind.id) })
	c.heal()
	behind.machine.fails = nil
	c.load("the member installs", 1, func() bool { return count[event.SnapshotInstalled](behind) > 0 })
	c.load("all are equal", 0, c.equal)
	if d := behind.group.Explain(); behind.group.Halted() != nil || d.Has(diagnosis.CodeMachineHalted) || count[event.MachineResumed](behind) != 1 || given != 1 {
		t.Errorf("after a snapshot behind the command: %v, %v; Apply was called %d times before", behind.group.Halted(), d, given)
	}
}

// The core of a member whose machine is halted learns that all that is committed is out of its way: it may
// campaign and change members. The member says what its machine has applied.
func TestHaltedMachineDoesNotHoldTheCore(t *testing.T) {
	l := openTestHost(t, 3)
	l.machine.fail = func(e statemachine.Entry) error {
		if e.Index == 3 {
			return errMachine
		}
		return nil
	}
	l.commit(theGroup, 1, 2)
	l.commit(theGroup, 2, 3)
	for at := uint64(3); at < 9; at += 2 {
		l.commit(theGroup, at, at+2)
	}
	if core := l.group.core.node.BasicStatus(); core.Commit != 8 || core.Applied != 8 {
		t.Errorf("the core has committed through %d and applied through %d, want 8", core.Commit, core.Applied)
	}
	if s := l.group.Status(); s.Applied != 2 || l.group.Halted() == nil || !slices.Equal(l.machine.indexes(), []uint64{1, 2}) {
		t.Errorf("%+v, %v, given %v; want it halted at 3", s, l.group.Halted(), l.machine.indexes())
	}
	if work := l.group.machine.apply.Messages(); work > 2 || l.group.machine.apply.Held() > 2*proposals.OverheadBytes {
		t.Errorf("%d messages of %d bytes wait for the machine, want ranges of the log", work, l.group.machine.apply.Held())
	}
	if err := l.Close(over()); err != nil {
		t.Log(err)
	}
}
