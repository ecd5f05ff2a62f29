package core

import (
	"encoding/binary"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
)

// The two workers of a node do what its Readys ask of storage and state machine, each in order and in its own
// time.

// beginWrite gives the append worker what is queued, or the first part of it.
func (n *node) beginWrite() {
	if n.appending > 0 || len(n.appends) == 0 {
		return
	}
	w := n.w
	if n.full > w.beat && n.rejectForSpace() {
		return
	}
	n.appending = len(n.appends)
	if w.rng.IntN(4) == 0 {
		n.appending = 1 + w.rng.IntN(len(n.appends))
	}
	if n.slowUntil > 0 && w.beat >= n.slowUntil {
		n.slow, n.slowUntil = 0, 0
	}
	w.plan(w.upTo(w.swarm.write)+n.slow, written, n).n = n.appending
}

// upTo draws a number of beats.
func (w *world) upTo(most int) int {
	if most == 0 {
		return 0
	}
	return w.rng.IntN(most + 1)
}

// writes is the end of a write of the first count messages: one sync for all of them.
func (n *node) writes(count int) {
	batch := n.appends[:count:count]
	sync := false
	for i := range batch {
		sync = sync || len(batch[i].Responses) > 0
	}
	if sync && n.armed != nil && n.failSync(nil) {
		return
	}
	n.appends, n.appending = n.appends[count:], 0
	for i := range batch {
		n.raise(&batch[i])
		if n.store(&batch[i], false); n.rn == nil {
			return
		}
	}
	if sync {
		n.disk.sync()
	}
	for i := range batch {
		n.release(batch[i].Responses)
	}
	n.beginWrite()
}

// store does one write.
func (n *node) store(m *raftpb.Message, sync bool) {
	if m.Snapshot != nil {
		n.installing = true
		for len(n.applications) > 0 { // as the contract asks
			n.applies()
		}
		if n.rn != nil && n.failsToRead() { // the snapshot is read back before anything relies on it
			n.failRead()
		}
		if n.installing = false; n.rn == nil {
			return // it could not read its log
		}
	}
	n.w.events++
	n.w.oracle.written(n, &n.disk.live, m)
	n.disk.do(m, sync)
	if m.Snapshot == nil {
		return
	}
	n.w.faults[Installed]++
	index, sum := sumOfState(m.Snapshot.Data)
	n.w.oracle.installs(n, m.Snapshot, index, sum)
	n.applied, n.sum, n.conf = index, sum, m.Snapshot.Metadata.ConfState
}

// release sends what waited for a worker.
func (n *node) release(responses []raftpb.Message) {
	for i := range responses {
		m := &responses[i]
		if m.To == n.id {
			n.w.plan(n.w.upTo(n.w.swarm.answer)+n.answersLater(), answered, n).message = *m
			continue
		}
		n.says(m)
	}
}

// says sends a message to a peer.
func (n *node) says(m *raftpb.Message) {
	n.w.oracle.leaves(n, m)
	n.w.send(m)
}

func (n *node) beginApply() {
	if n.applying || len(n.applications) == 0 {
		return
	}
	n.applying = true
	if n.w.trace != nil {
		n.w.trace("%d begins to apply, %d queued", n.id, len(n.applications))
	}
	n.w.plan(n.w.upTo(n.w.swarm.apply), applied, n)
}

// applies does the first of the queued applications.
func (n *node) applies() {
	n.applying = false
	if len(n.applications) == 0 {
		return // an install did it
	}
	m := n.applications[0]
	n.applications = n.applications[1:]
	entries := m.Entries
	if len(entries) == 0 { // a range
		var err error
		if entries, err = n.disk.Entries(m.Index+1, m.Commit+1, 1<<62); n.readFailed {
			n.failRead()
			return
		} else if err != nil {
			violate(property.Contract, "node %d cannot read entries (%d,%d], which it is to apply: %v", n.id, m.Index, m.Commit, err)
		}
	}
	n.apply(entries)
	n.release(m.Responses)
	n.beginApply()
	if !n.w.swarm.batch {
		n.drain() // a change of members may have given it work
	}
}

// apply applies entries.
func (n *node) apply(entries []raftpb.Entry) {
	n.w.events++
	for i := range entries {
		e := &entries[i]
		n.sum = mix(n.sum, sumOf(e))
		n.w.oracle.applies(n, e)
		n.applied, n.appliedTerm = e.Index, e.Term
		if e.Type == raftpb.EntryNormal {
			continue
		}
		n.conf = *n.rn.ApplyConfChange(changeOf(e))
		n.w.oracle.changed(n, e.Index)
		n.w.oracle.moves(n)
	}
	if s := &n.w.swarm; s.compactAfter > 0 && len(entries) > 0 && n.applied-n.disk.durable.base.Index > s.compactAfter+s.keep {
		n.beginSnapshot()
	}
}

func changeOf(e *raftpb.Entry) raftpb.ConfChangeI {
	if e.Type == raftpb.EntryConfChange {
		var c raftpb.ConfChange
		if err := c.Unmarshal(e.Data); err != nil {
			violate(property.Contract, "entry %v is a change of members that cannot be read: %v", e.ID(), err)
		}
		return c
	}
	var c raftpb.ConfChangeV2
	if err := c.Unmarshal(e.Data); err != nil {
		violate(property.Contract, "entry %v is a change of members that cannot be read: %v", e.ID(), err)
	}
	return c
}

// sumOf is a sum over what an entry is.
func sumOf(e *raftpb.Entry) uint64 {
	h := e.Term<<8 ^ uint64(e.Type)
	if len(e.Data) >= 8 {
		h = mix(h, binary.LittleEndian.Uint64(e.Data))
	}
	for _, b := range e.Data[min(8, len(e.Data)):min(24, len(e.Data))] {
		h = h*31 + uint64(b)
	}
	return mix(h, uint64(len(e.Data)))
}

// mix adds a number to a sum (the finalizer of SplitMix64).
func mix(sum, n uint64) uint64 {
	z := sum*0x9e3779b97f4a7c15 + n + 1
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
