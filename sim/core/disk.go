package core

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
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
			violate(property.Contract, "the storage is to go back from entry %d to a snapshot of entry %d", d.base.Index, meta.Index)
		}
		d.snapshot, d.base, d.entries = *m.Snapshot, raftpb.EntryID{Term: meta.Term, Index: meta.Index}, nil
	}
	if parts > 2 && len(m.Entries) > 0 {
		if first := m.Entries[0].Index; first <= d.base.Index || first > d.last()+1 {
			violate(property.Contract, "the storage is to write entry %d, and has entries %d to %d", first, d.base.Index+1, d.last())
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
	// older images of durable: before the last sync, and of some earlier time. They share entries with it.
	synced, backup image
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
	if len(d.unsynced) > 0 {
		d.synced = d.durable
	}
	for i := range d.unsynced {
		d.durable.write(&d.unsynced[i], partsOf(&d.unsynced[i]))
	}
	clear(d.unsynced)
	d.unsynced = d.unsynced[:0]
}

// lose is a power cut with these writes under way, behind those that were not synced: a prefix of all of them
// is durable, at least the first kept ones. It may end within a write, and does if tears.
func (d *disk) lose(queued []raftpb.Message, kept int, tears bool, rng *rand.Rand, order bug) (torn bool) {
	writes := append(d.unsynced, queued...)
	do := func(m *raftpb.Message, parts int) {
		d.node.w.oracle.written(d.node, &d.durable, m)
		order.tear(&d.durable, m, parts)
	}
	if len(writes) > kept {
		n := kept + rng.IntN(len(writes)-kept+1)
		if tears {
			n = min(n, len(writes)-1)
			if at := d.durable.truncates(writes[kept:]); at >= 0 && rng.IntN(4) > 0 {
				n = kept + at // where order matters most
			}
		}
		for i := range writes[:n] {
			do(&writes[i], partsOf(&writes[i]))
		}
		if n < len(writes) {
			m := &writes[n]
			parts := rng.IntN(partsOf(m))
			if tears {
				parts = max(parts, 1)
			}
			if parts > 0 {
				torn = true
				do(m, parts)
			}
		}
	} else {
		for i := range writes {
			do(&writes[i], partsOf(&writes[i]))
		}
	}
	d.unsynced = nil
	d.durable.hs.Commit = min(d.durable.hs.Commit, d.durable.last())
	d.live = d.durable.clone()
	return torn
}

// truncates returns which of the writes is the first that replaces entries, or -1.
func (d *image) truncates(writes []raftpb.Message) int {
	last := d.last()
	for i := range writes {
		if e := writes[i].Entries; len(e) > 0 {
			if e[0].Index <= last {
				return i
			}
			last = e[len(e)-1].Index
		}
	}
	return -1
}

// publish makes a snapshot of the state machine the one of the disk. It does nothing while the state machine
// is ahead of what is durable, or if the log does not gain by it.
func (d *disk) publish(meta raftpb.SnapshotMetadata, state []byte) bool {
	if meta.Index <= d.durable.snapshot.Metadata.Index {
		return false
	}
	for _, i := range []*image{&d.live, &d.durable} {
		// It may have another entry there still, which the one that was applied replaces (seed 3569).
		if term, known := i.term(meta.Index); !known || term != meta.Term {
			return false
		}
	}
	for _, i := range []*image{&d.live, &d.durable} {
		i.snapshot = raftpb.Snapshot{Data: state, Metadata: meta}
	}
	return true
}

// cut drops the log through the snapshot, except its last entries.
func (d *disk) cut(keep uint64) bool {
	index := d.durable.snapshot.Metadata.Index
	to := index - min(keep, index)
	if to <= max(d.durable.base.Index, d.live.base.Index) {
		return false
	}
	for _, i := range []*image{&d.live, &d.durable} {
		if _, known := i.term(to); !known {
			return false
		}
	}
	for _, i := range []*image{&d.live, &d.durable} {
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
		violate(property.Contract, "a snapshot has %d bytes, want 16", len(data))
	}
	return binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
}

// InitialState implements raft.Storage.
func (d *disk) InitialState() (raftpb.HardState, raftpb.ConfState, error) {
	return d.live.hs, d.node.conf, nil
}

// Entries implements raft.Storage.
func (d *disk) Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	if n := d.node; n.rn != nil && n.failsToRead() {
		return nil, errRead
	}
	return d.live.read(lo, hi, maxSize)
}

func (l *image) read(lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
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
