package wal_test

import (
	"fmt"
	"maps"

	"github.com/millrace/millrace/raft/raftpb"
)

// What the crash laboratory knows of a log: all that it was told, and what it said of that. A crash must
// leave one of the states since the last one that the log said to be durable. In an unsafe mode more may have
// counted; then the fence must own up to what is gone.

// labHistory is the states of a log, one for each write of a group, numbered from the beginning of the
// workload.
type labHistory struct {
	now     labState
	at      uint64               // number of now
	moments map[uint64]labMoment // that a crash may leave, by fingerprint
	floor   uint64               // a power cut leaves this state or a later one
	counted uint64               // the log said that this state counts; above floor in an unsafe mode only
	hurried uint64               // the last state of a write that must be durable before it counts, in any mode
	told    map[uint64]labGroup  // votes that others may know of
	indexes map[uint64]uint64    // Group.DurableIndex, as last shown
	ever    map[uint64]struct{}  // fingerprints of all states
}

// labMoment is a state and its number, the highest if the log was in it more than once.
type labMoment struct {
	n     uint64
	state labState
}

// setOnly makes s the one state that a crash may leave.
func (h *labHistory) setOnly(s labState) {
	h.now = s
	h.moments, h.indexes = map[uint64]labMoment{}, map[uint64]uint64{}
	h.floor, h.counted, h.hurried = h.at, h.at, h.at
	h.tell(s)
	h.add()
}

// add notes the state now.
func (h *labHistory) add() {
	sum := h.now.fingerprint()
	h.moments[sum] = labMoment{h.at, h.now}
	if h.ever == nil {
		h.ever = map[uint64]struct{}{}
	}
	h.ever[sum] = struct{}{}
}

// tell notes the votes of a state that counts.
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
		if i, ok := h.indexes[w.group]; ok { // until the log shows it again, what it said may be true or not
			h.indexes[w.group] = min(i, g.last())
		}
	}
}

// save returns a copy to go back to.
func (h *labHistory) save() labHistory {
	c := *h
	c.moments, c.indexes = maps.Clone(h.moments), maps.Clone(h.indexes)
	return c
}

// keeps notes that the state with a number is durable, with all before it.
func (h *labHistory) keeps(n uint64, s labState) {
	h.count(n, s)
	if n <= h.floor {
		return
	}
	h.floor = n
	maps.DeleteFunc(h.moments, func(_ uint64, m labMoment) bool { return m.n < n })
}

// count notes that the log said that the state with a number counts.
func (h *labHistory) count(n uint64, s labState) {
	if n >= h.counted {
		h.counted = n
		h.tell(s)
	}
}

// counts notes that all that was written counts, in a mode.
func (h *labHistory) counts(unsafe bool) {
	if !unsafe {
		h.keeps(h.at, h.now)
		return
	}
	h.count(h.at, h.now)
	h.floor = max(h.floor, h.hurried) // one sync covers all before it
}

// reject says why a crash must not leave the state with a fingerprint, or "".
func (h *labHistory) reject(sum uint64, f labFence) string {
	m, ok := h.moments[sum]
	switch {
	case !ok || m.n < h.floor:
		return fmt.Sprintf("it may show one of %d states, the newest of which is %v", len(h.moments), h.now)
	case m.n < h.counted && !f.amnesia:
		return fmt.Sprintf("state %d counted, this is state %d, and the fence does not say that something is lost", h.counted, m.n)
	}
	for id, told := range h.told {
		hs, was := m.state[id].hs, told.hs
		if m.state[id].lives == told.lives && (hs.Term < was.Term || hs.Term == was.Term && was.Vote != 0 && hs.Vote != was.Vote) {
			return fmt.Sprintf("group %d told of term %d and vote %d", id, was.Term, was.Vote)
		}
	}
	for id, i := range h.indexes {
		if g := m.state[id]; g.last() < i {
			return fmt.Sprintf("group %d said that index %d is durable", id, i)
		}
	}
	return ""
}

// hurries reports whether w must be durable before it counts, in any mode. g is the group before it.
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

// labPast is what a log said of itself, over all its lives.
type labPast struct {
	generation uint64 // the highest
	amnesia    bool   // it said so, and was not told that it has caught up
	unsafe     bool   // one of its lives may have lost something by right
}

// reject says why a fence must not say what it does, or "".
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
