package host

import (
	"fmt"
	"sync"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft"
)

// readers read old entries of the log, which are not in memory: for a follower that catches up, and for a
// state machine that starts again. There is one lane for each other host and one for the state machines, so a
// read that hangs holds up one follower, in all groups, and nothing else.
type readers struct {
	lanes map[uint64]*readLane // by host; raft.LocalApplyThread: for the state machines
	order []*readLane
}

// readLane is one lane: env.Worker. The core has at most one read under way for each follower of a group and
// term, so what waits is bounded by the groups.
type readLane struct {
	task env.Task
	name string

	mu      sync.Mutex
	waiting []readRequest
	reading readRequest // under way, if its group is not nil
}

// readRequest asks for entries [lo, hi) of a group, about maxBytes at most.
type readRequest struct {
	group    *Group
	reader   uint64
	lo, hi   uint64
	maxBytes uint64
}

// maxReadBytes bounds one read, and so what it keeps in memory.
const maxReadBytes = 4 << 20

// startReaders schedules the lanes for other hosts and for the state machines.
func startReaders(hosts []uint64, start func(name string, w env.Worker) env.Task) *readers {
	r := &readers{lanes: map[uint64]*readLane{}}
	for _, id := range append([]uint64{raft.LocalApplyThread}, hosts...) {
		l := &readLane{name: "for the state machines"}
		if id != raft.LocalApplyThread {
			l.name = fmt.Sprintf("for host %d", id)
		}
		l.task = start("reader "+l.name, l)
		r.lanes[id], r.order = l, append(r.order, l)
	}
	return r
}

// ask makes a lane read, and tells the group afterwards.
func (r *readers) ask(q readRequest) {
	l := r.lanes[q.reader]
	l.mu.Lock()
	l.waiting = append(l.waiting, q)
	l.mu.Unlock()
	l.task.Wake()
}

// RunOnce implements env.Worker: one read.
func (l *readLane) RunOnce() (more bool) {
	l.mu.Lock()
	if len(l.waiting) == 0 {
		l.mu.Unlock()
		return false
	}
	q := l.waiting[0]
	l.waiting[0] = readRequest{}
	l.waiting = l.waiting[1:]
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
	l.reading = q
	l.mu.Unlock()

	entries, err := q.group.storage.log.Entries(q.lo, q.hi, q.maxBytes)
	q.group.inbox.putFetched(fetched{q.reader, q.lo, entries, err})
	q.group.wake()

	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading = readRequest{}
	return len(l.waiting) > 0
}

// doing says what the lane is in the middle of.
func (l *readLane) doing() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.reading; q.group != nil {
		return fmt.Sprintf("the reader %s, which reads entries from %d of group %d", l.name, q.lo, q.group.id)
	}
	return "the reader " + l.name
}
