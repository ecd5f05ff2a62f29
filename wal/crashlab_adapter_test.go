package wal_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// The crash laboratory uses the log through this file only. If the interface of the log changes, no other
// file of the laboratory has to change.

// labCompacts says that the log can drop entries at its beginning, and at its end without replacing them.
const labCompacts = true

// labOpensFull says that a log always opens on a full disk, because a member must be able to vote there.
const labOpensFull = true

// labDir is the directory of the log. Its segments are the files that match labSegments.
const (
	labDir      = "/log"
	labSegments = "*.wal"
	// labFirstSegment is the first segment of a new log.
	labFirstSegment = "0000000000000001.wal"
)

// labHeadBytes is the size of a segment's header. After the last record of a segment come at least labZeros
// zeros, if the segment has space for them.
const (
	labHeadBytes = 64
	labZeros     = 48
)

// labFirstDirSync is the number of the first sync of the directory that a new log needs. The syncs before it
// have nothing to make durable that matters, or another sync follows before anything is acknowledged.
const labFirstDirSync = 3

// labMinSegment is the smallest SegmentBytes of the laboratory.
const labMinSegment = 1024

// labConfig holds the options that the laboratory varies.
type labConfig struct {
	segmentBytes int64
	mode         labMode
	coldReads    bool // nothing is cached, and the index is as coarse as possible
	salvage      bool
	clock        *labClock
	chance       uint64 // seeds the log's random numbers
}

// labMode is an index into labModes.
type labMode int

// labModes are the modes of the laboratory. labGroupMode is the first, because its number is 0.
var labModes = [...]wal.Mode{
	wal.ModeGroup, wal.ModeSync, wal.ModeGroupDelay(time.Millisecond, 3000, 20), wal.ModeUnsafeInterval(time.Millisecond, 3000), wal.ModeUnsafeOS,
}

const (
	labGroupMode labMode = iota
	labSyncMode
)

// unsafe reports whether an append may count before it is durable.
func (m labMode) unsafe() bool { return labModes[m].Unsafe() }

// labFence is the part of a log's fence that the laboratory judges.
type labFence struct {
	generation uint64
	amnesia    bool
}

func fenceOf(l *wal.Log) labFence {
	f := l.Fence()
	return labFence{generation: f.Generation, amnesia: f.Amnesia}
}

// labFlush is a flush under way.
type labFlush struct {
	flush  *wal.Flush
	at     uint64 // the state that it captured
	state  labState
	waited bool
}

// openLabLog opens the log. It calls warn for each warning that the log writes.
func openLabLog(fs vfs.FS, dir string, s env.Scheduler, c labConfig, warn func(message string)) (*wal.Log, error) {
	o := wal.Options{FS: fs, Dir: dir, Scheduler: s, Rand: rand.NewChaCha8([32]byte(binary.LittleEndian.AppendUint64(make([]byte, 24), c.chance))), Owner: 7, SegmentBytes: c.segmentBytes, CacheBytes: 8192, Clock: stillClock{}}
	o.Mode, o.Salvage = labModes[c.mode], c.salvage
	if c.clock != nil {
		o.Clock = c.clock
	}
	if c.coldReads {
		o.CacheBytes, o.IndexBytes = -1, 1
	}
	if warn != nil {
		o.Logger = slog.New(labLogger{warn: warn})
	}
	return wal.Open(o)
}

// stillClock always shows 0, and its timers never fire. A timer of the machine's clock would wake the helper
// at a moment that the laboratory does not choose.
type stillClock struct{}

func (stillClock) Now() time.Duration                         { return 0 }
func (stillClock) Boottime() time.Duration                    { return 0 }
func (stillClock) Every(time.Duration, func() int) env.Ticker { return nil }
func (stillClock) Timer(func()) env.Timer                     { return stillTimer{} }

type stillTimer struct{}

func (stillTimer) Set(time.Duration) {}
func (stillTimer) Stop()             {}

