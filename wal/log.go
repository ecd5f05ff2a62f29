package wal

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/wal/record"
)

// position is a place in the log.
type position struct {
	segment uint64
	off     int64
}

func (p position) before(q position) bool {
	return p.segment < q.segment || p.segment == q.segment && p.off < q.off
}

// Log is the log of one host. Append and Sync are meant for one goroutine (the append worker), and guarded against
// more; Group and all that it offers may be used by anyone at any time.
//
// Lock order: making (a claim, prepare.go), syncMu, mu, prepareMu, segment locks, Group.mu, fenceMu.
type Log struct {
	opts   Options
	lock   io.Closer
	helper env.Task
	damage *damage // nil if the log was whole
	loss   loss    // what the file LOSS says, or is to say; of a recovery only

	// Set by Open, before anybody else knows of the log.
	logID      record.LogID
	cuts       bool // a kill may cut a direct write: vfs.Placement
	generation uint64
	doubts     map[uint64]Doubt

	// fenceMu guards the file FENCE.
	fenceMu sync.Mutex
	fence   fence // as it is on disk

	failed atomic.Pointer[FailedError] // set once, by fail
	closed atomic.Bool                 // set once, by Close
	stats  counters

	// syncMu makes Syncs follow one another.
	syncMu sync.Mutex

	// mu guards the writing end. Readers never take it.
	mu           sync.Mutex
	tail         *segment
	sealed       record.End // how the segment before the tail ended
	durable      position   // everything before it is synced; in the tail, or in older
	older        *segment   // the one before the tail, if it is not synced to its end
	sealedSynced *segment   // the one before the tail, if it was synced to its end, and not put to rest yet
	idling       idling
	pace         pace
	buf          []byte // records on their way to the tail, at offset bufAt; see blocks.go
	bufAt        int64
	written      int    // bytes of buf that the tail has already
	largeBuf     []byte // kept for a large batch, and
	smallBuf     []byte // kept while there is one; see blocks.go
	spots        []spot // of the entries of the current Append, in order
	plans        []plan // of the writes of the current Append, in order
	batch        uint64 // number of the current Append
	cleanBelow   uint64 // the tail at the last append that gave a reason to clean
	freedBytes   int64  // bytes that compactions let go of since they last gave a reason to clean
	firstNeeded  uint64 // segments before it are not needed; once that is durable, they go
	indexes      indexes
	cache        ring
	touched      []*Group   // that were appended to since a flush was captured
	waiting      waiting    // for a flush
	critical     position   // what was written before it counts only when it is durable, in any mode
	flushes      int        // captured and not completed
	idle         []captured // of a flush that was completed, for the next
	holes        []Hole     // what the log lacked when it was opened, until CaughtUp

	// Of a recovery only.
	unfinished unfinished
	tip        record.End // how the segment ended that was read last, of those with records
	lastRead   uint64     // the segment that was read last
	rereads    []rereadBlock
	past       fence      // of the life before
	pastCopy   int        // which copy of it was whole
	pastLost   bool       // it cannot be read
	boot       string     // of the machine
	mount      uint64     // of the directory
	bootErr    error      // why that is not known
	sameBoot   bool       // as in the life before
	newest     uint64     // the highest generation that segments and marks name
	reached    record.End // where the log ended, durably, when it was adopted

	flushDue atomic.Bool // for the helper, in ModeUnsafeInterval
	interval env.Timer   // sets it; nil in other modes
	idleDue  atomic.Bool // for the helper: markIdle
	// idleTimer sets it; nil in ModeMemory, and during a recovery.
	idleTimer env.Timer
	cleanDue  atomic.Bool // segments may have become unneeded; see clean.go
	sweep     sweep       // of the helper only

	// prepareMu guards the segments after the tail, and the spares, for moments only.
	prepareMu sync.Mutex
	making    bool      // somebody makes a segment or a spare: claimMaking
	made      sync.Cond // of prepareMu: making ended
	ready     []*segment
	cooling   []*segment // sealed, and not put to rest yet
	lastID    uint64     // the highest id in use
	spares    []string   // paths; one is the reserve

	starved atomic.Bool // the reserve was used up

	// dirMu makes syncs of the directory follow one another: syncDir.
	dirMu sync.Mutex

	cold coldFiles // of segments at rest

	// tableMu guards the maps below, for moments only.
	tableMu  sync.RWMutex
	groups   map[uint64]*Group
	list     []*Group // the same, in the order in which they came, but for deletions
	segments map[uint64]*segment
}

// fail makes err the log's last word, unless it has spoken before; it returns what was said first.
func (l *Log) fail(op string, s *segment, off int64, err error) error {
	return l.failAt(op, s.path, off, err)
}

