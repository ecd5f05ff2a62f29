package raft

import (
	"bytes"
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
)

// The judge of every test cluster checks each node after each input, and remembers what it saw.

// judge holds what must never be contradicted: thesis figure 3.2, and the storage contract.
type judge struct {
	leaders   map[uint64]string               // by term: the node that led it, and in which of its runs
	entries   map[raftpb.EntryID]rememberedIn // every entry ever seen in a log
	committed []committed                     // committed[i] has index i+1
	confs     map[uint64]raftpb.ConfState     // after each committed change, on the first node that applied it
	founded   uint64                          // founding changes are in force before they are applied: not compared
	reads     map[string]uint64               // what was committed anywhere when a read was asked
	votes     map[uint64]raftpb.Message       // the last vote that each node gave
	forgetful bool                            // a disk may have forgotten what is committed; see remembersChanges
}

type rememberedIn struct {
	prevTerm uint64
	data     []byte
}

type committed struct {
	entry raftpb.Entry
	term  uint64 // in which it was first seen to be committed
}

func newJudge() *judge {
	return &judge{leaders: map[uint64]string{}, entries: map[raftpb.EntryID]rememberedIn{}, confs: map[uint64]raftpb.ConfState{}, reads: map[string]uint64{}, votes: map[uint64]raftpb.Message{}}
}

// look compares one node with everything that was seen before.
func (j *judge) look(h *host) {
	r := h.node.raft
	r.checkCursors()
	entries := allEntries(h.node)
	j.logMatching(h, entries)
	base := int(r.log.firstIndex() - 1) // what is at or below was applied somewhere, so it is known
	for i := base; i < int(r.log.committed); i++ {
		switch {
		case i >= len(j.committed):
			j.committed = append(j.committed, committed{entries[i-base], r.term})
		case j.committed[i].entry.Term != entries[i-base].Term:
			j.broken("node %d holds %v committed, but %v was", h.id(), entries[i-base].ID(), j.committed[i].entry.ID())
		}
	}
	j.unapplied(h, entries)
	if r.role == StateLeader {
		j.oneLeader(h, r.term)
		j.progress(h)
	}
}

// unapplied compares the list of membership entries with the log.
func (j *judge) unapplied(h *host, entries []raftpb.Entry) {
	r, want := h.node.raft, false
	for i := range entries {
		e := &entries[i]
		want = want || e.Type != raftpb.EntryNormal && e.Index > r.log.applied && e.Index <= r.log.committed
	}
	if have := r.hasUnappliedConfChange(); have != want {
		j.broken("node %d has an unapplied membership change: %t, by its list: %t (%v)", h.id(), want, have, r.log.changes.indexes)
	}
}

// lacks reports whether a node's log surely does not hold an entry.
func lacks(rn *RawNode, id raftpb.EntryID) bool {
	term, err := rn.raft.log.term(id.Index)
	return err != ErrCompacted && (err != nil || term != id.Term)
}

// installs checks that a snapshot holds what was committed.
func (j *judge) installs(h *host, s raftpb.Snapshot) {
	index := s.Metadata.Index
	if index > uint64(len(j.committed)) || j.committed[index-1].entry.Term != s.Metadata.Term {
		j.broken("node %d installs a snapshot through %d of term %d, which is not what was committed", h.id(), index, s.Metadata.Term)
	}
	if index <= h.applied {
		j.broken("node %d installs a snapshot through %d over a state machine at %d", h.id(), index, h.applied)
	}
	if err := j.confAfter(index, s.Metadata.ConfState).Equivalent(s.Metadata.ConfState); err != nil {
		j.broken("node %d installs a snapshot through %d: %v", h.id(), index, err)
	}
}

// changes checks that a committed change leads to the same configuration on every node.
func (j *judge) changes(h *host, index uint64, have raftpb.ConfState) {
	want, known := j.confs[index]
	if index < j.founded {
		return
	} else if !known {
		j.confs[index] = have
	} else if err := have.Equivalent(want); err != nil {
		j.broken("node %d after the change at %d: %v", h.id(), index, err)
	}
}

// confAfter returns the configuration after an entry; founded is the one before all changes.
func (j *judge) confAfter(index uint64, founded raftpb.ConfState) raftpb.ConfState {
	for ; index > 0; index-- {
		if conf, changed := j.confs[index]; changed {
			return conf
		}
	}
	return founded
}

// Log matching: an entry id identifies one entry, and by induction over the terms before it, one prefix.
func (j *judge) logMatching(h *host, entries []raftpb.Entry) {
	prevTerm, _ := h.node.raft.log.term(h.node.raft.log.firstIndex() - 1)
	for _, e := range entries {
		seen, known := j.entries[e.ID()]
		switch {
		case !known:
			j.entries[e.ID()] = rememberedIn{prevTerm, e.Data}
		case seen.prevTerm != prevTerm || !bytes.Equal(seen.data, e.Data):
			j.broken("node %d: entry %v is %q after term %d, elsewhere %q after term %d", h.id(), e.ID(), e.Data, prevTerm, seen.data, seen.prevTerm)
		}
		prevTerm = e.Term
	}
}

// oneLeader checks election safety, across restarts of a node too, and leader completeness.
func (j *judge) oneLeader(h *host, term uint64) {
	me := fmt.Sprintf("node %d in its life %d", h.id(), h.incarnation)
	switch other, led := j.leaders[term]; {
	case led && other != me:
		j.broken("term %d is led by %s and by %s", term, other, me)
	case !led:
		j.leaders[term] = me
		for _, c := range j.committed {
			if c.term < term && lacks(h.node, c.entry.ID()) {
				j.broken("%s leads term %d without entry %v, committed in term %d", me, term, c.entry.ID(), c.term)
			}
		}
	}
}

