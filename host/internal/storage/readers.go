package storage

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/vfs"
)

// Readers read old entries of the log, which are not in memory, for followers that catch up. Each other
// host has a lane, so a read that hangs holds up one follower, in all groups, and nothing else. (Entries
// for state machines are read by the apply lanes.)
type Readers struct {
	start func(name string, w env.Worker) env.Task
	later func(wake func(), err error)

	mu    lock.Mutex
	lanes map[uint64]*Reader // by host
	order []*Reader
}

// Reader is one lane: env.Worker. A new request of a group replaces its waiting request, which is of an
// earlier leadership. So the waiting requests are bounded by the groups.
type Reader struct {
	task  env.Task
	host  uint64
	later func(wake func(), err error)

	mu      lock.Mutex
	waiting []request
	reading request // under way, if its group is not nil
}

// request asks for entries [lo, hi) of a group, about maxBytes at most.
type request struct {
	group    Group
	log      Log
	reader   uint64
	lo, hi   uint64
	maxBytes uint64
}

// MaxReadBytes bounds one read, and so what it keeps in memory.
const MaxReadBytes = 4 << 20

// StartReaders schedules the lanes for other hosts. later wakes a lane at a later beat: what it reads
// cannot be opened for a moment.
func StartReaders(hosts []uint64, start func(name string, w env.Worker) env.Task, later func(wake func(), err error)) *Readers {
	r := &Readers{start: start, later: later, lanes: map[uint64]*Reader{}}
	for _, id := range hosts {
		r.Add(id)
	}
	return r
}

// Add schedules the lane for one more host.
func (r *Readers) Add(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lanes[id] != nil {
		return // the host was forgotten, and is known again
	}
	l := &Reader{later: r.later, host: id}
	l.task = r.start(fmt.Sprintf("reader for host %d", id), l)
	r.lanes[id], r.order = l, append(r.order, l)
}

// All returns the lanes, for the end of the host.
func (r *Readers) All() []*Reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*Reader(nil), r.order...)
}

// ask makes a lane read, and tells the group afterwards. The error is errNoReader if this host does not know
// the one for which entries are asked (Readers.Add): nothing is read then.
func (r *Readers) ask(q request) error {
	r.mu.Lock()
	l := r.lanes[q.reader]
	r.mu.Unlock()
	if l == nil {
		return fmt.Errorf("%w: %d", errNoReader, q.reader)
	}
	l.enqueue(q)
	l.task.Wake()
	return nil
}

var errNoReader = errors.New("millrace: entries are not read for a host that is not known")

func (l *Reader) enqueue(q request) {
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
func (l *Reader) RunOnce() (more bool) {
	l.mu.Lock()
	if len(l.waiting) == 0 {
		l.mu.Unlock()
		return false
	}
	q := l.waiting[0]
	l.waiting[0] = request{}
	l.waiting = l.waiting[1:]
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
	l.reading = q
	l.mu.Unlock()

	entries, err := q.log.Entries(q.lo, q.hi, q.maxBytes)
	if vfs.IsShort(err) {
		return l.postpone(q, err)
	}
	q.group.Arrived(Result{q.reader, q.lo, entries, err})

	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading = request{}
	return len(l.waiting) > 0
}

// postpone reads again at a later beat. What else waits for this lane waits with it.
func (l *Reader) postpone(q request, err error) (more bool) {
	l.mu.Lock()
	l.reading = request{}
	newer := slices.ContainsFunc(l.waiting, func(w request) bool { return w.group == q.group })
	if !newer {
		l.waiting = append(l.waiting, q)
	}
	l.mu.Unlock()
	l.later(l.task.Wake, err)
	return false
}

// Doing says what the lane is in the middle of.
func (l *Reader) Doing() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.reading; q.group != nil {
		return fmt.Sprintf("the reader for host %d, which reads entries from %d of group %d", l.host, q.lo, q.group.ID())
	}
	return fmt.Sprintf("the reader for host %d", l.host)
}

// Stop ends the lane, and waits for the read that is under way.
func (l *Reader) Stop() { l.task.Stop() }
