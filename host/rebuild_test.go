package host

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// handIn hands commands in, which become one batch, and returns what their callers are told.
func (h *keeperHost) handIn(t fataler, texts ...string) (told []*answer) {
	t.Helper()
	for _, text := range texts {
		o := &answer{}
		if err := h.group.Call(&Call{Owner: o, Data: append(make([]byte, CallRoom), text...)}); err != nil {
			t.Fatal(err)
		}
		told = append(told, o)
	}
	return told
}

// passSecond makes a checkpoint due at the next command.
func (h *keeperHost) passSecond() {
	for until := h.manual.now + time.Second; h.manual.now < until; {
		h.manual.tick()
	}
}

// names returns the commands that the machine has, without their indexes and times.
func (k *keeper) names() (names []string) {
	for _, line := range k.list {
		names = append(names, strings.Fields(line)[1])
	}
	return names
}

// failsOnce makes the machine fail at the next command of each of these names, once each.
func (k *keeper) failsOnce(names ...string) {
	k.fails = func(c *statemachine.Command) error {
		if i := slices.Index(names, string(c.Data)); i >= 0 {
			names = slices.Delete(names, i, i+1)
			return errMachine
		}
		return nil
	}
}

// A machine is made again from a snapshot, and fails meanwhile, at a command that it had applied. However
// often that is, it goes on where it was: no command is left out.
func TestRebuildLeavesNothingOut(t *testing.T) {
	h := openKeeper(t, GroupConfig{}, false)
	h.call(t, nil, "a")
	h.mustTake(t)
	for _, text := range []string{"b", "c", "d"} {
		h.call(t, nil, text)
	}
	h.keeper.failsOnce("e", "c")
	h.handIn(t, "e", "f")
	h.manual.runIdle()
	h.call(t, nil, "g")
	if have, want := h.keeper.names(), []string{"a", "b", "c", "d", "e", "f", "g"}; h.group.Halted() != nil || !slices.Equal(have, want) {
		t.Errorf("the machine has %v, want %v; %v", have, want, h.group.Halted())
	}
}

// A machine that is made again finds no descriptor for the snapshot, or for the log. It is made again as soon
// as there is one.
func TestRebuildWithoutDescriptors(t *testing.T) {
	for from := range 8 {
		h := openKeeper(t, GroupConfig{}, false)
		h.call(t, nil, "a")
		h.mustTake(t)
		for _, text := range []string{"b", "c", "d"} {
			h.call(t, nil, text)
		}
		n := 0
		h.disk.SetHook(func(op crashfs.Op) error {
			if !op.Kind.Opens() {
				return nil
			}
			if n++; n > from && n <= from+3 {
				return syscall.EMFILE
			}
			return nil
		})
		h.keeper.failsOnce("e")
		h.handIn(t, "e", "f")
		for range 8 {
			h.manual.tick()
		}
		if have, want := h.keeper.names(), []string{"a", "b", "c", "d", "e", "f"}; h.group.Halted() != nil || !slices.Equal(have, want) {
			t.Errorf("from open %d (of %d): the machine has %v, want %v; %v", from, n, have, want, h.group.Halted())
		}
	}
}

// All callers of a batch that halted the machine are told, also if lanes make it work again before a turn. So
// is a member that the leader's reports go to: it gets each checkpoint once.
func TestRebuildTellsTheCallers(t *testing.T) {
	h := openKeeper(t, GroupConfig{}, false)
	h.call(t, nil, "a")
	h.mustTake(t)
	h.manual.lastTurn = true
	h.keeper.failsOnce("c")
	told := h.handIn(t, "b", "c", "d")
	h.manual.runIdle()
	for i, o := range told {
		if !strings.Contains(o.text, outcome.ErrNoResult.Error()) {
			t.Errorf("caller %d is told %q, want %v", i, o.text, outcome.ErrNoResult)
		}
	}
	if have, want := h.keeper.names(), []string{"a", "b", "c", "d"}; h.group.Halted() != nil || !slices.Equal(have, want) {
		t.Errorf("the machine has %v, want %v; %v", have, want, h.group.Halted())
	}
}

