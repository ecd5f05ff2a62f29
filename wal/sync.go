package wal

import (
	"errors"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/wal/record"
)

// This file makes durable what was appended (docs/internals/durability.md §5). A flush has two phases, so
// that a goroutine with other work does not block on a disk:
//
//	TakeSync ── what is written now is what the flush will make durable ──► Flush
//	Flush.Wait ── fdatasync, with no lock that an append or a reader wants
//	Flush.Complete ── what was captured is durable, except what was truncated since
//
// If the log rolled over since the last flush, this one syncs both files, the older one first (older.go).
//
// Invariant: nothing is called durable because of an fdatasync that began before its last byte was written.
// So the target is captured under mu, before the sync; what is appended during a flush is served by the
// next one.

// flusher knows what is durable and what waits for it. Its fields are the appender's, under Log.mu, except
// where they say otherwise.
type flusher struct {
	// mu makes flushes follow one another. It is taken before Log.mu, and held during an fdatasync.
	mu lock.Mutex

	durable  position   // everything before it is synced; in the tail, or in older
	older    *segment   // the segment before the tail, if it is not synced to its end
	critical position   // what was written before it counts only when it is durable, in any mode
	touched  []*Group   // groups appended to since the last flush was captured
	waiting  waiting    // appends since then
	inFlight int        // flushes captured and not completed
	spare    []captured // memory of a completed flush, for the next,
	done     *Flush     // and the flush itself; nil: there is none

	due      atomic.Bool // for the helper, in ModeUnsafeInterval; no lock
	interval env.Timer   // sets due; nil in other modes
}

// Flush is what TakeSync captured. Call Wait and then Complete, once each. Flushes may be completed in any
// order. After Complete the log uses the value for a later flush.
type Flush struct {
	log     *Log
	tail    *segment
	target  position
	groups  []captured // that were appended to since the flush before
	taken   time.Duration
	entries int
	err     error
}

// captured is a group as it was when a flush was taken.
type captured struct {
	group *Group
	last  uint64
	cuts  uint64
}

// TakeSync begins to make durable what was appended and does not count yet. It does not block. It returns
// nil if there is nothing to do. Then wait is 0 if everything appended counts in the log's mode. Otherwise
// the mode lets the flush wait for more appends, at most for wait. Then call TakeSync again after that
// time, or after another Append.
func (l *Log) TakeSync() (f *Flush, wait time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.unusable(); err != nil {
		return nil, 0, err
	}
	if l.counts() {
		return nil, 0, nil
	}
	if wait := l.mayWait(); wait > 0 {
		return nil, wait, nil
	}
	return l.capture(), 0, nil
}

// counts reports whether everything appended counts, durable or not. mu is held.
func (l *Log) counts() bool {
	m := l.opts.Mode
	return m.Kind == KindMemory || m.Unsafe() && !l.hurries()
}

// hurries reports whether something is not durable that must be before it counts, in any mode. A flush of
// it may be under way. mu is held.
func (l *Log) hurries() bool { return l.flusher.durable.before(l.flusher.critical) }

// mayWait returns how long a flush of what is pending may wait for more appends. mu is held.
func (l *Log) mayWait() time.Duration {
	m, p := l.opts.Mode, &l.flusher.waiting
	if m.Kind != KindGroupDelay || l.hurries() || p.appends == 0 || m.Bytes > 0 && p.bytes >= m.Bytes || m.Entries > 0 && p.entries >= m.Entries {
		return 0
	}
	return p.since + m.Delay - l.opts.Clock.Now()
}

// waiting is what was appended since a flush was last captured.
type waiting struct {
	appends int
	bytes   int64
	entries int
	since   time.Duration // of the first
}

