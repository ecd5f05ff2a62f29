package smtest

import (
	"fmt"
	"io"
	"slices"

	"github.com/millrace/millrace"
)

// checkRestore: a Restore that fails has changed nothing. Otherwise a member whose connection breaks in the
// middle of a snapshot continues with a state that no member has ever had.
func (k *kit[C, R]) checkRestore() error {
	all, err := k.after(len(k.encoded))
	if err != nil {
		return err
	}
	defer closeMachine(all)
	whole, err := stateOf(all)
	if err != nil {
		return err
	}
	at := len(k.encoded) / 2
	reference, err := k.after(at)
	if err != nil {
		return err
	}
	defer closeMachine(reference)
	old, err := stateOf(reference)
	if err != nil {
		return err
	}
	rest, err := k.apply(reference, setup{batches: oneByOne}, at, len(k.encoded))
	if err != nil {
		return err
	}
	for _, n := range cuts(len(whole.bytes)) {
		for _, broken := range []error{errBroken, io.ErrUnexpectedEOF} {
			if err := k.checkBroken(whole, n, broken, at, old, rest); err != nil {
				return err
			}
		}
	}
	return nil
}

// cuts returns places at which a snapshot breaks off: all of a short one.
func cuts(length int) []int {
	const most = 32
	var at []int
	for i := range most {
		at = append(at, i*length/most, length-1-i)
	}
	slices.Sort(at)
	return slices.DeleteFunc(slices.Compact(at), func(n int) bool { return n < 0 || n >= length })
}

// checkBroken restores a snapshot whose reader fails after n bytes, in a machine with the state old, and then
// applies the rest of the commands, which must give the results rest.
func (k *kit[C, R]) checkBroken(whole state, n int, broken error, at int, old state, rest []R) error {
	m, err := k.after(at)
	if err != nil {
		return err
	}
	defer closeMachine(m)
	restored := restore(m.StateMachine(), io.MultiReader(reader(whole.bytes[:n]), &brokenReader{broken}))
	now, err := stateOf(m)
	if err != nil {
		return fmt.Errorf("after a Restore whose reader has failed after %d of %d bytes: %w", n, len(whole.bytes), err)
	}
	if restored == nil {
		if err := whole.differs(now); err != nil {
			return fmt.Errorf("Restore returns nil, although its reader has failed after %d of %d bytes, and then %w", n, len(whole.bytes), err)
		}
		return nil // what is missing did not matter, such as a newline
	}
	if err := old.differs(now); err != nil {
		return fmt.Errorf("Restore is not atomic: it returns an error, because its reader has failed after %d of %d bytes, and the state is not what it was before: %w; read everything before you replace anything", n, len(whole.bytes), err)
	}
	results, err := k.apply(m, setup{batches: oneByOne}, at, len(k.encoded))
	if err != nil {
		return fmt.Errorf("after a Restore that has failed: %w", err)
	}
	for i := range results {
		if !same(results[i], rest[i]) {
			return fmt.Errorf("Restore is not atomic: it returns an error, because its reader has failed after %d of %d bytes, and then %s gives %s, and %s without the Restore; read everything before you replace anything", n, len(whole.bytes), k.name(at+i), show(results[i]), show(rest[i]))
		}
	}
	return nil
}

// brokenReader fails.
type brokenReader struct{ err error }

func (r *brokenReader) Read([]byte) (int, error) { return 0, r.err }

// checkDurable: a durable machine says what it has on its disk.
func (k *kit[C, R]) checkDurable() error {
	m := k.newMachine()
	defer closeMachine(m)
	d, ok := m.StateMachine().(millrace.DurableStateMachine[C, R])
	if !ok {
		return nil
	}
	applied := func(when string, lo, hi uint64) error {
		switch got, err := d.Applied(); {
		case err != nil:
			return fmt.Errorf("Applied of %s returns an error: %w", when, err)
		case got < lo || got > hi:
			return fmt.Errorf("Applied of %s is %d, want %d to %d", when, got, lo, hi)
		}
		return nil
	}
	if err := applied("a new machine", 0, 0); err != nil {
		return err
	}
	if _, err := k.apply(m, setup{batches: drawn}, 0, len(k.encoded)); err != nil {
		return err
	}
	last, _, _ := logPosition(len(k.encoded) - 1)
	if err := applied("a machine that has applied all commands", 0, last); err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		return fmt.Errorf("Sync returns an error: %w", err)
	}
	return applied("a machine that has applied all commands, after Sync,", last, last)
}
