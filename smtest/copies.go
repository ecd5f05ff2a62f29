package smtest

import (
	"context"
	"fmt"
	"runtime"

	"github.com/millrace/millrace"
)

// checkCopies: Snapshot does not copy a large state. Nothing is applied until it returns, so a member whose
// state has a gigabyte would stand still for a second each time. A state of less than smallState may be
// copied: that takes less than a disk takes to sync.
func (k *kit[C, R]) checkCopies() error {
	m, err := k.after(len(k.encoded))
	if err != nil {
		return err
	}
	defer closeMachine(m)
	least, length := uint64(1<<63), int64(0)
	for range 3 { // other goroutines allocate, too
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		snap, err := takeSnapshot(m.StateMachine())
		if err != nil {
			return err
		}
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
		if length, err = writtenBy(snap); err != nil {
			return err
		}
	}
	if length >= smallState && least >= uint64(length)/2 {
		return fmt.Errorf("Snapshot allocates %d bytes for a state that takes %d bytes when it is written: it copies or encodes the state while nothing is applied; return a view of it (a pointer to what is never changed in place), and encode that in WriteTo", least, length)
	}
	return nil
}

const smallState = 1 << 20

// writtenBy writes a snapshot to nowhere, closes it, and returns the length of its stream.
func writtenBy(snap millrace.Snapshot) (int64, error) {
	var n counted
	if err := snap.WriteTo(context.Background(), &n); err != nil {
		_ = snap.Close()
		return 0, fmt.Errorf("WriteTo of the snapshot returns an error: %w", err)
	}
	if err := snap.Close(); err != nil {
		return 0, fmt.Errorf("Close of the snapshot returns an error: %w", err)
	}
	return int64(n), nil
}

type counted int64

func (c *counted) Write(p []byte) (int, error) {
	*c += counted(len(p))
	return len(p), nil
}
