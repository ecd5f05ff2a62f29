package host

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
)

// What Explain says of directories of snapshots that this process must not touch any more, because a sync of
// them failed. Only the next process can remove them.

// fixStuck is what to do about them.
const fixStuck = "look at the disk and at the kernel's log, then start this host again: it removes the directory; the other snapshots and the log stay as they are"

// lookForStuckSnapshots finds directories that this process must not touch.
func (e *examination) lookForStuckSnapshots() {
	stuck := e.snapshots.Stuck()
	if len(stuck) == 0 {
		return
	}
	others := ""
	if n := len(stuck) - 1; n > 0 {
		others = fmt.Sprintf("; %d later directories are left alone, too", n)
	}
	e.add(diagnosis.Cause{Code: diagnosis.CodeSnapshotStuck, Evidence: stuck[0].Error() + others, Fix: fixStuck})
}

// fix is what to do about a snapshot that could not be taken.
func (s *groupSnapshots) fix(err error) string {
	if errors.As(err, new(*snapshot.StuckError)) {
		return fixStuck
	}
	again := "it is tried again by itself"
	if s.Policy.Disabled {
		again = "call TakeSnapshot again, as SnapshotPolicy.Disabled is set"
	}
	what := "see the error: make space on the disk, or repair Snapshot and WriteTo of the state machine"
	if vfs.IsShort(err) {
		what = "let the process open more files (ulimit -n, LimitNOFILE), or end what holds the machine's"
	}
	return what + "; " + again
}

// lookForSnapshots finds snapshots that fail or hang (Explain).
func (e *examination) lookForSnapshots() {
	s := &e.snapshots
	if doing, since, hangs := e.host.bulk.snapshotLanes.HangsFor(&s.Seat); hangs {
		ticks := int64(since / e.host.config.tickPeriod())
		e.found(diagnosis.CodeSnapshotHangs, 0, max(e.now-ticks, 0), "look at the disk, and at what WriteTo of the state machine waits for; the group goes on, and its log grows until a snapshot is there",
			"this group, %s, has been at one piece of it for %v", doing, diagnosis.Rounded(since))
	}
	failures, err, since, latest := s.Failures()
	if s.Policy.Disabled && e.now-latest > e.host.config.refusedTicks() {
		return // a caller was told, and nothing waits for a snapshot
	}
	if failures > 0 {
		m := e.snapshotMetrics()
		e.found(diagnosis.CodeSnapshotFails, 0, since, s.fix(err),
			"%d snapshots in a row could not be taken, and the log has %d entries: %v", failures, m.LogEntries, err)
	}
}
