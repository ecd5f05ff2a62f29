package appendlane

import (
	"sync/atomic"

	"github.com/millrace/millrace/raft/raftpb"
)

// install is the installation of the snapshot that one message carries. The message waits, with everything
// behind it, until the state is restored from the snapshot. Term and vote overtake meanwhile, as they do on a
// full disk. Then the mark in the log is written, and the answers leave.
type install struct {
	snapshot *raftpb.Snapshot
	restored atomic.Bool // by an apply lane
}

// installs reports whether the next message of a queue carries a snapshot that must be restored first, and
// begins that.
func (l *Lane) installs(q *Queue) bool {
	s := q.HeadSnapshot()
	if q.installed = nil; s == nil {
		return false
	}
	in := q.installing
	if in == nil || in.snapshot != s {
		in = &install{snapshot: s}
		q.installing = in
		q.StartOvertaking()
		q.client.Restore(s, func() {
			in.restored.Store(true)
			l.Enqueue(q)
		})
	}
	if !in.restored.Load() {
		return true
	}
	q.installing, q.installed = nil, s
	q.StopOvertaking()
	return false
}
