package core

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// image is a log, a snapshot and a hard state: what a disk holds, or what it will hold when everything that
// was written is durable.
type image struct {
	hs       raftpb.HardState
	base     raftpb.EntryID // of the entry before entries
	snapshot raftpb.Snapshot
	entries  []raftpb.Entry // entries[i] has index base.Index+1+i; never written to, only appended
}

func (d *image) last() uint64 { return d.base.Index + uint64(len(d.entries)) }

// term returns the term of an entry, and whether the image has it. It has what its base covers: known is then
// false.
func (d *image) term(i uint64) (term uint64, known bool) {
	switch {
	case i == d.base.Index:
		return d.base.Term, true
	case i < d.base.Index || i > d.last():
		return 0, false
	}
	return d.entries[i-d.base.Index-1].Term, true
}

func (d *image) clone() image {
	c := *d
	c.entries = slices.Clone(d.entries)
	return c
}

// A write has these parts, in this order, of which a crash may leave any number (package raft, "A write is
// atomic"): term and vote, snapshot, truncation, hard state, and each entry.
const partsBeforeEntries = 4

func partsOf(m *raftpb.Message) int { return partsBeforeEntries + len(m.Entries) }

// write does the first parts of a write.
func (d *image) write(m *raftpb.Message, parts int) {
	if parts > 0 && m.Term != 0 {
		d.hs.Term, d.hs.Vote = m.Term, m.Vote
	}
	if parts > 1 && m.Snapshot != nil {
		meta := &m.Snapshot.Metadata
		if meta.Index <= d.base.Index {
			violate("the storage is to go back from entry %d to a snapshot of entry %d", d.base.Index, meta.Index)
		}
		d.snapshot, d.base, d.entries = *m.Snapshot, raftpb.EntryID{Term: meta.Term, Index: meta.Index}, nil
	}
	if parts > 2 && len(m.Entries) > 0 {
		if first := m.Entries[0].Index; first <= d.base.Index || first > d.last()+1 {
			violate("the storage is to write entry %d, and has entries %d to %d", first, d.base.Index+1, d.last())
		} else if first <= d.last() {
			kept := first - d.base.Index - 1
			d.entries = d.entries[:kept:kept]
		}
	}
	if parts > 3 && m.Term != 0 {
		d.hs = raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	}
	if n := min(parts-partsBeforeEntries, len(m.Entries)); n > 0 {
		d.entries = append(d.entries, m.Entries[:n]...)
	}
}

// disk is the storage of one node.
type disk struct {
	node    *node
	live    image // what the node reads
	durable image // what a power cut leaves
	// unsynced are the writes that are in live and not in durable: a write without responses may wait.
	unsynced []raftpb.Message
}

// do does a write, and makes it and all before it durable if it says so.
func (d *disk) do(m *raftpb.Message, sync bool) {
	d.live.write(m, partsOf(m))
	d.unsynced = append(d.unsynced, *m)
	if sync {
		d.sync()
	}
}

func (d *disk) sync() {
	for i := range d.unsynced {
		d.durable.write(&d.unsynced[i], partsOf(&d.unsynced[i]))
	}
	if len(d.unsynced) > 0 {
		d.node.tell(Event{Kind: EventSync, Writes: len(d.unsynced)})
	}
	clear(d.unsynced)
	d.unsynced = d.unsynced[:0]
}

// lose is a power cut with these writes under way, behind those that were not synced: a prefix of all of them
// is durable, which may end within a write.
func (d *disk) lose(queued []raftpb.Message, rng *rand.Rand, order bug) (torn bool) {
	writes := append(d.unsynced, queued...)
	do := func(m *raftpb.Message, parts int) {
		d.node.w.oracle.written(d.node, &d.durable, m)
		order.tear(&d.durable, m, parts)
	}
	if len(writes) > 0 {
		n := rng.IntN(len(writes) + 1)
		for i := range writes[:n] {
			do(&writes[i], partsOf(&writes[i]))
		}
		if n < len(writes) {
			m := &writes[n]
			if parts := rng.IntN(partsOf(m)); parts > 0 {
				torn = true
				do(m, parts)
			}
		}
	}
	d.unsynced = nil
	d.durable.hs.Commit = min(d.durable.hs.Commit, d.durable.last())
	d.live = d.durable.clone()
	return torn
}

// compact makes a snapshot of the state machine, and drops the log except its last entries.
// It does nothing while the state machine is ahead of what is durable.
func (d *disk) compact(applied, keep uint64, state []byte, conf raftpb.ConfState) bool {
	term, known := d.durable.term(applied)
	if !known || applied <= d.durable.snapshot.Metadata.Index || applied-min(keep, applied) <= max(d.durable.base.Index, d.live.base.Index) {
		return false
	}
	if live, _ := d.live.term(applied); live != term {
		return false
	}
	snapshot := raftpb.Snapshot{Data: state, Metadata: raftpb.SnapshotMetadata{ConfState: conf, Index: applied, Term: term}}
	for _, i := range []*image{&d.live, &d.durable} {
		i.snapshot = snapshot
		to := applied - keep
		base, _ := i.term(to)
		// A copy: the core keeps slices that it was given.
		i.entries = slices.Clone(i.entries[to-i.base.Index:])
		i.base = raftpb.EntryID{Term: base, Index: to}
	}
	return true
}

// state is the data of a snapshot: the last entry applied, and the sum over all of them.
func state(index, sum uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, index), sum)
}

func sumOfState(data []byte) (index, sum uint64) {
	if len(data) != 16 {
		violate("a snapshot has %d bytes, want 16", len(data))
	}
	return binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
}

// InitialState implements raft.Storage.
func (d *disk) InitialState() (raftpb.HardState, raftpb.ConfState, error) {
	return d.live.hs, d.node.conf, nil
}

// Entries implements raft.Storage.
func (d *disk) Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	l := &d.live
	if lo <= l.base.Index {
		return nil, raft.ErrCompacted
	}
	if lo > hi || hi > l.last()+1 {
		return nil, fmt.Errorf("entries [%d,%d) of a log that ends at %d: %w", lo, hi, l.last(), raft.ErrUnavailable)
	}
	entries := l.entries[lo-l.base.Index-1 : hi-l.base.Index-1 : hi-l.base.Index-1]
	size := uint64(0)
	for i := range entries {
		if size += uint64(entries[i].Size()); size > maxSize && i > 0 {
			return entries[:i:i], nil
		}
	}
	return entries, nil
}

// Term implements raft.Storage.
func (d *disk) Term(i uint64) (uint64, error) {
	term, known := d.live.term(i)
	switch {
	case known:
		return term, nil
	case i < d.live.base.Index:
		return 0, raft.ErrCompacted
	}
	return 0, raft.ErrUnavailable
}

// LastIndex implements raft.Storage.
func (d *disk) LastIndex() (uint64, error) { return d.live.last(), nil }

// FirstIndex implements raft.Storage.
func (d *disk) FirstIndex() (uint64, error) { return d.live.base.Index + 1, nil }

// Snapshot implements raft.Storage.
func (d *disk) Snapshot() (raftpb.Snapshot, error) {
	if d.node.w.rng.IntN(8) == 0 && !d.node.w.healing {
		return raftpb.Snapshot{}, raft.ErrSnapshotTemporarilyUnavailable
	}
	return d.live.snapshot, nil
}
