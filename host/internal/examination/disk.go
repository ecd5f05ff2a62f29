package examination

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
)

// findFullDisk finds a disk that refuses this group's entries.
func (e *examination) findFullDisk() {
	q := e.Disk.Full
	if q == nil {
		return
	}
	text, fix := "no space", "make space on the disk of this host's directory; the host continues by itself"
	if q.Err != nil {
		text = q.Err.Error()
		if vfs.IsShort(q.Err) {
			fix = "let the process open more files (ulimit -n, LimitNOFILE), or end what holds the machine's; the host continues by itself"
		}
	}
	e.found(diagnosis.CodeDiskFull, 0, q.Since, fix,
		"the log refuses entries, and %d bytes of them wait in memory: %s; the member votes and accepts nothing else", q.Bytes, text)
}

// findStalledDisk finds an append lane that completes nothing, and reads for followers that do not return.
func (e *examination) findStalledDisk() {
	const fix = "look at the disk of this host's directory: its latency, the kernel's log, other programs that use it; if it does not recover, stop the host"
	bound := e.Bounds.Stall
	if d := &e.Disk; d.Stalls && e.Now-d.StallsAt > bound {
		e.found(diagnosis.CodeDiskStalled, 0, d.StallsAt, fix,
			"the oldest write of this host has waited for %v (Config.StallTimeout is %v), and %d bytes wait with it; %d syncs were completed before",
			e.text(e.Now-d.StallsAt), e.Config.StallTimeout, e.Load.Writing.Used, d.Syncs)
		return
	}
	for _, v := range e.followers() {
		if v.ReadingSince >= 0 && e.Now-v.ReadingSince > bound {
			e.found(diagnosis.CodeDiskStalled, 0, v.ReadingSince, fix,
				"a read of old entries for host %d has waited for %v (Config.StallTimeout is %v)", v.ID, e.text(e.Now-v.ReadingSince), e.Config.StallTimeout)
			return
		}
	}
}

// findSlowDisk finds writes that take longer than an election timeout and do not count as stalled. They
// are judged one by one: a disk that takes much at a time works.
func (e *examination) findSlowDisk() {
	if slices.ContainsFunc(e.d.Causes, func(c diagnosis.Cause) bool { return c.Code == diagnosis.CodeDiskStalled && c.Member == 0 }) {
		return
	}
	const fix = "look at the disk of this host's directory: its latency, the kernel's log, other programs that use it; commands of the groups that this host leads take as long"
	d := &e.Disk
	if d.Stalls && e.Now-d.StallsAt > e.Bounds.Election {
		e.found(diagnosis.CodeDiskSlow, 0, d.StallsAt, fix, "the oldest write of this host has waited for %v (Config.ElectionTimeout is %v, Config.StallTimeout %v)",
			e.text(e.Now-d.StallsAt), e.Config.ElectionTimeout, e.Config.StallTimeout)
		return
	}
	if s := d.Slow; s != nil {
		e.found(diagnosis.CodeDiskSlow, 0, s.Since, fix, "%d writes or syncs of this host took longer than Config.ElectionTimeout (%v) in the last %v, the longest %v, and all were completed (Config.StallTimeout is %v)",
			s.N, e.Config.ElectionTimeout, e.text(e.Now-s.Since), e.text(s.Longest), e.Config.StallTimeout)
	}
}

// findSnapshots finds snapshots that fail or hang.
func (e *examination) findSnapshots() {
	s := &e.Snapshots
	if s.Hangs != "" {
		ticks := int64(s.HangsFor / e.Bounds.Tick)
		e.found(diagnosis.CodeSnapshotHangs, 0, max(e.Now-ticks, 0), "look at the disk, and at what WriteTo of the state machine waits for; the group goes on, and its log grows until a snapshot is there",
			"this group, %s, has been at one piece of it for %v", s.Hangs, diagnosis.Rounded(s.HangsFor))
	}
	if s.Disabled && e.Now-s.FailedAt > e.Bounds.Refused() {
		return // a caller was told, and nothing waits for a snapshot
	}
	if s.Failures > 0 {
		e.found(diagnosis.CodeSnapshotFails, 0, s.FailsSince, s.fix(),
			"%d snapshots in a row could not be taken, and the log has %d entries: %v", s.Failures, s.LogEntries, s.Err)
	}
}

// fixStuck is what to do about a directory of a snapshot that this process must not touch any more, because a
// sync of it failed. Only the next process can remove it.
const fixStuck = "look at the disk and at the kernel's log, then start this host again: it removes the directory; the other snapshots and the log stay as they are"

// findStuckSnapshots finds directories that this process must not touch.
func (e *examination) findStuckSnapshots() {
	stuck := e.Snapshots.Stuck
	if len(stuck) == 0 {
		return
	}
	others := ""
	if n := len(stuck) - 1; n > 0 {
		others = fmt.Sprintf("; %d later directories are left alone, too", n)
	}
	e.add(diagnosis.Cause{Code: diagnosis.CodeSnapshotStuck, Evidence: stuck[0].Error() + others, Fix: fixStuck})
}

// findRefusedSnapshot finds that this member can use no snapshot, and needs one.
func (e *examination) findRefusedSnapshot() {
	if r := e.Snapshots.Refused; r != nil {
		e.found(diagnosis.CodeSnapshotRefused, 0, r.Since, "give this host the state machine and the pipeline that the other members have, and start it again",
			"the log of the leader begins behind entry %d, its snapshot through entry %d is refused, and committed entries behind it cannot be applied: %s", e.Status.Committed, r.Index, r.Why)
	}
}

// fix is what to do about a snapshot that could not be taken.
func (s *Snapshots) fix() string {
	if errors.As(s.Err, new(*snapshot.StuckError)) {
		return fixStuck
	}
	again := "it is tried again by itself"
	if s.Disabled {
		again = "call TakeSnapshot again, as SnapshotPolicy.Disabled is set"
	}
	what := "see the error: make space on the disk, or repair Snapshot and WriteTo of the state machine"
	if vfs.IsShort(s.Err) {
		what = "let the process open more files (ulimit -n, LimitNOFILE), or end what holds the machine's"
	}
	return what + "; " + again
}