// remembersChanges checks the invariant of membership.go on every disk: if it holds the entry of a change, it
// knows that the change before is committed.
func (j *judge) remembersChanges(h *host) {
	committed := max(h.disk.hardState.Commit, h.disk.base.Index)
	before := uint64(0)
	for _, e := range h.disk.entries {
		if e.Type == raftpb.EntryNormal {
			continue
		}
		if before > committed && !j.forgetful {
			j.broken("node %d holds the change at %d durably, but not that the one at %d is committed (%d is)", h.id(), e.Index, before, committed)
		}
		before = e.Index
	}
}

// remembersVotes checks that the disk after a crash has the last vote that its node gave, or a later term.
func (j *judge) remembersVotes(h *host) {
	if hs, v := h.disk.hardState, j.votes[h.id()]; hs.Term < v.Term || hs.Term == v.Term && hs.Vote != v.To {
		j.broken("node %d has voted for %d in term %d; its disk is at term %d, vote %d", h.id(), v.To, v.Term, hs.Term, hs.Vote)
	}
}

func (j *judge) progress(h *host) {
	r := h.node.raft
	for i := range r.leader.members {
		if p := &r.leader.members[i]; p.Progress.Match >= p.Progress.Next || p.Progress.Next > r.log.lastIndex()+1 {
			j.broken("leader %d on peer %d: match %d < next %d <= last+1 %d", h.id(), p.ID, p.Progress.Match, p.Progress.Next, r.log.lastIndex()+1)
		}
	}
	var own uint64
	for _, e := range allEntries(h.node) {
		if e.Index > r.log.applied && e.Index >= r.leader.termStart {
			own += uint64(len(e.Data)) + h.cfg.EntryOverheadBytes
		}
	}
	// Acknowledgements of the apply worker that overtake each other are counted late.
	if have := r.leader.uncommittedBytes; have < own || (have > own && len(h.inbox) == 0) {
		j.broken("leader %d counts %d uncommitted bytes, it has %d", h.id(), r.leader.uncommittedBytes, own)
	}
}

// applies checks state machine safety, and that what is applied is on the node's disk.
func (j *judge) applies(h *host, e raftpb.Entry) {
	if int(e.Index) > len(j.committed) || j.committed[e.Index-1].entry.Term != e.Term || !bytes.Equal(j.committed[e.Index-1].entry.Data, e.Data) {
		j.broken("node %d applies %v, which is not what was committed", h.id(), e.ID())
	}
	for i := e.Index; !j.onDisk(h, i); i-- {
		// A volatile state machine may be ahead of the disk, but not with a membership entry.
		if h.cfg.ApplyUnstable && j.committed[i-1].entry.Type == raftpb.EntryNormal {
			continue
		}
		j.broken("node %d applies %v ahead of its disk, which ends at %d", h.id(), e.ID(), h.disk.last())
	}
}

// onDisk reports whether a node's disk has committed entry i, or a snapshot of it.
func (j *judge) onDisk(h *host, i uint64) bool {
	term, err := h.disk.term(i)
	return err == ErrCompacted || err == nil && (i == h.disk.base.Index || term == j.committed[i-1].entry.Term)
}

// leaves checks that the disk holds what a message promises.
func (j *judge) leaves(h *host, m raftpb.Message) {
	hs, last := h.disk.hardState, h.disk.last()
	vouched := hs.Term == m.Term
	switch m.Type {
	case raftpb.MsgVote:
		vouched = vouched && hs.Vote == h.id()
	case raftpb.MsgVoteResp:
		vouched = vouched && (m.Reject || hs.Vote == m.To)
	case raftpb.MsgAppResp:
		vouched = vouched && (m.Reject || m.Index <= last)
	default:
		return
	}
	if m.Type == raftpb.MsgVoteResp && !m.Reject && m.Term >= j.votes[h.id()].Term {
		j.votes[h.id()] = m
	}
	if m.Type == raftpb.MsgAppResp && !m.Reject && hs.Term == m.Term {
		j.acknowledged(h, m)
	}
	// If the write already carried a later term, the message is late, not wrong.
	if !vouched && hs.Term <= m.Term {
		j.broken("node %d says %s; its disk is at term %d, vote %d, last %d", h.id(), describe(m), hs.Term, hs.Vote, last)
	}
}

// acknowledged checks that what a follower says it has is what its leader has.
func (j *judge) acknowledged(h *host, m raftpb.Message) {
	leader := h.cluster.host(m.To).node
	if leader == nil || leader.raft.role != StateLeader || leader.raft.term != m.Term {
		return
	}
	for i := h.disk.first(); i <= m.Index; i++ {
		if term, err := h.disk.term(i); err != nil || lacks(leader, raftpb.EntryID{Term: term, Index: i}) {
			j.broken("node %d says %s; entry %d is not its leader's", h.id(), describe(m), i)
		}
	}
}

func (j *judge) asked(context string) { j.reads[context] = uint64(len(j.committed)) }

// answered checks that a read sees everything that any node knew to be committed when the read was asked, and
// nothing that is not committed yet (thesis §6.4).
func (j *judge) answered(h *host, read ReadState) {
	floor, asked := j.reads[string(read.RequestCtx)]
	if !asked || read.Index < floor || read.Index > uint64(len(j.committed)) {
		j.broken("node %d may read %q at %d; when it was asked %d entries were committed, now %d are", h.id(), read.RequestCtx, read.Index, floor, len(j.committed))
	}
}

func (j *judge) broken(format string, args ...any) { panic("unsafe: " + fmt.Sprintf(format, args...)) }