// appendLab appends writes of the laboratory.
func appendLab(l *wal.Log, writes []labWrite) error {
	var ws []wal.Write
	for i := range writes {
		w := &writes[i]
		ws = append(ws, wal.Write{
			Group: w.group, HardState: w.hs, Snapshot: wal.Snapshot{Index: w.snapshot, Term: w.snapTerm},
			CompactThrough: w.compact, TruncateFrom: w.truncate, Entries: w.entries, Delete: w.deletes,
		})
	}
	return l.Append(ws)
}

// labStart returns the index and term that a group's log begins after.
func labStart(g *wal.Group) (index, term uint64) {
	s := g.Snapshot()
	return s.Index, s.Term
}

// labWork returns counters that show whether a workload reached all parts of the log.
func labWork(l *wal.Log) map[string]uint64 {
	s := l.Stats()
	return map[string]uint64{
		"syncs": s.Syncs, "zeroed bytes": s.ZeroedBytes, "segments not prepared ahead": s.SegmentsWaited, "cold reads": s.ColdReads,
		"segments dropped": s.Dropped, "segments recycled": s.Recycled, "entries moved": s.MovedEntries,
	}
}

// isLabStop reports whether err is the final error of a log whose disk has failed.
func isLabStop(err error) bool { return errors.Is(err, wal.ErrDiskFailed) }

// isLabFull reports whether err says that an append found no space and changed nothing.
func isLabFull(err error) bool { return errors.Is(err, wal.ErrDiskFull) }

// isLabLeft reports whether err says that a part of the refused append may still be on the disk.
func isLabLeft(err error) bool {
	var full *wal.DiskFullError
	return errors.As(err, &full) && full.Left
}

// isLabReport reports whether err is a typed refusal to continue with a damaged directory.
func isLabReport(err error) bool {
	var corrupt *wal.CorruptError
	return errors.As(err, &corrupt) && corrupt.File != "" || errors.Is(err, wal.ErrOwner) || errors.Is(err, wal.ErrVersion)
}

// isLabTornTail reports whether a warning says that a torn tail was cut.
func isLabTornTail(message string) bool { return message == wal.TornTail }

// observe reads everything that a log shows.
func observe(l *wal.Log) (labState, error) {
	s := labState{}
	for _, id := range l.Groups() {
		g := l.Group(id)
		first, last := g.FirstIndex(), g.LastIndex()
		got := labGroup{hs: g.HardState()}
		got.start, got.startTerm = labStart(g)
		if first != got.start+1 || last+1 < first {
			return nil, fmt.Errorf("group %d: indexes [%d, %d] after %d", id, first, last, got.start)
		}
		for len(got.entries) < int(last+1-first) {
			es, err := g.Entries(first+uint64(len(got.entries)), last+1, 1<<20)
			if err != nil {
				return nil, fmt.Errorf("group %d, entries from %d: %w", id, first+uint64(len(got.entries)), err)
			}
			if err := got.read(g, es); err != nil {
				return nil, fmt.Errorf("group %d: %w", id, err)
			}
		}
		if typed := g.Typed(first, last+1); !slices.Equal(typed, got.typed) && g.FirstIndex() == first && g.LastIndex() == last {
			return nil, fmt.Errorf("group %d: the entries with a type are %v, and the log says %v", id, got.typed, typed)
		}
		got.typed = nil // they are in the sums
		if !got.empty() {
			s[id] = got
		}
	}
	for _, id := range l.Deleted() {
		if s[id] = (labGroup{deleted: true}); !l.Group(id).Deleted() || l.Group(id).LastIndex() > 0 {
			return nil, fmt.Errorf("group %d is deleted, and not empty", id)
		}
	}
	return s, nil
}

// read adds entries to g. They must follow the last entry of g.
func (g *labGroup) read(from *wal.Group, es []raftpb.Entry) error {
	for i := range es {
		e := &es[i]
		if want := g.last() + 1; e.Index != want {
			return fmt.Errorf("have entry %d, want entry %d", e.Index, want)
		}
		if term, err := from.Term(e.Index); err != nil || term != e.Term {
			return fmt.Errorf("entry %d has term %d, and the index says %d (%v)", e.Index, e.Term, term, err)
		}
		g.entries = append(g.entries, seal(e))
		if e.Type != raftpb.EntryNormal {
			g.typed = append(g.typed, e.Index)
		}
	}
	return nil
}
