package wal_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/raft/raftpb"
)

// What the crash laboratory knows of a log: everything that was appended, and what the log reported about it.
// A crash must leave the last state that the log reported as durable, or a later one. In an unsafe mode later
// states may have counted. If a crash loses one of those, the fence must report amnesia.

// labHistory holds the states of a log, one for each write of a group. They are numbered from the beginning
// of the workload.
type labHistory struct {
	now     labState
	at      uint64               // the number of now
	moments map[uint64]labMoment // that a crash may leave, by fingerprint
	floor   uint64               // a power cut leaves this state or a later one
	counted uint64               // the last state that counts; it exceeds floor in an unsafe mode only
	hurried uint64               // the state after the last write that must be durable before it counts, in any mode
	told    map[uint64]labGroup  // the state that counts; other members may know its votes
	indexes map[uint64]uint64    // Group.DurableIndex, as last shown
	ever    map[uint64]struct{}  // fingerprints of all states
	left    []uint64             // fingerprints of states that a refused append may leave until the next one
	leftAt  uint64               // the number of the state without it
}

// labMoment is a state and its number, the highest one if the log was in that state more than once.
type labMoment struct {
	n     uint64
	state labState
}

// setOnly makes s the only state that a crash may leave.
func (h *labHistory) setOnly(s labState) {
	h.now = s
	h.moments, h.indexes = map[uint64]labMoment{}, map[uint64]uint64{}
	h.floor, h.counted, h.hurried = h.at, h.at, h.at
	h.tell(s)
	h.add()
}

// add adds the current state to those that a crash may leave.
func (h *labHistory) add() {
	sum := h.now.fingerprint()
	h.moments[sum] = labMoment{h.at, h.now}
	if h.ever == nil {
		h.ever = map[uint64]struct{}{}
	}
	h.ever[sum] = struct{}{}
	h.ever[h.now.mended().fingerprint()] = struct{}{}
}

// mended returns a state as a salvage leaves it: a group is at least in the term of its last entry.
func (s labState) mended() labState {
	m := s.clone()
	for id, g := range m {
		if last := g.term(g.last()); g.hs.Term < last {
			g.hs = raftpb.HardState{Term: last, Commit: max(g.hs.Commit, g.start)}
			m[id] = g
		}
	}
	return m
}

// tell notes that s counts, so that other members may know its votes.
func (h *labHistory) tell(s labState) {
	h.told = maps.Clone(s)
}

// write applies writes one by one.
func (h *labHistory) write(writes []labWrite) {
	for i := range writes {
		w := &writes[i]
		g := h.now[w.group]
		h.at++
		if w.hurries(&g) {
			h.hurried = h.at
		}
		g.apply(w)
		next := h.now.clone()
		next[w.group] = g
		h.now = next
		h.add()
		if i, ok := h.indexes[w.group]; ok { // a truncation may have lowered the durable index
			h.indexes[w.group] = min(i, g.last())
		}
	}
}

// save returns a copy, for restoring the history after a refused append.
func (h *labHistory) save() labHistory {
	c := *h
	c.moments, c.indexes = maps.Clone(h.moments), maps.Clone(h.indexes)
	return c
}

// leaves notes that the states of a refused append are among those that a crash may leave.
func (h *labHistory) leaves(tried *labHistory) {
	h.left = slices.Clone(h.left)
	for sum, m := range tried.moments {
		if _, ok := h.moments[sum]; !ok {
			h.moments[sum] = labMoment{h.at, m.state}
			h.left = append(h.left, sum)
		}
	}
	h.leftAt = h.at
}

// nothingLeft notes that an append was written, and what a refused one had left is gone.
func (h *labHistory) nothingLeft() {
	for _, sum := range h.left {
		if h.moments[sum].n <= h.leftAt {
			delete(h.moments, sum)
		}
	}
	h.left = nil
}

// keeps notes that state s with number n is durable, and so are all states before it.
func (h *labHistory) keeps(n uint64, s labState) {
	h.count(n, s)
	if n <= h.floor {
		return
	}
	h.floor = n
	maps.DeleteFunc(h.moments, func(_ uint64, m labMoment) bool { return m.n < n })
}

// count notes that state s with number n counts.
func (h *labHistory) count(n uint64, s labState) {
	if n >= h.counted {
		h.counted = n
		h.tell(s)
	}
}

// counts notes that the current state counts. In a safe mode it is then durable.
func (h *labHistory) counts(unsafe bool) {
	if !unsafe {
		h.keeps(h.at, h.now)
		return
	}
	h.count(h.at, h.now)
	h.floor = max(h.floor, h.hurried) // one sync covers everything before it
}

// reject returns the reason why a crash must not leave the state with fingerprint sum and fence f, or "".
func (h *labHistory) reject(sum uint64, f labFence) string {
	m, ok := h.moments[sum]
	switch {
	case !ok || m.n < h.floor:
		return fmt.Sprintf("it may show one of %d states, and the newest of them is %v", len(h.moments), h.now)
	case m.n < h.counted && !f.amnesia:
		return fmt.Sprintf("state %d counted, this is state %d, and the fence does not say that something is lost", h.counted, m.n)
	}
	for id, told := range h.told {
		hs, was := m.state[id].hs, told.hs
		if !m.state[id].deleted && (hs.Term < was.Term || hs.Term == was.Term && was.Vote != 0 && hs.Vote != was.Vote) {
			return fmt.Sprintf("group %d has reported term %d and vote %d", id, was.Term, was.Vote)
		}
	}
	for id, i := range h.indexes {
		if g := m.state[id]; g.last() < i {
			return fmt.Sprintf("group %d has reported index %d as durable", id, i)
		}
	}
	return ""
}

// hurries reports whether w must be durable before it counts, in any mode. g is the group before w.
func (w *labWrite) hurries(g *labGroup) bool {
	if w.deletes || w.hs != (raftpb.HardState{}) && (w.hs.Term != g.hs.Term || w.hs.Vote != g.hs.Vote) || w.snapshot > 0 {
		return true
	}
	for i := range w.entries {
		if w.entries[i].Type != raftpb.EntryNormal {
			return true
		}
	}
	return false
}

// labPast is what the fence of a log has said in all lives of the log.
type labPast struct {
	generation uint64 // the highest one
	amnesia    bool   // the fence reported amnesia, and CaughtUp was not called since
	unsafe     bool   // one of its lives had an unsafe mode, which may lose something
}

// reject returns the reason why the fence f is wrong after this past, or "".
func (p *labPast) reject(f labFence) string {
	switch {
	case f.generation <= p.generation:
		return fmt.Sprintf("the fence shows generation %d after %d", f.generation, p.generation)
	case p.amnesia && !f.amnesia:
		return "the fence has forgotten that something is lost"
	case f.amnesia && !p.amnesia && !p.unsafe:
		return "the fence says that something is lost, and no mode lets anything be lost"
	}
	return ""
}