// count adds an append to what waits for a flush. mu is held.
func (l *Log) count(bytes int64, entries int) {
	p := &l.flusher.waiting
	if p.appends == 0 {
		p.since = l.opts.Clock.Now()
		if l.opts.Mode.Kind == KindUnsafeInterval {
			l.flusher.interval.Set(l.opts.Mode.Delay)
		}
	}
	p.appends++
	p.bytes += bytes
	p.entries += entries
	l.stats.pendingBytes.Store(uint64(l.pending()))
	if m := l.opts.Mode; m.Kind == KindUnsafeInterval && m.Bytes > 0 && p.bytes >= m.Bytes {
		l.flusher.due.Store(true)
		l.wakeHelper()
	}
}

// capture returns a flush of everything written, or nil if all of that is durable. mu is held.
func (l *Log) capture() *Flush {
	f := l.flusher.done
	if l.flusher.done = nil; f == nil {
		f = new(Flush)
	}
	*f = Flush{log: l, tail: l.tail.seg, target: position{segment: l.tail.seg.id, off: l.tail.seg.end}, entries: l.flusher.waiting.entries, taken: l.opts.Clock.Now()}
	f.groups, l.flusher.spare = l.flusher.spare[:0], nil
	for _, g := range l.flusher.touched {
		g.touched = false
		f.groups = append(f.groups, captured{group: g, last: g.last, cuts: g.cuts})
		if l.flusher.inFlight == 0 {
			g.lowest = g.last
		}
	}
	l.flusher.touched, l.flusher.waiting = l.flusher.touched[:0], waiting{}
	if l.pending() == 0 {
		f.publishDurable()
		return nil
	}
	l.flusher.inFlight++
	return f
}

// Wait makes what was captured durable. An error is final: the log has failed.
func (f *Flush) Wait() error {
	l := f.log
	l.flusher.mu.Lock() // one at a time
	defer l.flusher.mu.Unlock()
	l.mu.Lock()
	covered := !l.flusher.durable.before(f.target) // by a later flush, or by a roll
	older := l.flusher.older
	l.mu.Unlock()
	if covered {
		f.err = l.failure()
		return f.err
	}
	l.stats.queueNanos.Add(uint64(l.opts.Clock.Now() - f.taken))
	if older != nil {
		if f.err = l.syncSegment(older); f.err != nil {
			return f.err
		}
		l.mu.Lock()
		l.olderSynced(older)
		l.mu.Unlock()
	}
	if older == f.tail { // it was sealed since the flush was taken
		return nil
	}
	if f.err = l.syncSegment(f.tail); f.err != nil {
		return f.err
	}
	l.mu.Lock()
	l.advanceDurable(f.target)
	l.mu.Unlock()
	return nil
}

// Complete publishes what Wait made durable (Group.DurableIndex). It reports whether more was appended
// meanwhile, which takes another flush.
func (f *Flush) Complete() (more bool, err error) {
	if f.err != nil {
		return false, f.err
	}
	l := f.log
	l.stats.syncedEntries.Add(uint64(f.entries))
	l.mu.Lock()
	defer l.mu.Unlock()
	f.publishDurable()
	l.flusher.inFlight--
	if !l.tail.idling.armed { // or the helper has looked while the flush was under way
		l.scheduleWatermark()
	}
	l.flusher.spare, f.groups = f.groups, nil
	f.log, f.tail, l.flusher.done = nil, nil, f
	return l.flusher.waiting.appends > 0, l.failure()
}

// publishDurable tells each group what is durable: what was captured, except what was truncated since and
// perhaps written again. The log's mu is held.
func (f *Flush) publishDurable() {
	for _, c := range f.groups {
		g := c.group
		if g.cuts != c.cuts {
			c.last = min(c.last, g.lowest)
		}
		if c.last > g.durable.Load() {
			g.durable.Store(c.last)
		}
	}
}

// DurableIndex returns the last entry that is known to survive a power cut, with all entries before it. It
// is at most LastIndex. In the unsafe modes an append counts before that.
func (g *Group) DurableIndex() uint64 { return g.durable.Load() }

