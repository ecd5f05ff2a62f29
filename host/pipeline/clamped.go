package pipeline

import "github.com/millrace/millrace/raft"

// Clamped is Async for comparison only, and not in All. As in Apache Ratis, the leader does not answer a
// client before its own disk has the command too. It is as if the commit index were the minimum of what a
// majority has flushed and what the leader has. Safety does not need this: a majority of other disks is as
// good. `millrace lab run flush` shows what it costs.
//
// Committed entries are handed out only when the leader's disk has them (applying never runs ahead of it), so
// the clamp is to answer only for these.
type Clamped struct{}

// Name implements Pipeline.
func (Clamped) Name() string { return "async, clamped" }

// AsyncStorageWrites implements Pipeline.
func (Clamped) AsyncStorageWrites() bool { return true }

// Handle implements Pipeline.
func (Clamped) Handle(rd raft.Ready, s Steps) error {
	s.Acknowledge(rd.CommittedEntries)
	handOut(rd, s)
	return nil
}
