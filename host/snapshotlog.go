package host

import (
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/wal"
)

// When a snapshot has been read back, the log before it is needed by followers only: one that is a little
// behind is fed from the log, one that is far behind gets the snapshot. So the log keeps what costs less to
// send than the snapshot: as many bytes as it has, and maxTransferCost for the round trips (or a quarter of
// the interval between two snapshots, if that is less). What a transfer under way needs is kept, too
// (pinLog).
//
// The log knows no sizes of entries. So the apply lane notes, now and then, how many bytes it has passed
// (marks). After a start they are guessed: the entries before the snapshot count what they counted on average
// when it was taken.

// logMark says how many bytes the log has through index, as groupSnapshots.applied counts.
type logMark struct {
	index uint64
	bytes int64
}

const (
	maxMarks   = 128
	minSpacing = 64 // bytes between two marks, at least
	maxSpacing = 256 << 10
)

// mark notes where a position of the log is in bytes, if the last mark is far enough away. It is called by
// the apply lane only.
func (s *groupSnapshots) mark(index uint64, bytes int64) {
	if bytes < s.nextMark {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addMark(index, bytes)
	s.nextMark = bytes + s.spacing
}

func (s *groupSnapshots) addMark(index uint64, bytes int64) {
	if n := len(s.marks); n > 0 && (index <= s.marks[n-1].index || bytes-s.marks[n-1].bytes < s.spacing) {
		return
	}
	if len(s.marks) == maxMarks { // keep every second one, and the first, behind which the log was compacted
		for i := range maxMarks / 2 {
			s.marks[i] = s.marks[2*i]
		}
		s.marks = s.marks[:maxMarks/2]
		s.spacing = max(2*s.spacing, minSpacing)
	}
	s.marks = append(s.marks, logMark{index, bytes})
}

// firstSpacing is how many bytes are between two marks at first.
func (s *groupSnapshots) firstSpacing() int64 {
	return max(minSpacing, min(maxSpacing, s.interval()/16))
}

// guessMarks notes marks for entries that were applied in an earlier life: those of (from, through], of
// perEntry bytes each.
func (s *groupSnapshots) guessMarks(from, through uint64, perEntry int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const steps = 16
	s.spacing = s.firstSpacing()
	for i := uint64(0); i <= steps; i++ {
		at := from + (through-from)/steps*i + (through-from)%steps*i/steps
		s.addMark(at, int64(at-from)*perEntry)
	}
	s.applied.Store(int64(through-from) * perEntry)
}

// perEntry returns what an entry counts on average, as far as the marks go back.
func (s *groupSnapshots) perEntry() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.marks); n > 1 && s.marks[n-1].index > s.marks[0].index {
		return (s.marks[n-1].bytes - s.marks[0].bytes) / int64(s.marks[n-1].index-s.marks[0].index)
	}
	return 0
}

// compactionBehind returns through which index the log may be compacted behind a snapshot that was read back;
// 0: not at all. The caller holds the lock.
func (s *groupSnapshots) compactionBehind(p *publishedSnapshot) (through uint64) {
	kept := s.policy.KeepBytes
	if kept == 0 {
		kept = max(p.bytes, min(maxTransferCost, s.interval()/4))
	}
	at := s.bytesAt(p.id.Index)
	first := 0
	for i, m := range s.marks {
		if m.index > p.id.Index || at-m.bytes < kept {
			break
		}
		through, first = m.index, i
	}
	s.marks = slices.Delete(s.marks, 0, first)
	for _, pin := range s.pins {
		through = min(through, pin.after)
	}
	return through
}

// bytesSince returns how much the log has grown behind an index, in bytes with overhead, as far as it is
// applied.
func (s *groupSnapshots) bytesSince(index uint64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied.Load() - s.bytesAt(index)
}

// bytesAt returns how many bytes the log has through an index, about: as many as through the mark before it.
func (s *groupSnapshots) bytesAt(index uint64) (bytes int64) {
	bytes = s.applied.Load()
	for i := len(s.marks) - 1; i >= 0; i-- {
		if m := s.marks[i]; m.index <= index {
			return m.bytes
		}
	}
	return bytes
}

