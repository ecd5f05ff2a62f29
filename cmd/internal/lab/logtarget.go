package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// logTarget drives a LogStore as a Target: clients put values into lanes, and a goroutine for each lane takes all that is
// waiting, appends it as one batch, and answers. That is group commit as every Raft library does it, in a loop above the
// log, and it is the same loop for all: before it takes a batch it lets the clients run that it has just answered, so that
// batches are as large as the load allows.
//
// A client's values go to all groups in turn. Behind the newest the log is compacted, as by a Raft library that makes
// snapshots: a log that only grows would measure how fast a filesystem allocates, and fill the disk.
//
// Before anybody waits, four times as much is written as is kept (fill), so that every log is measured as it is after months: with files to use
// again, or to remove; a young log allocates each file for the first time, which no batch of an old one waits for.
//
// What was appended where is remembered (16 bytes an entry) until it is compacted; verify reads all of it back.
type logTarget struct {
	library LogLibrary
	setup   LogSetup
	store   LogStore
	lanes   []*logLane
	groups  []logGroup
	keep    uint64 // entries of a group that a compaction leaves
	chunk   uint64 // and how many it drops at least

	fsyncsBefore uint64
	syncedBytes  atomic.Uint64
	appends      atomic.Uint64
	entries      atomic.Uint64
	compactions  atomic.Uint64
	stopOnce     sync.Once
	wg           sync.WaitGroup
}

// logGroup belongs to the goroutine of its lane, and to verify after that has ended.
type logGroup struct {
	first uint64 // the lowest index not yet compacted
	ids   []valueID
}

func (g *logGroup) next() uint64 { return g.first + uint64(len(g.ids)) }

// logLane is a queue of values that are appended together.
type logLane struct {
	target *logTarget
	mu     sync.Mutex
	ready  *sync.Cond
	queue  []pendingAppend
	closed error

	// Owned by run.
	taken []pendingAppend
	batch []LogEntry
}

// pendingAppend is a client that waits.
type pendingAppend struct {
	id     valueID
	group  int
	value  []byte
	answer chan error
}

// mostBatchBytes bounds one append; with the values of the aims a thousand clients fill a quarter of it.
const mostBatchBytes = 4 << 20

var errLogClosed = errors.New("the log is closed")

// openLogTarget opens a log, fills it, and starts its lanes.
func openLogTarget(library LogLibrary, setup LogSetup, source *valueSource) (_ *logTarget, err error) {
	store, err := library.Open(setup)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	t := &logTarget{library: library, setup: setup, store: store, groups: make([]logGroup, setup.Groups)}
	t.keep = max(uint64(setup.KeepBytes)/uint64(source.valueBytes*setup.Groups), 16)
	t.chunk = max(t.keep/4, 1)
	t.fsyncsBefore = library.Fsyncs()
	for i := range t.groups {
		t.groups[i].first = 1
	}
	for range t.laneCount() {
		l := &logLane{target: t}
		l.ready = sync.NewCond(&l.mu)
		t.lanes = append(t.lanes, l)
	}
	if err := t.fill(source); err != nil {
		return nil, errors.Join(fmt.Errorf("fill: %w", err), store.Close())
	}
	for _, l := range t.lanes {
		t.wg.Go(l.run)
	}
	return t, nil
}

const (
	fillBatch  = 1000    // entries
	fillClient = 1 << 31 // above all clients
	fillTimes  = 4       // what is kept: with less, logs with large segments have none to use again yet
)

// fill writes fillTimes what is kept, in batches of one lane each.
func (t *logTarget) fill(source *valueSource) error {
	seq := uint64(0)
	for i, l := range t.lanes {
		groups := t.setup.Groups / len(t.lanes)
		for left := fillTimes * int(t.keep) * groups; left > 0; left -= len(l.taken) {
			l.taken = l.taken[:0]
			for bytes := 0; len(l.taken) < min(left, fillBatch) && bytes < mostBatchBytes; bytes += source.valueBytes {
				id := valueID{client: fillClient, seq: seq}
				l.taken = append(l.taken, pendingAppend{id: id, group: i + len(l.taken)%groups, value: source.value(id)})
				seq++
			}
			if err := l.commit(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *logTarget) laneCount() int {
	if t.library.Shared {
		return 1
	}
	return t.setup.Groups
}

// Propose implements Target. While it waits it does not look at ctx: Close answers everybody.
func (t *logTarget) Propose(ctx context.Context, value []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p := pendingAppend{id: idOf(value), value: value, answer: answers.Get().(chan error)}
	p.group = int((p.id.seq + uint64(p.id.client)) % uint64(t.setup.Groups))
	if err := t.lanes[p.group%len(t.lanes)].put(p); err != nil {
		return err
	}
	err := <-p.answer
	answers.Put(p.answer)
	return err
}

// idOf reads the id out of a value that this process has made.
func idOf(value []byte) valueID {
	return valueID{client: binary.LittleEndian.Uint32(value[4:]), seq: binary.LittleEndian.Uint64(value[8:])}
}

func (l *logLane) put(p pendingAppend) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return l.closed
	}
	l.queue = append(l.queue, p)
	l.ready.Signal()
	return nil
}

// run is the goroutine of a lane. It ends with the lane, or with the first error, which it tells everybody.
func (l *logLane) run() {
	for l.take() {
		if err := l.commit(); err != nil {
			l.shut(err)
			for _, p := range l.taken {
				p.answer <- err
			}
			return
		}
		for _, p := range l.taken {
			p.answer <- nil
		}
		// Those just answered put their next value in before the next batch is taken.
		runtime.Gosched()
	}
}

// take waits for values and takes all, up to mostBatchBytes.
func (l *logLane) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && l.closed == nil {
		l.ready.Wait()
	}
	if l.closed != nil {
		return false
	}
	n, bytes := 0, 0
	for n < len(l.queue) && (n == 0 || bytes+len(l.queue[n].value) <= mostBatchBytes) {
		bytes += len(l.queue[n].value)
		n++
	}
	l.taken = append(l.taken[:0], l.queue[:n]...)
	l.queue = l.queue[:copy(l.queue, l.queue[n:])]
	return true
}