// failAt is fail for a file that is not a segment.
func (l *Log) failAt(op, path string, off int64, err error) error {
	f := &FailedError{Op: op, File: path, Offset: off, Err: err}
	if l.failed.CompareAndSwap(nil, f) {
		l.opts.Logger.Error("wal: stopped for good", "op", op, "file", path, "offset", off, "err", err)
		_ = l.distrustBoot() // the disk may refuse that, too; then the next Open may take a half of the write for damage
	}
	return l.failed.Load()
}

// failure returns the error that stopped the log, if any.
func (l *Log) failure() error {
	if f := l.failed.Load(); f != nil {
		return f
	}
	return nil
}

// Group returns the reading end of a group's log; of one that was never written to it is empty.
func (l *Log) Group(id uint64) *Group {
	if g := l.known(id); g != nil {
		return g
	}
	l.tableMu.Lock()
	defer l.tableMu.Unlock()
	if l.groups[id] == nil {
		l.groups[id] = &Group{log: l, id: id, slot: len(l.list), index: index{grow: -1}}
		l.list = append(l.list, l.groups[id])
	}
	return l.groups[id]
}

// forget takes a group out of the table, for good.
func (l *Log) forget(g *Group) {
	g.deleted = true
	l.tableMu.Lock()
	defer l.tableMu.Unlock()
	delete(l.groups, g.id)
	last := l.list[len(l.list)-1]
	l.list[g.slot], last.slot = last, g.slot
	l.list[len(l.list)-1] = nil
	l.list = l.list[:len(l.list)-1]
}

// known returns a group that was asked for or written to before, or nil.
func (l *Log) known(id uint64) *Group {
	l.tableMu.RLock()
	defer l.tableMu.RUnlock()
	return l.groups[id]
}

// someGroups returns all groups that the log knows, in an order that does not depend on chance.
func (l *Log) someGroups() []*Group {
	l.tableMu.RLock()
	defer l.tableMu.RUnlock()
	return slices.Clone(l.list)
}

// Groups returns the ids of all groups that the log knows, in no particular order.
func (l *Log) Groups() []uint64 {
	l.tableMu.RLock()
	defer l.tableMu.RUnlock()
	ids := make([]uint64, 0, len(l.groups))
	for id := range maps.Keys(l.groups) {
		ids = append(ids, id)
	}
	return ids
}

// allGroups returns all groups that the log knows, in order of their ids.
func (l *Log) allGroups() []*Group {
	l.tableMu.RLock()
	defer l.tableMu.RUnlock()
	return slices.SortedFunc(maps.Values(l.groups), func(a, b *Group) int { return cmp.Compare(a.id, b.id) })
}

func (l *Log) segment(id uint64) *segment {
	l.tableMu.RLock()
	defer l.tableMu.RUnlock()
	return l.segments[id]
}

func (l *Log) addSegment(s *segment) {
	l.tableMu.Lock()
	defer l.tableMu.Unlock()
	l.segments[s.id] = s
	l.stats.segments.Store(uint64(len(l.segments)))
}

// Close stops the helper, syncs what is pending, marks it as synced, and lets go of the directory. It waits for
// reads that are under way. Further calls return nil.
func (l *Log) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	if l.interval != nil {
		l.interval.Stop()
	}
	if l.idleTimer != nil {
		l.idleTimer.Stop()
	}
	// Seen in TestInspectionOfALogInUse: the helper may be waiting for any lock, syncMu too.
	l.helper.Stop()
	l.claimMaking() // after an append that makes a segment; the next one finds the log closed
	defer l.releaseMaking()
	l.syncMu.Lock() // after a flush that is under way
	defer l.syncMu.Unlock()
	l.mu.Lock()
	err := l.seal()
	end := record.End{Segment: l.tail.id, Offset: l.tail.end, Chain: l.tail.chain}
	l.mu.Unlock()
	switch {
	case err == nil:
		err = l.changeFence(func(f *fence) { f.flags, f.end = f.flags&^flagDirty|flagClosed|flagMade, end })
	case l.opts.Mode.Unsafe():
		err = errors.Join(err, l.noteAmnesia())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(err, l.closeFiles())
}

// closeFiles closes everything that is open. mu is held, or nobody else knows of the log yet.
func (l *Log) closeFiles() error {
	l.prepareMu.Lock()
	defer l.prepareMu.Unlock()
	l.tableMu.RLock()
	defer l.tableMu.RUnlock()
	l.fenceMu.Lock()
	defer l.fenceMu.Unlock()
	l.fence.version = 0 // another life may begin: FENCE is not this one's any more (editFence)
	var errs []error
	for _, s := range l.segments {
		errs = append(errs, s.close())
	}
	for _, s := range l.ready {
		errs = append(errs, s.close())
	}
	if l.lock != nil {
		errs = append(errs, l.lock.Close())
	}
	return errors.Join(errs...)
}