// metrics returns counts and levels.
func (s *groupSnapshots) metrics() (m SnapshotMetrics) {
	g := s.group
	if g == nil {
		return m
	}
	m.Taken, m.Failed, m.Taking = s.taken.Load(), s.failed.Load(), time.Duration(s.tookNanos.Load())
	m.LogBytes = s.applied.Load()
	s.mu.Lock()
	m.FailedInARow = s.failures
	if p := s.latest(); p != nil {
		m.Index, m.Bytes = p.id.Index, p.bytes
		m.LogBytes -= s.bytesAt(p.id.Index)
		if p.at > 0 {
			m.Age = time.Duration(max(g.host.clock.lived()-p.at, 0)) * g.host.config.tickPeriod()
		}
	}
	s.mu.Unlock()
	if first, last := g.writes.storage.log.FirstIndex(), g.writes.storage.log.LastIndex(); last >= first {
		m.LogEntries = last - first + 1
	}
	return m
}

// lookForSnapshots finds snapshots that fail or hang (Explain).
func (e *examination) lookForSnapshots() {
	s := &e.snapshots
	if doing, since, hangs := e.host.bulk.snapshotLanes.hangsFor(e.Group); hangs {
		ticks := int64(since / e.host.config.tickPeriod())
		e.found(diagnosis.CodeSnapshotHangs, 0, max(e.now-ticks, 0), "look at the disk, and at what WriteTo of the state machine waits for; the group goes on, and its log grows until a snapshot is there",
			"this group, %s, has been at one piece of it for %v", doing, diagnosis.Rounded(since))
	}
	s.mu.Lock()
	failures, err, since, latest := s.failures, s.lastErr, s.errSince, s.errAt
	s.mu.Unlock()
	if s.policy.Disabled && e.now-latest > e.host.config.refusedTicks() {
		return // a caller was told, and nothing waits for a snapshot
	}
	if failures > 0 {
		m := s.metrics()
		e.found(diagnosis.CodeSnapshotFails, 0, since, s.fix(err),
			"%d snapshots in a row could not be taken, and the log has %d entries: %v", failures, m.LogEntries, err)
	}
}

// logPin keeps the entries above after in the log.
type logPin struct{ after uint64 }

// pinLog keeps the entries above after in the log, as far as they are there, until release is called, which
// may be called repeatedly. Any goroutine may call both.
func (s *groupSnapshots) pinLog(after uint64) (release func()) {
	pin := &logPin{after}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pins = append(s.pins, pin)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pins = slices.DeleteFunc(s.pins, func(other *logPin) bool { return other == pin })
	})
}

// compactLog asks the append lane to compact the log through an index. It is part of a turn. What the core
// has not seen applied stays, until it has.
func (g *Group) compactLog(through, applied uint64) {
	if may := min(through, applied); may >= g.writes.storage.log.FirstIndex() {
		raise(&g.writes.append.compact, may)
		g.host.storage.lane.enqueue(g.writes.append)
	}
	if through <= applied {
		g.snapshots.compact.CompareAndSwap(through, 0)
	}
}

// compact compacts a group's log, if that was asked for. It changes nothing of what waits, also behind a full
// disk: the entries that it drops are durable and applied. It reports whether it wrote.
func (l *appendLane) compact(q *appendQueue) (wrote bool) {
	through := q.compact.Load()
	if through == 0 {
		return false
	}
	if g := q.group; through < g.writes.storage.log.FirstIndex() {
		q.compact.CompareAndSwap(through, 0)
		return false
	}
	err := l.append([]wal.Write{{Group: q.group.id, CompactThrough: through}})
	switch verdictOn(err) {
	case written:
		l.sync = true // with the next round: nothing waits for it
		q.compact.CompareAndSwap(through, 0)
		q.compacted.Add(1)
		return true
	case noSpace:
		return false // it is tried again with the next write of the group, or at the next snapshot
	case invalid:
		q.compact.CompareAndSwap(through, 0)
		q.group.fail(err)
	default:
		l.stop(err)
	}
	return false
}
