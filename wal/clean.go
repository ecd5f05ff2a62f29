package wal

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/wal/record"
)

// Cleaning frees the segments that no group needs any more, oldest first. A group needs a segment that
// holds one of its entries, or the last record of its hard state, or the last record of where its log
// begins. Records of the latter two kinds are small and are written again when they hold a segment. Entries
// of a slow group are written again too, when that is cheap: when little of the oldest segment is needed,
// or less than half of the whole log. Otherwise one slow group would keep every segment. A rewrite never
// triggers another rewrite: only an append does.
//
// The order that keeps a crash harmless:
//
//	write again what is needed ── front record ── sync ── remove the file, one segment at a time, each durable
//
// Records that are written again are outside of the writes of groups: never between their records, since
// an append is encoded as a whole. If the beginning of a write was in a removed segment, that write was
// whole, or voided, before anything was cleaned.
//
// A front says that the segments before it may be missing; without one, a missing segment is corruption. A
// record that was written again says the same as the record it replaces, so a crash in between may leave
// both or either.
//
// Rejected: a file that lists what is needed (a manifest: one more thing to keep consistent), and moving
// entries only in their order (a log whose slow groups must stay in order would be copied whole).

// Each change of an index counts what is needed of each segment (needs.go), so the search for a segment to
// clean looks at no group. But the search may read a segment afterwards. So compactions trigger it only
// when together they free a part of a segment. A full tail, or an append without space, triggers it at
// once.

// surveyShare is the part of a segment that compactions have to free: one surveyShare-th.
const surveyShare = 16

// cleaner knows which segments are not needed. Its fields are under Log.mu, except where they say otherwise.
type cleaner struct {
	firstNeeded uint64 // the segments before it are not needed; once that is durable, they go
	below       uint64 // only segments below it are worth emptying: the tail at the last append that gave a reason to clean
	freedBytes  int64  // by compactions since they last gave a reason to clean

	due   atomic.Bool // segments may have become unneeded; no lock
	sweep sweep       // of the helper only
}

// survey is what is needed of the log at one moment.
type survey struct {
	first, tail *segment
	needed      uint64 // the lowest segment that is needed
	oldest      demand // for what
	live        int64  // bytes of records that are needed of all
	used        int64  // of all segments
	cleanBelow  uint64 // segments from here on were begun since the last append that gave a reason to clean
}

// clean does one piece of cleaning. It reports whether there may be more to do.
func (l *Log) clean() (more bool) {
	if first := l.firstSegment(); first != nil && first.id < l.firstNeededNow() {
		if err := l.retire(first); err != nil {
			_ = l.fail("retirement", first, 0, err) // the next Append or Sync returns it
			return false
		}
		l.stats.dropped.Add(1)
		return true
	}
	if !l.cleaner.due.Swap(false) {
		return false
	}
	v := l.survey()
	var done bool
	var err error
	switch {
	case v.first.id < v.needed:
		done, err = true, l.advanceFront(v.needed)
	case l.cleaner.sweep.segment == v.needed || l.beginSweep(&v):
		done, err = l.sweepPiece()
	}
	if err != nil {
		if !errors.Is(err, ErrDiskFailed) && !errors.Is(err, ErrClosed) {
			l.opts.Logger.Warn("wal: could not free a segment", "segment", v.needed, "err", err)
		}
		l.cleaner.sweep = sweep{}
		return false // until there is a new reason to look
	}
	if done {
		l.cleaner.due.Store(true)
	}
	return done
}

// pays reports whether emptying the oldest segment pays off. The two segments that are always there do not
// count.
func (v *survey) pays(segmentBytes int64) bool {
	return v.needed < v.cleanBelow && (v.oldest.bytes <= segmentBytes/8 || 2*v.live <= v.used-2*segmentBytes)
}

func (l *Log) firstNeededNow() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cleaner.firstNeeded
}

// firstSegment returns the oldest segment, or nil if the tail is the only one.
func (l *Log) firstSegment() *segment {
	l.mu.Lock()
	tail := l.tail.seg
	l.mu.Unlock()
	l.table.mu.RLock()
	defer l.table.mu.RUnlock()
	var first *segment
	for _, s := range l.table.segments {
		if s != tail && (first == nil || s.id < first.id) {
			first = s
		}
	}
	return first
}

// survey finds what is needed. That may become less afterwards but never more, except in the tail and in
// what follows it.
func (l *Log) survey() survey {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := survey{tail: l.tail.seg, first: l.tail.seg, cleanBelow: l.cleaner.below, live: l.table.indexes.live}
	v.needed, v.oldest = l.table.indexes.lowest(l.tail.seg.id)
	l.table.mu.RLock()
	defer l.table.mu.RUnlock()
	for _, s := range l.table.segments {
		if s.id < v.first.id {
			v.first = s
		}
		v.used += s.size
	}
	return v
}

// advanceFront makes it durable that the segments before front are not needed.
func (l *Log) advanceFront(front uint64) error {
	err := l.appendRecords(func() []int64 { return []int64{record.Bytes(0)} }, func() error {
		_, err := l.put(record.Header{Kind: record.KindFront, Index: front}, nil)
		return err
	}, func() {})
	if err != nil {
		return err
	}
	if err := l.syncNow(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleaner.firstNeeded = max(l.cleaner.firstNeeded, front)
	return nil
}

// appendRecords is Append for the log's own records. encode puts the records, whose sizes sizes returns;
// publish is called when they are written. All three are called with mu held, so nothing changes between
// the last call of sizes and publish. The append may use the reserve, because it frees more than it takes.
// A full disk refuses it like an Append.
func (l *Log) appendRecords(sizes func() []int64, encode func() error, publish func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.unusable(); err != nil {
		return err
	}
	var bytes int64
	for {
		needed := sizes()
		missing := l.findSpace(true, slices.Values(needed))
		if missing == (lack{}) {
			for _, n := range needed {
				bytes += n
			}
			break
		}
		if err := l.waitFor(missing); err != nil {
			return err
		}
		if err := l.unusable(); err != nil {
			return err
		}
	}
	before, err := l.begin(bytes)
	if err != nil {
		return err
	}
	if err := encode(); err != nil {
		return l.giveUp(before, bytes, err)
	}
	if err := l.writeOut(before, bytes); err != nil {
		return err
	}
	publish()
	return nil
}
