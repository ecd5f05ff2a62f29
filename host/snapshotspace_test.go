package host

import (
	"fmt"
	"io"
	"syscall"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
)

// fullKeeper has a state for whose snapshots there is no space, and counts how often they are written.
func fullKeeper(t *testing.T, p SnapshotPolicy) (h *keeperHost, tries *int) {
	t.Helper()
	h, tries = openKeeper(t, GroupConfig{Snapshots: p}, false), new(int)
	h.keeper.wrong = func(io.Writer) error {
		*tries++
		return fmt.Errorf("write: %w", syscall.ENOSPC)
	}
	h.call(t, nil, "a command")
	if _, err := h.take(t); err == nil || !h.group.Explain().Has(diagnosis.CodeSnapshotFails) {
		t.Fatalf("setup: %v, %v", err, h.group.Explain())
	}
	return h, tries
}

// timeouts lets election timeouts pass.
func (h *keeperHost) timeouts(n int) {
	for range n * h.Host.config.electionTicks() {
		h.manual.tick()
	}
}

// Space comes back. However long it was away, the next snapshot comes soon, and the cause ends.
func TestSpaceThatComesBackEndsTheCause(t *testing.T) {
	for name, capacity := range map[string]int64{"the disk knows its space": 1 << 30, "it does not": 0} {
		t.Run(name, func(t *testing.T) {
			h, _ := fullKeeper(t, SnapshotPolicy{})
			h.disk.SetCapacity(capacity)
			h.timeouts(300)
			h.keeper.wrong = nil
			h.disk.SetCapacity(2 * capacity)
			h.timeouts(9)
			if d := h.group.Explain(); d.Has(diagnosis.CodeSnapshotFails) {
				t.Errorf("nine election timeouts after space came back: %v", d)
			}
		})
	}
}

// As long as the disk has no more space than before, only a few tries write anything. A caller gets a try.
func TestNoTryFillsTheDiskForNothing(t *testing.T) {
	h, tries := fullKeeper(t, SnapshotPolicy{})
	h.disk.SetCapacity(1 << 30)
	h.timeouts(8 * 100)
	if m := h.group.Metrics().Snapshots; *tries < 4 || *tries > 9 || m.FailedInARow < 90 {
		t.Errorf("%d tries wrote something, and %d have failed, want about one for each power of two", *tries, m.FailedInARow)
	}
	before := *tries
	if _, err := h.take(t); err == nil || *tries != before+1 {
		t.Errorf("the try of a caller: %d, %v", *tries-before, err)
	}
}

// A group that takes snapshots for its callers only has told them what is wrong. Nothing is tried again, so
// the cause does not stay.
func TestAFailedSnapshotOfACallerIsNamedForAWhile(t *testing.T) {
	h, tries := fullKeeper(t, SnapshotPolicy{Disabled: true})
	if fix := h.group.Explain().Causes[0].Fix; !containsEach(fix, []string{"call TakeSnapshot again"}) {
		t.Errorf("what to do: %s", fix)
	}
	h.timeouts(9)
	if d := h.group.Explain(); d.Has(diagnosis.CodeSnapshotFails) || *tries > 1 {
		t.Errorf("after %d tries: %v", *tries, d)
	}
}