// A machine that applies commands again takes the same checkpoints again. The report about them is one that
// the leader can read.
func TestCheckpointsAscendAfterAHalt(t *testing.T) {
	for _, h := range []*keeperHost{openKeeper(t, GroupConfig{}, false), openSharing(t)} {
		h.call(t, nil, "a")
		h.mustTake(t)
		h.passSecond()
		h.keeper.failsOnce("c")
		h.handIn(t, "b", "c")
		h.manual.runIdle()
		r := h.group.machine.divergence.Report()
		if _, _, err := divergence.Decode(r.Encode()); err != nil || len(r.Checkpoints) == 0 {
			t.Errorf("shares %v: %+v: %v", h.shares, r, err)
		}
		if have, want := h.keeper.names(), []string{"a", "b", "c"}; h.group.Halted() != nil || !slices.Equal(have, want) {
			t.Errorf("shares %v: the machine has %v, want %v; %v", h.shares, have, want, h.group.Halted())
		}
		if shared := h.keeper.places == 2; shared != h.shares {
			t.Errorf("shares %v: the last entry has %d commands", h.shares, h.keeper.places)
		}
	}
}

// Digest panics behind a command that is skipped. The machine halts, and the process goes on.
func TestDigestPanicsBehindASkip(t *testing.T) {
	h := openKeeper(t, GroupConfig{}, false)
	h.call(t, nil, "a")
	h.mustTake(t)
	h.passSecond()
	h.keeper.fails = func(c *statemachine.Command) error {
		if string(c.Data) == "x" {
			return errMachine
		}
		return nil
	}
	h.call(t, nil, "x")
	halted := h.group.machine.apply.Halted()
	if halted == nil {
		t.Fatal("the machine works")
	}
	h.keeper.sum = func() uint64 { panic("no such shelf") }
	e := h.group.StartSkip(raftpb.Position{Index: halted.First})
	for range 8 {
		h.manual.tick()
	}
	if done, err := e.Poll(); !done || err != nil {
		t.Errorf("the skip: %t, %v", done, err)
	}
	if have := h.group.machine.apply.Halted(); have == nil || have.First != halted.First || !strings.Contains(have.Error(), "Digest of the state machine panicked") {
		t.Errorf("the machine: %v", have)
	}
	if n := h.group.machine.apply.Halts(); n > 3 {
		t.Errorf("it has halted %d times", n)
	}
}

// A machine that keeps its state on disk passes a command by, and the note about that finds no descriptor, or
// no space, for a while. Nothing stops, and no command is applied twice.
func TestPassedCommandIsNotedLater(t *testing.T) {
	for _, cause := range []error{syscall.EMFILE, syscall.ENOSPC} {
		h := openKeeper(t, GroupConfig{}, true)
		h.keeper.fails = func(c *statemachine.Command) error {
			if string(c.Data) == "x" {
				return errMachine
			}
			return nil
		}
		h.call(t, nil, "a")
		h.handIn(t, "x", "b")
		h.manual.runIdle()
		h.restart(t, crashfs.LoseNothing, nil) // it says which
		e := h.group.StartSkip(raftpb.Position{Index: h.group.machine.apply.Halted().First})
		for range 8 {
			h.manual.tick()
		}
		if done, err := e.Poll(); !done || err != nil {
			t.Fatalf("the skip: %t, %v", done, err)
		}
		refused := 0
		h.disk.SetHook(func(op crashfs.Op) error {
			if op.Kind != crashfs.OpCreate || !strings.Contains(op.Name, apply.NoteFile) || refused == 3 {
				return nil
			}
			refused++
			return cause
		})
		h.keeper.index, h.keeper.list = 0, nil // its disk was emptied: it gets all again
		h.restart(t, crashfs.LoseNothing, nil)
		for range 8 {
			h.manual.tick()
		}
		if have, want := h.keeper.names(), []string{"a", "b"}; h.group.Err() != nil || h.group.Halted() != nil || !slices.Equal(have, want) {
			t.Errorf("%v: the machine has %v, want %v; %v; %v", cause, have, want, h.group.Err(), h.group.Halted())
		}
		if refused != 3 {
			t.Errorf("%v: %d creations were refused", cause, refused)
		}
	}
}
