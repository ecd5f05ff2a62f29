package child

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// target drives a Store as a load.Target. Clients put values into batchers. The goroutine of a batcher takes
// all values that wait, appends them as one batch, and answers (batcher.go). That is group commit as every
// Raft library does it, in a loop above the log, and the loop is the same for all logs.
//
// A client's values go to all groups in turn. Behind the newest entries the log is compacted, as a Raft
// library does after a snapshot: a log that only grows would measure how fast a filesystem allocates, and
// fill the disk.
//
// Before the measurement, four times the retained amount is written (fill), so that every log is in its
// steady state and has old files to recycle or to delete. A fresh log pays for file allocation that a running
// one does not.
//
// What was appended where is remembered (16 bytes an entry) until it is compacted; Verify reads all of it
// back.
type target struct {
	library  Library
	setup    Setup
	store    Store
	batchers []*batcher
	groups   []group
	keep     uint64 // entries of a group that a compaction leaves
	chunk    uint64 // entries that a compaction drops at least

	fsyncsBefore uint64
	syncedBytes  atomic.Uint64
	appends      atomic.Uint64
	entries      atomic.Uint64
	stopOnce     sync.Once
	wg           sync.WaitGroup
}

// group belongs to the goroutine of its batcher, and to Verify after that has ended.
type group struct {
	first uint64 // the lowest index not yet compacted
	ids   []load.ValueID
}

func (g *group) next() uint64 { return g.first + uint64(len(g.ids)) }

// openTarget opens a log, fills it, and starts its batchers.
func openTarget(library Library, setup Setup, source *load.Source) (_ *target, err error) {
	store, err := library.Open(setup)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	t := &target{library: library, setup: setup, store: store, groups: make([]group, setup.Groups)}
	t.keep = max(uint64(setup.KeepBytes)/uint64(source.ValueBytes()*setup.Groups), 16)
	t.chunk = max(t.keep/4, 1)
	t.fsyncsBefore = library.Fsyncs()
	for i := range t.groups {
		t.groups[i].first = 1
	}
	for range t.batcherCount() {
		t.batchers = append(t.batchers, newBatcher(t))
	}
	if err := t.fill(source); err != nil {
		return nil, errors.Join(fmt.Errorf("fill: %w", err), store.Close())
	}
	for _, b := range t.batchers {
		t.wg.Go(b.run)
	}
	return t, nil
}

const (
	fillBatch  = 1000    // entries
	fillClient = 1 << 31 // above the numbers of all clients
	fillTimes  = 4       // with less, logs with large segments would not recycle any yet
)

// fill writes fillTimes the retained amount. Each batch belongs to one batcher.
func (t *target) fill(source *load.Source) error {
	seq := uint64(0)
	for i, b := range t.batchers {
		groups := t.setup.Groups / len(t.batchers)
		for left := fillTimes * int(t.keep) * groups; left > 0; left -= len(b.taken) {
			b.taken = b.taken[:0]
			for bytes := 0; len(b.taken) < min(left, fillBatch) && bytes < MaxBatchBytes; bytes += source.ValueBytes() {
				id := load.ValueID{Client: fillClient, Seq: seq}
				b.taken = append(b.taken, pendingAppend{id: id, group: i + len(b.taken)%groups, value: source.Value(id)})
				seq++
			}
			if err := b.appendTaken(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *target) batcherCount() int {
	if t.library.Shared {
		return 1
	}
	return t.setup.Groups
}

// Propose implements load.Target. While it waits it ignores ctx: Close answers every client.
func (t *target) Propose(ctx context.Context, value []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p := pendingAppend{id: load.IDOf(value), value: value, answer: load.GetAnswer()}
	p.group = int((p.id.Seq + uint64(p.id.Client)) % uint64(t.setup.Groups))
	if err := t.batchers[p.group%len(t.batchers)].put(p); err != nil {
		return err
	}
	err := <-p.answer
	load.PutAnswer(p.answer)
	return err
}

// compact drops entries that are too old, if there are enough of them to be worth a call.
func (t *target) compact(group int) error {
	g := &t.groups[group]
	if uint64(len(g.ids)) < t.keep+t.chunk {
		return nil
	}
	drop := uint64(len(g.ids)) - t.keep
	if err := t.store.Compact(group, g.first+drop-1); err != nil {
		return err
	}
	g.ids = g.ids[:copy(g.ids, g.ids[drop:])]
	g.first += drop
	return nil
}

// Counters implements load.Target.
func (t *target) Counters() load.Counters {
	return load.Counters{
		Fsyncs: t.library.Fsyncs() - t.fsyncsBefore, FsyncBytes: t.syncedBytes.Load(),
		Appends: t.appends.Load(), AppendedEntries: t.entries.Load(),
	}
}

// stop ends the batchers.
func (t *target) stop() {
	t.stopOnce.Do(func() {
		for _, b := range t.batchers {
			b.stop(errClosed)
		}
		t.wg.Wait()
	})
}

// Verify implements load.Target: the log is closed, opened again, and must hold each entry that was not
// compacted, at its index.
func (t *target) Verify(ctx context.Context, ledger *load.Ledger) error {
	t.stop()
	if acked, entries := ledger.Acked(), t.entries.Load(); acked > entries {
		return fmt.Errorf("%w: %d writes were acknowledged and %d appended", lab.ErrMismatch, acked, entries)
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

func (t *target) readBack(ctx context.Context) error {
	next := make([]uint64, len(t.groups)) // the index that must come next
	for i := range t.groups {
		next[i] = t.groups[i].first
	}
	err := t.store.Read(func(e Entry) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if e.Group < 0 || e.Group >= len(t.groups) {
			return fmt.Errorf("%w: an entry of group %d of %d", lab.ErrMismatch, e.Group, len(t.groups))
		}
		g := &t.groups[e.Group]
		if e.Index < g.first {
			return nil // compacted, and still there: the log may keep it
		}
		if e.Index != next[e.Group] || e.Index >= g.next() {
			return fmt.Errorf("%w: group %d holds entry %d where %d should be, the last one written being %d", lab.ErrMismatch, e.Group, e.Index, next[e.Group], g.next()-1)
		}
		next[e.Group]++
		want := g.ids[e.Index-g.first]
		if id, _, ok := load.ParseValue(e.Data); !ok || id != want {
			return fmt.Errorf("%w: entry %d of group %d is not write %d of client %d, which was acknowledged there", lab.ErrMismatch, e.Index, e.Group, want.Seq, want.Client)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range t.groups {
		if g := &t.groups[i]; next[i] != g.next() {
			return fmt.Errorf("%w: group %d ends before entry %d, and %d was acknowledged", lab.ErrMismatch, i, next[i], g.next()-1)
		}
	}
	return nil
}

// Close implements load.Target.
func (t *target) Close() error {
	t.stop()
	if t.store == nil {
		return nil
	}
	return t.store.Close()
}
