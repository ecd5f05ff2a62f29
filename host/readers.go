package host

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/vfs"
)

// readers read old entries of the log, which are not in memory, for followers that catch up. There is one
// lane for each other host, so a read that hangs holds up one follower, in all groups, and nothing else.
// (Entries for state machines are read by the apply lanes.)
type readers struct {
	start func(name string, w env.Worker) env.Task

	mu    sync.Mutex
	lanes map[uint64]*readLane // by host
	order []*readLane
}

// readLane is one lane: env.Worker. A new request of a group replaces the one that waits, which is of an
// earlier leadership, so what waits is bounded by the groups.
type readLane struct {
	task env.Task
	host uint64

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

// startReaders schedules the lanes for other hosts.
func startReaders(hosts []uint64, start func(name string, w env.Worker) env.Task) *readers {
	r := &readers{start: start, lanes: map[uint64]*readLane{}}
	for _, id := range hosts {
		r.add(id)
	}
	return r
}

// add schedules the lane for one more host.
func (r *readers) add(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lanes[id] != nil {
		return // the host was forgotten, and is known again
	}
	l := &readLane{host: id}
	l.task = r.start(fmt.Sprintf("reader for host %d", id), l)
	r.lanes[id], r.order = l, append(r.order, l)
}

// all returns the lanes, for the end of the host.
func (r *readers) all() []*readLane {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*readLane(nil), r.order...)
}

// ask makes a lane read, and tells the group afterwards. The error is errNoReader if this host does not know
// the one for which entries are asked (learnMembers): nothing is read then.
func (r *readers) ask(q readRequest) error {
	r.mu.Lock()
	l := r.lanes[q.reader]
	r.mu.Unlock()
	if l == nil {
		return fmt.Errorf("%w: %d", errNoReader, q.reader)
	}
	l.put(q)
	l.task.Wake()
	return nil
}

var errNoReader = errors.New("millrace: entries are not read for a host that is not known")

func (l *readLane) put(q readRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.waiting {
		if l.waiting[i].group == q.group {
			l.waiting[i] = q
			return
		}
	}
	l.waiting = append(l.waiting, q)
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
	if vfs.IsShort(err) {
		return l.postpone(q, err)
	}
	q.group.inbox.putFetched(fetched{q.reader, q.lo, entries, err})
	q.group.wake()

	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading = readRequest{}
	return len(l.waiting) > 0
}

// postpone reads again at a later beat. What else waits for this lane waits with it.
func (l *readLane) postpone(q readRequest, err error) (more bool) {
	l.mu.Lock()
	l.reading = readRequest{}
	newer := slices.ContainsFunc(l.waiting, func(w readRequest) bool { return w.group == q.group })
	if !newer {
		l.waiting = append(l.waiting, q)
	}
	l.mu.Unlock()
	q.group.host.shortages.later(l.task.Wake, err)
	return false
}

// doing says what the lane is in the middle of.
func (l *readLane) doing() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.reading; q.group != nil {
		return fmt.Sprintf("the reader for host %d, which reads entries from %d of group %d", l.host, q.lo, q.group.id)
	}
	return fmt.Sprintf("the reader for host %d", l.host)
}
