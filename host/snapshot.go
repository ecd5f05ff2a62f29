package host

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft/raftpb"
)

// Snapshots of a group on its host (thesis chapter 5). Without them a log only grows, and a restart applies
// all of it again. What a snapshot costs must not be felt by those who propose: so the state machine gives a
// view of its state in a moment, between two batches (capture), and everything that takes time is done
// elsewhere.
//
//	apply lane      capture: the machine's Snapshot, the sessions, the sums, the log time
//	snapshot lane   write the parts, sync them
//	                wait until this host's log is durable through the index
//	                publish, read back
//	turn            compact the log (compaction.go)
//	append lane     write that
//
// Invariant: a published snapshot is of an index that this host holds durably. A volatile machine may have
// applied more than that, so publishing waits. Invariant: no entry leaves the log before a snapshot that
// covers it was read back from the disk, every byte; a file that is a link to one of an earlier snapshot was
// read back then (snapshot.Store.Verify).
//
// A snapshot that fails, for a full disk or an error of the machine, is reported (event.SnapshotFailed) and
// tried again later; the group goes on. One that hangs holds its lane, and is reported as well.
//
// Rejected: to let the core ask for snapshots and wait for them. The core knows neither bytes nor disks.

// SnapshotInfo describes a published snapshot.
type SnapshotInfo struct {
	Index, Term uint64 // of the last entry that it covers
	Bytes       int64  // of its parts, without those of objects
}

func infoOf(p *snapshots.Published) SnapshotInfo {
	return SnapshotInfo{Index: p.ID.Index, Term: p.ID.Term, Bytes: p.Bytes}
}

// settings returns the policy in ticks.
func (p SnapshotPolicy) settings(c Config) snapshots.Policy {
	return snapshots.Policy{LogBytes: p.LogBytes, KeepBytes: p.KeepBytes, MaxLogBytes: p.MaxLogBytes, Every: ticksIn(p.Every, c), Disabled: p.Disabled}
}

// init makes them those of a group that has none yet.
func (s *groupSnapshots) init(g *Group, machine statemachine.Machine) {
	s.Init((*snapshotGroup)(g), snapshots.Settings{
		ID: g.id, Self: g.self, FS: g.host.env.fs, Dir: identity.SnapshotsDir(g.host.config.Dir, g.id),
		Lanes: &g.host.bulk.snapshotLanes, Machine: snapshotterOf(machine), Policy: g.config.Snapshots.settings(g.host.config),
		Transfers: &g.host.bulk.transfers.Transfers, Class: g.host.bulk.transfers.snapshots, Installs: g.host.env.pipeline.AsyncStorageWrites(),
		Heartbeat: ticksPerHeartbeat, Election: int64(g.host.config.electionTicks()),
	})
}

// snapshotterOf returns the machine that takes snapshots, or nil.
func snapshotterOf(machine statemachine.Machine) statemachine.Snapshotter {
	if c, ok := machine.(*apply.Commands); ok {
		if n, ok := c.Machine.(maybeSnapshotter); ok && !n.TakesSnapshots() {
			return nil
		}
		s, _ := c.Machine.(statemachine.Snapshotter)
		return s
	}
	s, _ := machine.(statemachine.Snapshotter)
	return s
}

// maybeSnapshotter is an adapter that has the methods of a Snapshotter and may be around a machine without
// them.
type maybeSnapshotter interface{ TakesSnapshots() bool }

func ticksIn(d time.Duration, c Config) int64 {
	period := c.tickPeriod()
	return int64((d + period - 1) / period)
}

// countApplied counts what the machine has applied. It is called after the machine, where that is called.
func (s *groupSnapshots) countApplied(entries []raftpb.Entry) {
	if n := len(entries); n > 0 && s.Machine != nil {
		s.Applied(entries[n-1].Index, workqueue.EntryBytes(entries))
	}
}

// Taking is a snapshot that a caller has asked for (Group.StartSnapshot).
type Taking struct {
	group *Group
	mu    lock.Mutex
	done  chan struct{} // closed with the outcome
	is    bool
	info  SnapshotInfo
	err   error
}

// Poll returns the outcome, if it is known. It never waits.
func (t *Taking) Poll() (info SnapshotInfo, done bool, err error) {
	if t.group.Err() != nil {
		t.finish(SnapshotInfo{}, outcome.WithCause(outcome.ErrStopped, t.group.Err()))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.info, t.is, t.err
}

// told is a snapshots.Caller.
func (t *Taking) told(p *snapshots.Published, err error) {
	var info SnapshotInfo
	if p != nil {
		info = infoOf(p)
	}
	t.finish(info, err)
}

func (t *Taking) finish(info SnapshotInfo, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.is {
		t.is, t.info, t.err = true, info, err
		close(t.done)
	}
}

// StartSnapshot asks for a snapshot of what this member has applied, without waiting for it, whatever the
// policy. It is done when a snapshot has been published and read back that includes everything that was
// applied here before the call. If one is under way, the next one is taken after it. The error of Poll is
// that of TakeSnapshot.
func (g *Group) StartSnapshot() *Taking {
	t := &Taking{group: g, done: make(chan struct{})}
	switch {
	case g.Err() != nil:
		t.finish(SnapshotInfo{}, outcome.WithCause(outcome.ErrStopped, g.Err()))
	case g.Halted() != nil:
		t.finish(SnapshotInfo{}, g.Halted())
	case g.snapshots.Machine == nil:
		t.finish(SnapshotInfo{}, fmt.Errorf("%w: that of group %d has no methods Snapshot and Restore (Snapshotter)", outcome.ErrNoSnapshots, g.id))
	default:
		g.snapshots.Ask(t.told)
		if g.Err() != nil {
			t.finish(SnapshotInfo{}, outcome.WithCause(outcome.ErrStopped, g.Err()))
		}
	}
	return t
}

// TakeSnapshot is StartSnapshot and waits. If ctx ends first, its error is wrapped, and the snapshot may be
// taken nevertheless. Other errors are ErrNoSnapshots, ErrStopped, and what went wrong: the machine's error,
// a full disk. It is safe for concurrent use, but must not be called by the state machine.
func (g *Group) TakeSnapshot(ctx context.Context) (SnapshotInfo, error) {
	t := g.StartSnapshot()
	select {
	case <-t.done:
	case <-g.life.ended: // Poll says so
	case <-ctx.Done():
		if _, done, _ := t.Poll(); !done {
			return SnapshotInfo{}, fmt.Errorf("millrace: the snapshot of group %d is not there yet: %w", g.id, context.Cause(ctx))
		}
	}
	info, _, err := t.Poll()
	return info, err
}

// LatestSnapshot describes the newest snapshot on this host's disk; false: there is none.
func (g *Group) LatestSnapshot() (SnapshotInfo, bool) {
	if p := g.snapshots.Latest(); p != nil {
		return infoOf(p), true
	}
	return SnapshotInfo{}, false
}
