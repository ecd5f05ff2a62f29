package host

import (
	"time"

	"github.com/millrace/millrace/host/event"
)

// ID returns the group's id.
func (g *Group) ID() uint64 { return g.id }

// Err returns why the group has stopped, or nil: the failure, or ErrStopped after Close.
func (g *Group) Err() error {
	if g.life.hasEnded.Load() {
		return g.life.cause
	}
	return nil
}

// Failed is closed when the group has stopped by itself; Err then says why. Close does not close it, so a
// supervisor that waits for it learns of failures only.
func (g *Group) Failed() <-chan struct{} { return g.life.failed }

// Ended is closed when the group has stopped, by Close, by its removal or by a failure; Err says why.
func (g *Group) Ended() <-chan struct{} { return g.life.ended }

// IsInMachine reports whether this goroutine is in a function that the group has called where nothing is
// applied meanwhile: Apply, Snapshot, a codec, or the function of StartBetween. What waits for the group
// there waits for itself. It is false on architectures other than those of Go's first tier and riscv64.
func (g *Group) IsInMachine() bool { return g.machine.apply.IsInside() }

// RoleChange returns a channel that is closed when Status may have another role or leader than at the time of
// the call. When the group ends it may stay open: Ended says that.
func (g *Group) RoleChange() <-chan struct{} { return g.life.roleChanged.wait() }

// now reads the clock of the host.
func (g *Group) now() time.Duration { return g.host.env.env.Clock.Now() }

// turnNow is the time of a turn: when it began, or now if the turns of this pipeline wait for the disk. The
// clock is read once for the turn and its shard.
func (g *Group) turnNow() time.Duration {
	if g.host.env.pipeline.AsyncStorageWrites() {
		return g.work.began
	}
	return g.now()
}

func (g *Group) isLeaving() bool { return g.life.leaving.began.Load() }

// waitsFor names a part that has not released the group.
func (g *Group) waitsFor() string {
	switch left := allParts &^ leavingPart(g.life.leaving.done.Load()); {
	case left&theApplyLanes != 0:
		return "its state machine, which is in Apply"
	case left&theTurn != 0:
		return "its turn"
	case left&theSnapshotLanes != 0:
		return "a snapshot, which is being written or read"
	default:
		return "the disk"
	}
}

func (g *Group) countDropped(n int, why string) {
	before := g.proposals.dropped.Add(uint64(n)) - uint64(n)
	// Once for each power of two that is passed.
	if after := before + uint64(n); before == 0 || before^after > before {
		g.host.reports.events.Emit(event.MessagesDropped{Group: g.id, Count: after, Cause: why})
		g.host.env.logger.Warn("messages dropped", "group", g.id, "host", g.self, "why", why, "dropped", after)
	}
}

// countRefusal counts and logs an input that the core refused without a change of its state.
func (g *Group) countRefusal(err error) {
	if err == nil {
		return
	}
	// Powers of two: the first is seen at once, and a flood does not fill the log.
	if n := g.proposals.refused.Add(1); n&(n-1) == 0 {
		g.host.env.logger.Warn("input refused", "group", g.id, "host", g.self, "cause", err, "refused", n)
	}
}
