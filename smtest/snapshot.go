package smtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing/iotest"

	"github.com/millrace/millrace"
)

// checkSnapshots: a machine that restores a snapshot continues like the one that wrote it, and the snapshot
// is the state at the moment of the call, whenever it is written.
func (k *kit[C, R]) checkSnapshots() error {
	const places = 8
	ats := make([]int, places+1)
	for i := range ats {
		ats[i] = i * len(k.encoded) / places
	}
	for _, at := range slices.Compact(ats) {
		for _, how := range []string{"", "after the other commands were applied", "while the other commands are applied"} {
			if err := k.checkSnapshot(at, how); err != nil {
				return err
			}
		}
	}
	return k.checkWriteError()
}

// checkSnapshot takes a snapshot after a number of commands and writes it at once or later.
func (k *kit[C, R]) checkSnapshot(at int, how string) error {
	origin, err := k.after(at)
	if err != nil {
		return err
	}
	defer closeMachine(origin)
	before, err := stateOf(origin)
	if err != nil {
		return err
	}
	snap, err := takeSnapshot(origin.StateMachine())
	if err != nil {
		return err
	}
	var (
		written []byte
		rest    []R
		late    error
	)
	apply := func() (err error) {
		rest, err = k.apply(origin, setup{batches: oneByOne}, at, len(k.encoded))
		return err
	}
	done := make(chan struct{})
	switch how {
	case "":
		if written, err = writeSnapshot(snap); err == nil {
			err = apply()
		}
		close(done)
	case "after the other commands were applied":
		if err = apply(); err == nil {
			written, err = writeSnapshot(snap)
		}
		close(done)
	default:
		go func() {
			defer close(done)
			written, late = writeSnapshot(snap)
		}()
		err = apply()
	}
	<-done
	if err := errors.Join(err, late); err != nil {
		return err
	}
	end, err := stateOf(origin)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("a machine that restores the snapshot of another one taken after %d of %d commands", at, len(k.encoded))
	if how != "" {
		what += ", and written " + how + ","
	}
	for _, used := range []bool{false, true} {
		if used {
			what += ", after it has applied all commands itself,"
		}
		if err := k.checkRestored(what, used, written, at, before, &trace[C, R]{results: rest, state: end}); err != nil {
			return err
		}
	}
	return nil
}

// checkRestored restores a snapshot, in a new machine or in a used one, and applies the rest of the commands.
func (k *kit[C, R]) checkRestored(what string, used bool, snapshot []byte, at int, before state, rest *trace[C, R]) error {
	n := 0
	if used {
		n = len(k.encoded)
	}
	m, err := k.after(n)
	if err != nil {
		return err
	}
	defer closeMachine(m)
	if err := restore(m.StateMachine(), iotest.OneByteReader(reader(snapshot))); err != nil {
		return fmt.Errorf("Restore returns an error for a snapshot of %d bytes that Snapshot has written, read byte by byte: %w", len(snapshot), err)
	}
	now, err := stateOf(m)
	if err != nil {
		return err
	}
	if err := before.differs(now); err != nil {
		return fmt.Errorf("%s has another state: %w", what, err)
	}
	results, err := k.apply(m, setup{batches: oneByOne}, at, len(k.encoded))
	if err != nil {
		return err
	}
	for i := range results {
		if !same(results[i], rest.results[i]) {
			return fmt.Errorf("%s continues differently: %s gives %s, want %s as in the machine that wrote it", what, k.name(at+i), show(results[i]), show(rest.results[i]))
		}
	}
	end, err := stateOf(m)
	if err != nil {
		return err
	}
	if err := rest.state.differs(end); err != nil {
		return fmt.Errorf("%s continues differently: at the end %w", what, err)
	}
	return nil
}

// after returns a new machine that has applied the first commands.
func (k *kit[C, R]) after(n int) (millrace.Machine[C, R], error) {
	m := k.newMachine()
	if _, err := k.apply(m, setup{batches: drawn}, 0, n); err != nil {
		closeMachine(m)
		return m, err
	}
	return m, nil
}

// checkWriteError: a snapshot that could not be written whole must not pass for one.
func (k *kit[C, R]) checkWriteError() error {
	m, err := k.after(len(k.encoded))
	if err != nil {
		return err
	}
	defer closeMachine(m)
	first, err := takeSnapshot(m.StateMachine())
	if err != nil {
		return err
	}
	length, err := writtenBy(first)
	if err != nil {
		return err
	}
	whole := int(length)
	for _, space := range []int{0, whole / 2, whole - 1} {
		if space < 0 || space >= whole {
			continue
		}
		snap, err := takeSnapshot(m.StateMachine())
		if err != nil {
			return err
		}
		err = snap.WriteTo(context.Background(), &fullWriter{space})
		if closed := snap.Close(); closed != nil {
			return fmt.Errorf("Close of a snapshot whose WriteTo has failed returns an error: %w", closed)
		}
		if err == nil {
			return fmt.Errorf("WriteTo of the snapshot returns nil, although its writer has failed after %d of %d bytes", space, whole)
		}
	}
	return nil
}

// fullWriter takes some bytes and then fails.
type fullWriter struct{ space int }

var errBroken = errors.New("smtest: this is as far as it goes")

func (w *fullWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.space)
	if w.space -= n; n < len(p) {
		return n, errBroken
	}
	return n, nil
}

// reader hides everything but Read.
func reader(b []byte) io.Reader { return &plainReader{b} }

type plainReader struct{ rest []byte }

func (r *plainReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