// commit appends what was taken, and compacts where it is due.
func (l *logLane) commit() error {
	t := l.target
	l.batch = l.batch[:0]
	bytes := 0
	for _, p := range l.taken {
		g := &t.groups[p.group]
		l.batch = append(l.batch, LogEntry{Group: p.group, Index: g.next(), Data: p.value})
		g.ids = append(g.ids, p.id)
		bytes += len(p.value)
	}
	if err := t.store.Append(l.batch); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	t.appends.Add(1)
	t.entries.Add(uint64(len(l.batch)))
	t.syncedBytes.Add(uint64(bytes))
	for _, e := range l.batch {
		if err := t.compact(e.Group); err != nil {
			return fmt.Errorf("compact: %w", err)
		}
	}
	return nil
}

// compact drops what is too old, if it is worth a call.
func (t *logTarget) compact(group int) error {
	g := &t.groups[group]
	if uint64(len(g.ids)) < t.keep+t.chunk {
		return nil
	}
	drop := uint64(len(g.ids)) - t.keep
	if err := t.store.Compact(group, g.first+drop-1); err != nil {
		return err
	}
	t.compactions.Add(1)
	g.ids = g.ids[:copy(g.ids, g.ids[drop:])]
	g.first += drop
	return nil
}

// shut refuses further values and answers those that wait.
func (l *logLane) shut(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed == nil {
		l.closed = err
	}
	for _, p := range l.queue {
		p.answer <- l.closed
	}
	l.queue = nil
	l.ready.Signal()
}

// Counters implements Target.
func (t *logTarget) Counters() Counters {
	return Counters{
		Fsyncs: t.library.Fsyncs() - t.fsyncsBefore, FsyncBytes: t.syncedBytes.Load(),
		Appends: t.appends.Load(), AppendedEntries: t.entries.Load(),
	}
}

// stop ends the lanes.
func (t *logTarget) stop() {
	t.stopOnce.Do(func() {
		for _, l := range t.lanes {
			l.shut(errLogClosed)
		}
		t.wg.Wait()
	})
}

// Verify implements Target: the log is closed, opened again, and must hold each entry that was not compacted, in its place.
func (t *logTarget) Verify(ctx context.Context, ledger *Ledger) error {
	t.stop()
	if acked, entries := ledger.Acked(), t.entries.Load(); acked > entries {
		return fmt.Errorf("%w: %d writes were acknowledged and %d appended", ErrMismatch, acked, entries)
	}
	if err := t.store.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	store, err := t.library.Open(t.setup)
	if err != nil {
		t.store = nil
		return fmt.Errorf("open again: %w", err)
	}
	t.store = store
	return t.readBack(ctx)
}

func (t *logTarget) readBack(ctx context.Context) error {
	seen := make([]uint64, len(t.groups)) // the next index that must come
	for i := range t.groups {
		seen[i] = t.groups[i].first
	}
	err := t.store.Read(func(e LogEntry) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if e.Group < 0 || e.Group >= len(t.groups) {
			return fmt.Errorf("%w: an entry of group %d of %d", ErrMismatch, e.Group, len(t.groups))
		}
		g := &t.groups[e.Group]
		if e.Index < g.first {
			return nil // compacted, and still there: as it likes
		}
		if e.Index != seen[e.Group] || e.Index >= g.next() {
			return fmt.Errorf("%w: group %d holds entry %d where %d should be, the last one written being %d", ErrMismatch, e.Group, e.Index, seen[e.Group], g.next()-1)
		}
		seen[e.Group]++
		want := g.ids[e.Index-g.first]
		if id, _, ok := parseValue(e.Data); !ok || id != want {
			return fmt.Errorf("%w: entry %d of group %d is not write %d of client %d, which was acknowledged there", ErrMismatch, e.Index, e.Group, want.seq, want.client)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range t.groups {
		if g := &t.groups[i]; seen[i] != g.next() {
			return fmt.Errorf("%w: group %d ends before entry %d, and %d was acknowledged", ErrMismatch, i, seen[i], g.next()-1)
		}
	}
	return nil
}

// Close implements Target.
func (t *logTarget) Close() error {
	t.stop()
	if t.store == nil {
		return nil
	}
	return t.store.Close()
}