// Sync returns when everything that was appended before the call counts in the log's mode. In the modes
// that keep Raft's promise it counts when it is durable, after an fdatasync. If nothing is pending, Sync
// costs nothing. Appends may continue meanwhile and are served by the next Sync. An error is final.
func (l *Log) Sync() error {
	l.mu.Lock()
	counts := l.counts()
	err := l.unusable()
	l.mu.Unlock()
	if err != nil || counts {
		return err
	}
	return l.syncNow()
}

// syncNow makes everything appended before the call durable, in any mode.
func (l *Log) syncNow() error {
	l.mu.Lock()
	err := l.unusable()
	if err != nil {
		l.mu.Unlock()
		return err
	}
	f := l.capture()
	l.mu.Unlock()
	if f == nil {
		return nil
	}
	if err := f.Wait(); err != nil {
		return err
	}
	_, err = f.Complete()
	return err
}

// syncTail is Sync for callers that hold mu.
func (l *Log) syncTail() error {
	if err := l.syncOlder(); err != nil {
		return err
	}
	if l.watermark() == l.tail.seg.end {
		return nil
	}
	if err := l.syncSegment(l.tail.seg); err != nil {
		return err
	}
	l.advanceDurable(position{segment: l.tail.seg.id, off: l.tail.seg.end})
	return nil
}

// advanceDurable moves the durable position up to target, unless a roll has moved it further. mu is held.
func (l *Log) advanceDurable(target position) {
	if !l.flusher.durable.before(target) {
		return
	}
	bytes := l.bytesUntil(target)
	l.flusher.durable = target
	l.stats.pendingBytes.Store(uint64(l.pending()))
	l.stats.syncedBytes.Add(uint64(bytes))
	l.scheduleWatermark()
	if target.off >= l.zeros.wakeAt.Load() {
		l.wakeHelper()
	}
}

// syncSegment is the one place that makes records durable.
func (l *Log) syncSegment(s *segment) error {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if err := l.failure(); err != nil {
		return err // it may be an error of this file, returned to another caller
	}
	start := l.opts.Clock.Now()
	err := s.sync()
	took := l.opts.Clock.Now() - start
	l.stats.syncs.Add(1)
	l.stats.syncNanos.Add(uint64(took))
	l.stats.syncTimes[latencyBucket(took)].Add(1)
	if err != nil {
		return l.fail("sync", s, 0, err)
	}
	return nil
}

// latencyBucket returns the number of the bucket of Stats.SyncTimes for d.
func latencyBucket(d time.Duration) int {
	return min(bits.Len64(uint64(max(d, 0)/time.Microsecond)), latencyBuckets-1)
}

// seal syncs everything in a log that is being closed, and then writes and syncs a last watermark record
// that says so. Without that record the last batch, if the disk damaged it later, would look like a torn
// one. mu is held.
func (l *Log) seal() error {
	if err := l.failure(); err != nil {
		return err
	}
	if err := l.syncTail(); err != nil {
		return err
	}
	if !l.watermarkDirty() {
		if err := l.wipe(); err != nil && !isFull(err) {
			return l.fail("wipe", l.tail.seg, l.tail.bufAt, err)
		}
		return nil
	}
	if err := l.writeWatermark(); errors.Is(err, ErrDiskFull) {
		return nil // FENCE says where the log ends
	} else if err != nil {
		return err
	}
	return l.syncTail()
}

// writeWatermark writes a watermark record, if there is space: put leaves space for one. mu is held.
func (l *Log) writeWatermark() error {
	if l.tail.seg.end+record.HeaderBytes > l.tail.seg.size || l.tail.seg.end == record.SegmentHeaderBytes {
		return nil
	}
	before, err := l.begin(record.HeaderBytes)
	if err != nil {
		return err
	}
	l.putRecord(record.Header{Kind: record.KindWatermark, Index: l.generation}, nil)
	return l.writeOut(before, record.HeaderBytes)
}
