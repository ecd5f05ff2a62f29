// Package smtest tests a state machine before Millrace does. Is it deterministic? Is a snapshot the state
// at one moment, and Restore atomic? Does the codec of its commands return what it was given? One call in a
// test of the program does it:
//
//	func TestMachine(t *testing.T) {
//		smtest.Run(t, func() millrace.Machine[int64, int64] {
//			return millrace.InMemory(&counter{}, millrace.Binary[int64]())
//		}, 1, 2, 3, -7, 0, 1<<40)
//	}
//
// A member that applies the same commands and ends with another state is the worst that can happen to a
// replicated program. Nothing fails, and the members answer differently. Its usual causes are the order of
// a map, the clock, a random number, a goroutine, or a variable that several machines share. Run applies
// the same commands in about forty fresh machines, and changes what a state machine must not depend on.
// That is the map order (Go draws it for each loop), the clock (package testing/synctest), processors,
// boundaries of batches, and machines that work at the same time. It compares each result and the states.
//
// A machine with several versions (Machine.Versions) is tested at each of them, and with a change from each
// to the next in the middle of the commands.
//
// A machine that learns of members (millrace.MembersObserver) learns of changes between the commands, at the
// same places in each run. Who the members are is a part of its state.
//
// If the machine has timers (millrace.Machine.Timers), equal states must have an equal first timer, and
// ticks must let all of them expire.
//
// Give it commands that reach every branch of the machine and depend on one another; ten to a thousand of
// them are a good number. Run the test with -race too: then machines that share memory are found surely.
package smtest

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/millrace/millrace"
)

// Run tests a state machine with the given commands, at least one, and stops the test at the first fault
// that it finds. newMachine returns a new machine with an empty state each time; it may be called in
// several goroutines, and inside a bubble of package testing/synctest. A machine that has a Close method is
// closed after use. Run itself must not be called inside a bubble. It changes GOMAXPROCS for moments.
func Run[C, R any](t *testing.T, newMachine func() millrace.Machine[C, R], commands ...C) {
	t.Helper()
	if err := check(t, newMachine, commands); err != nil {
		t.Fatal(err)
	}
}

// check returns the first fault of a machine.
func check[C, R any](t *testing.T, newMachine func() millrace.Machine[C, R], commands []C) error {
	k, err := newKit(t, newMachine, commands)
	if err != nil {
		return err
	}
	if err := k.checkCodec(); err != nil {
		return fmt.Errorf("smtest: %w", err)
	}
	for _, k.course = range courses(k.can, len(commands)) {
		for _, part := range []func() error{
			k.checkDeterminism,
			k.checkDecoded,
			k.checkSnapshots,
			k.checkCopies,
			k.checkRestore,
			k.checkTimers,
			k.checkDurable,
		} {
			if err := k.course.wrap(k.can, part()); err != nil {
				return fmt.Errorf("smtest: %w", err)
			}
		}
	}
	return nil
}

// kit is one test of a machine.
type kit[C, R any] struct {
	t          *testing.T
	newMachine func() millrace.Machine[C, R]
	codec      millrace.Codec[C]
	commands   []C      // as the test has given them; used once, because the machine may keep and change them
	encoded    [][]byte // by the codec
	can        millrace.Versions
	course     course
	keeps      bool // results are kept, so each is awaited
	// sum returns what members compare of a result, if they do.
	sum func(R) (uint64, bool)
}

// awaits reports whether a command's result is awaited.
func (k *kit[C, R]) awaits(s setup, i int) bool { return k.keeps || s.waits.awaits(i) }

func newKit[C, R any](t *testing.T, newMachine func() millrace.Machine[C, R], commands []C) (*kit[C, R], error) {
	if len(commands) == 0 {
		return nil, errors.New("smtest: Run needs commands, best such that reach every branch of the machine")
	}
	m := newMachine()
	if m.StateMachine() == nil || m.Codec() == nil {
		return nil, errors.New("smtest: newMachine returns a Machine without a state machine or without a codec; make it with millrace.InMemory or millrace.Durable")
	}
	defer closeMachine(m)
	k := &kit[C, R]{t: t, newMachine: newMachine, codec: m.Codec(), commands: commands, keeps: m.KeepsResults(), sum: m.SumResult, can: m.CanDo()}
	if err := k.can.Validate(); err != nil {
		return nil, fmt.Errorf("smtest: %w (Machine.Versions)", err)
	}
	for i, c := range commands {
		b, err := k.codec.Append(nil, c)
		if err != nil {
			return nil, fmt.Errorf("smtest: the codec cannot encode %s: %w", k.name(i), err)
		}
		k.encoded = append(k.encoded, b[:len(b):len(b)])
	}
	return k, nil
}

// name names a command in an error.
func (k *kit[C, R]) name(i int) string {
	return fmt.Sprintf("command %d of %d, %s,", i+1, len(k.encoded), show(k.commands[i]))
}

// decode returns a new value of a command.
func (k *kit[C, R]) decode(i int) (C, error) {
	data := append([]byte(nil), k.encoded[i]...)
	c, err := k.codec.Decode(data)
	if copies, says := k.codec.(millrace.CopyingCodec[C]); says && copies.DecodeCopies() {
		for j := range data { // as a host does with memory that it reuses
			data[j] = 0xDB
		}
	}
	if err != nil {
		err = fmt.Errorf("the codec cannot decode what it has encoded for %s of %d bytes: %w", k.name(i), len(k.encoded[i]), err)
	}
	return c, err
}

func closeMachine[C, R any](m millrace.Machine[C, R]) {
	if c, ok := m.StateMachine().(io.Closer); ok {
		_ = c.Close() // what it says is not what is tested
	}
}

// maxShown bounds how much of a value an error shows, in bytes.
const maxShown = 200

func show(v any) string {
	s := fmt.Sprintf("%+v", v)
	if len(s) > maxShown {
		s = fmt.Sprintf("%s… (%d bytes)", s[:maxShown], len(s))
	}
	return s
}
