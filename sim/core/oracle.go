package core

import (
	"encoding/binary"
	"sort"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// oracle remembers what was seen, and compares each node with it after each input. Every check takes a
// constant time, so that a run is as long as can be: by the log matching property the last entry stands for
// all before it.
type oracle struct {
	w *world
	// ghost is everything that was ever committed: ghost[i] has index i+1.
	ghost   []ghost
	seen    [][]seen            // by index: all entries that were ever written
	leaders map[uint64]leadTerm // by term
	confs   []confFrom          // after each change that was applied, ascending
	gone    map[uint64]bool     // removed members
	asked   []uint64            // by the number of a read: how much was committed then
	answers int
}

type ghost struct {
	term, sum uint64
	by        uint64 // term of the leader that committed it
	state     uint64 // sum of a state machine that has applied it; 0: none has
}

type seen struct{ term, before, sum uint64 }

type leadTerm struct {
	node uint64
	life int
}

type confFrom struct {
	index uint64
	conf  raftpb.ConfState
}

func (o *oracle) init(w *world) {
	o.w, o.leaders, o.gone = w, map[uint64]leadTerm{}, map[uint64]bool{}
}

// founded notes entry 1, which made the first members.
func (o *oracle) founded(conf raftpb.ConfState) {
	o.ghost = []ghost{{term: 1, by: 1}}
	o.confs = []confFrom{{1, conf}}
}

// confAt returns the configuration after an entry.
func (o *oracle) confAt(index uint64) raftpb.ConfState {
	i := sort.Search(len(o.confs), func(i int) bool { return o.confs[i].index > index })
	if i == 0 {
		return raftpb.ConfState{}
	}
	return o.confs[i-1].conf
}

// stateAt returns the sum of a state machine that has applied an entry.
func (o *oracle) stateAt(index uint64) uint64 {
	if index == 0 {
		return 0
	}
	return o.ghost[index-1].state
}

// moves is called after each input of a node.
func (o *oracle) moves(n *node) {
	if err := n.rn.Err(); err != nil {
		o.w.violate(Harmony, "node %d stops: %v", n.id, err)
	}
	st := n.rn.BasicStatus()
	if st.Term < n.term || st.Commit < n.commit {
		o.w.violate(Forward, "node %d goes back from term %d, commit %d to term %d, commit %d", n.id, n.term, n.commit, st.Term, st.Commit)
	}
	if st.Commit > st.LastIndex || st.Applied > st.Commit {
		o.w.violate(Forward, "node %d has applied %d and committed %d of %d entries", n.id, st.Applied, st.Commit, st.LastIndex)
	}
	leads := st.RaftState == raft.StateLeader
	if leads && (!n.leads || st.Term != n.term) {
		o.leads(n, st.Term)
	}
	before := n.commit
	n.term, n.commit, n.last, n.leads = st.Term, st.Commit, st.LastIndex, leads
	if st.Commit > before {
		o.commits(n, before)
	}
}

// leads checks a new leader.
func (o *oracle) leads(n *node, term uint64) {
	me := leadTerm{n.id, n.life}
	if other, led := o.leaders[term]; led && other != me {
		o.w.violate(OneLeader, "term %d is led by node %d in its life %d and by node %d in its life %d", term, other.node, other.life, n.id, n.life)
	}
	o.leaders[term] = me
	if o.w.trace != nil {
		o.w.trace("%d leads term %d", n.id, term)
	}
	for i := uint64(len(o.ghost)); i > 0; i-- {
		if g := &o.ghost[i-1]; g.by < term {
			if have, ok := n.rn.EntryTerm(i); ok && have != g.term || !ok && i > n.disk.live.base.Index {
				o.w.violate(Complete, "node %d leads term %d without entry %d of term %d, which was committed in term %d (it has term %d there)", n.id, term, i, g.term, g.by, have)
			}
			return
		}
	}
}

// commits checks that the entries behind before are committed.
func (o *oracle) commits(n *node, before uint64) {
	for i := before + 1; i <= n.commit; i++ {
		term, ok := n.rn.EntryTerm(i)
		if i <= uint64(len(o.ghost)) {
			if g := &o.ghost[i-1]; ok && g.term != term {
				o.w.violate(CommittedStay, "node %d takes entry %d of term %d for committed, and the one of term %d was", n.id, i, term, g.term)
			}
			continue
		}
		if !ok || !n.leads {
			o.w.violate(CommittedStay, "node %d knows that entry %d is committed before a leader does", n.id, i)
		}
		e := o.find(i, term)
		if e == nil {
			o.w.violate(QuorumHolds, "node %d commits entry %d of term %d, which no storage has written", n.id, i, term)
			e = &seen{}
		}
		o.ghost = append(o.ghost, ghost{term: term, sum: e.sum, by: n.term})
		if i == n.commit {
			o.durable(n, i, term)
		}
	}
}

// durable checks that an entry, and so all before it, is on the disks of a majority, or of two majorities.
func (o *oracle) durable(n *node, i, term uint64) {
	majority := func(voters []uint64) {
		have := 0
		for _, id := range voters {
			d := &o.w.nodes[id-1].disk.durable
			if t, known := d.term(i); known && t == term || i < d.base.Index {
				have++
			}
		}
		if len(voters) > 0 && have <= len(voters)/2 {
			o.w.violate(QuorumHolds, "node %d commits entry %d of term %d, which is durable on %d of voters %v", n.id, i, term, have, voters)
		}
	}
	majority(n.conf.Voters)
	majority(n.conf.VotersOutgoing)
}

func (o *oracle) find(i, term uint64) *seen {
	if i < uint64(len(o.seen)) {
		for k := range o.seen[i] {
			if o.seen[i][k].term == term {
				return &o.seen[i][k]
			}
		}
	}
	return nil
}

// written checks the entries of a write, which is about to be done in an image of a node's disk.
func (o *oracle) written(n *node, d *image, m *raftpb.Message) {
	if len(m.Entries) == 0 {
		return
	}
	first := m.Entries[0].Index
	before, known := d.term(first - 1)
	if m.Snapshot != nil && m.Snapshot.Metadata.Index == first-1 {
		before, known = m.Snapshot.Metadata.Term, true
	}
	if !known {
		o.w.violate(Contract, "node %d is to write entry %d, and has %d to %d", n.id, first, d.base.Index+1, d.last())
	}
	for k := range m.Entries {
		e := &m.Entries[k]
		if e.Index != first+uint64(k) || e.Term < before {
			o.w.violate(Contract, "node %d is to write entry %v behind one of term %d", n.id, e.ID(), before)
		}
		sum := sumOf(e)
		if old := o.find(e.Index, e.Term); old == nil {
			for uint64(len(o.seen)) <= e.Index {
				o.seen = append(o.seen, nil)
			}
			o.seen[e.Index] = append(o.seen[e.Index], seen{e.Term, before, sum})
		} else if old.before != before || old.sum != sum {
			o.w.violate(Matching, "node %d writes another entry %v than was seen before, or behind another one (term %d, was %d)", n.id, e.ID(), before, old.before)
		}
		before = e.Term
	}
}

// applies checks an entry that a state machine is to apply; n.sum has it already.
func (o *oracle) applies(n *node, e *raftpb.Entry) {
	if e.Index != n.applied+1 {
		o.w.violate(SameApplied, "node %d applies entry %d after %d", n.id, e.Index, n.applied)
	}
	if e.Index > uint64(len(o.ghost)) {
		o.w.violate(SameApplied, "node %d applies entry %v, which is not committed", n.id, e.ID())
		return
	}
	g := &o.ghost[e.Index-1]
	if g.term != e.Term || g.sum != sumOf(e) {
		o.w.violate(CommittedStay, "node %d applies entry %v, and another one, of term %d, was committed", n.id, e.ID(), g.term)
	}
	if g.state == 0 {
		g.state = n.sum
	} else if g.state != n.sum {
		o.w.violate(SameApplied, "node %d has another state than others after entry %d", n.id, e.Index)
	}
	if d := &n.disk.durable; !o.w.swarm.volatile || e.Type != raftpb.EntryNormal {
		if t, known := d.term(e.Index); !known && e.Index > d.base.Index || known && t != e.Term {
			o.w.violate(SameApplied, "node %d applies entry %v, which is not durable on it", n.id, e.ID())
		}
	}
}

// changed checks the configuration after a change of members.
func (o *oracle) changed(n *node, index uint64) {
	if last := o.confs[len(o.confs)-1]; index > last.index {
		o.confs = append(o.confs, confFrom{index, n.conf})
		for i := range o.w.nodes {
			id := uint64(i + 1)
			if isMember(&last.conf, id) && !isMember(&n.conf, id) {
				o.gone[id] = true
			}
		}
		return
	}
	if err := n.conf.Equivalent(o.confAt(index)); err != nil {
		o.w.violate(SameMembers, "node %d after the change of entry %d: %v", n.id, index, err)
	}
}

func isMember(c *raftpb.ConfState, id uint64) bool {
	for _, list := range [][]uint64{c.Voters, c.VotersOutgoing, c.Learners, c.LearnersNext} {
		for _, m := range list {
			if m == id {
				return true
			}
		}
	}
	return false
}

// installs checks a snapshot of another node that takes the place of the log and the state machine.
func (o *oracle) installs(n *node, s *raftpb.Snapshot, index, sum uint64) {
	meta := &s.Metadata
	if meta.Index != index || index > uint64(len(o.ghost)) || o.ghost[index-1].term != meta.Term || o.ghost[index-1].state != sum {
		o.w.violate(SameApplied, "node %d installs a snapshot of entry %d of term %d with another state than that of what was committed", n.id, meta.Index, meta.Term)
	}
	if index <= n.applied {
		o.w.violate(SameApplied, "node %d installs a snapshot of entry %d, and has applied %d", n.id, index, n.applied)
	}
	if err := meta.ConfState.Equivalent(o.confAt(index)); err != nil {
		o.w.violate(SameMembers, "node %d installs a snapshot of entry %d: %v", n.id, index, err)
	}
}

// leaves checks that the disk holds what a message promises. A message of an earlier term is late, not wrong.
func (o *oracle) leaves(n *node, m *raftpb.Message) {
	hs, last := &n.disk.durable.hs, n.disk.durable.last()
	holds := true
	switch m.Type {
	case raftpb.MsgVote:
		holds = hs.Term == m.Term && hs.Vote == n.id
	case raftpb.MsgVoteResp:
		if holds = hs.Term == m.Term && (m.Reject || hs.Vote == m.To); m.Reject {
			break
		}
		if v := &n.vote; v.Term == m.Term && v.Vote != m.To {
			o.w.violate(OneVote, "node %d votes for %d and for %d in term %d", n.id, v.Vote, m.To, m.Term)
		} else if m.Term > v.Term {
			v.Term, v.Vote = m.Term, m.To
		}
	case raftpb.MsgAppResp:
		holds = hs.Term == m.Term && (m.Reject || m.Index <= last)
	default:
		return
	}
	if !holds && hs.Term <= m.Term {
		o.w.violate(Promises, "node %d says %s, and its disk has term %d, vote %d and entries to %d", n.id, raft.DescribeMessage(*m, nil), hs.Term, hs.Vote, last)
	}
}

// remembers checks what a power cut has left.
func (o *oracle) remembers(n *node) {
	if hs := &n.disk.durable.hs; hs.Term < n.vote.Term || hs.Term == n.vote.Term && hs.Vote != n.vote.Vote {
		o.w.violate(OneVote, "node %d has voted for %d in term %d, and its disk has term %d, vote %d", n.id, n.vote.Vote, n.vote.Term, hs.Term, hs.Vote)
	}
}

// asks returns the context of a new read.
func (o *oracle) asks() []byte {
	o.asked = append(o.asked, uint64(len(o.ghost)))
	return binary.LittleEndian.AppendUint64(nil, uint64(len(o.asked)-1))
}

// answered checks the answer to a read.
func (o *oracle) answered(n *node, s *raft.ReadState) {
	number := uint64(1 << 63)
	if len(s.RequestCtx) == 8 {
		number = binary.LittleEndian.Uint64(s.RequestCtx)
	}
	if number >= uint64(len(o.asked)) {
		o.w.violate(Reads, "node %d answers a read %x that was never asked", n.id, s.RequestCtx)
		return
	}
	if floor := o.asked[number]; s.Index < floor || s.Index > uint64(len(o.ghost)) {
		o.w.violate(Reads, "node %d may read at %d; when it was asked, %d entries were committed, and now %d are", n.id, s.Index, floor, len(o.ghost))
	}
	o.answers++
	n.w.healed(n, number)
}
