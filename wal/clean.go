package wal

import (
	"errors"
	"slices"

	"github.com/millrace/millrace/wal/record"
)

// Cleaning gives back the segments that no group needs any more, oldest first. A group needs a segment that holds one
// of its entries, or the last record of its hard state or of where its log begins. Records of the latter two kinds are
// small and are written again when they are in the way; so are the entries of a laggard, that would pin the disk for
// everyone, as long as that is cheap: little of the oldest segment is needed, or less than half of the whole log. What is
// moved into new segments is not moved again before somebody appends: moving cannot be its own reason.
//
// The order that keeps a crash harmless:
//
//	write again what is needed ── front record ── sync ── take the file away, one segment at a time, each durable
//
// What is written again stands outside of the writes of groups: it never lies between their records, since an append is
// encoded as a whole. A write whose beginning was in a segment that is gone was whole, or voided, before anything was cleaned.
//
// A front says that segments before it may be missing; without one, a missing segment is corruption. What was written
// again is the same as what it replaces, so a crash in between leaves both or either.
//
// Rejected: a file of what is needed (a manifest: one more thing to keep in step), and moving entries within their order
// (a log whose laggards must not be behind anything would be copied whole).

// What is needed of each segment is counted as it changes (needs.go), so looking for what to clean looks at no group. But what
// follows may read a segment. So compactions are a reason to look only when together they let go of a part of a segment; a
// full tail, or an append without room, is a reason at once.

// surveyShare is the part of a segment that compactions have to free: one in so many.
const surveyShare = 16

// survey is what is needed of the log.
type survey struct {
	first, tail *segment
	needed      uint64 // the lowest segment that somebody needs
	oldest      demand // for what
	live        int64  // bytes of records that are needed of all
	used        int64  // of all segments
	goal        uint64 // segments from here on were begun since the last append that gave a reason to clean
}

// clean does one piece of cleaning, if there is any to do.
func (l *Log) clean() (more bool) {
	if first := l.firstSegment(); first != nil && first.id < l.frontNow() {
		if err := l.retire(first); err != nil {
			_ = l.fail("retirement", first, 0, err) // the next Append or Sync returns it
			return false
		}
		l.stats.dropped.Add(1)
		return true
	}
	if !l.cleanDue.Swap(false) {
		return false
	}
	v := l.survey()
	var done bool
	var err error
	switch {
	case v.first.id < v.needed:
		done, err = true, l.advanceFront(v.needed)
	case l.sweep.segment == v.needed || l.beginSweep(&v):
		done, err = l.sweepPiece()
	}
	if err != nil {
		if !errors.Is(err, ErrDiskFailed) && !errors.Is(err, ErrClosed) {
			l.opts.Logger.Warn("wal: could not free a segment", "segment", v.needed, "err", err)
		}
		l.sweep = sweep{}
		return false // until there is a new reason to look
	}
	if done {
		l.cleanDue.Store(true)
	}
	return done
}

// pays reports whether the oldest segment should be emptied. Two segments are always there, and do not count.
func (v *survey) pays(segmentBytes int64) bool {
	return v.needed < v.goal && (v.oldest.bytes <= segmentBytes/8 || 2*v.live <= v.used-2*segmentBytes)
}

func (l *Log) frontNow() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.front
}

// firstSegment returns the oldest segment, or nil if there is none but the tail.
func (l *Log) firstSegment() *segment {
	l.mu.Lock()
	tail := l.tail
	l.mu.Unlock()
	l.tableMu.RLock()
	defer l.tableMu.RUnlock()
	var first *segment
	for _, s := range l.segments {
		if s != tail && (first == nil || s.id < first.id) {
			first = s
		}
	}
	return first
}

// survey looks at what is needed. That may become less meanwhile, and never more, except of the tail and of what follows it.
func (l *Log) survey() survey {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := survey{tail: l.tail, first: l.tail, goal: l.goal, live: l.indexes.live}
	v.needed, v.oldest = l.indexes.lowest(l.tail.id)
	l.tableMu.RLock()
	defer l.tableMu.RUnlock()
	for _, s := range l.segments {
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
	l.front = max(l.front, front)
	return nil
}

// appendRecords is Append for records of the log's own: those that encode puts, which have the sizes; publish is called when they are
// written. All are called with mu held, so that nothing changes between the last call of sizes and publish. It may take the reserve, as
// it frees more than it takes. A full disk refuses it like an Append.
func (l *Log) appendRecords(sizes func() []int64, encode func() error, publish func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.unusable(); err != nil {
		return err
	}
	var bytes int64
	for {
		needed := sizes()
		missing := l.lackOf(true, slices.Values(needed))
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
	before := l.remember()
	if err := encode(); err != nil {
		return l.giveUp(before, bytes, err)
	}
	if err := l.writeOut(before, bytes); err != nil {
		return err
	}
	publish()
	return nil
}
