package conformance

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// The network of a world: it loses, repeats, delays and overtakes messages, but does not invent any.

// send adds a message to those under way. When there are too many, the oldest is lost.
func (w *world) send(m *member, p packet) {
	if raft.IsLocalMsg(p.Type) || p.To == m.id || p.To == 0 || p.To > everyone {
		w.violation("%v sends %v to %d", m, p.Type, p.To)
	}
	w.net = append(w.net, p)
	if len(w.net) > netHolds {
		w.lose(w.take(0))
	}
}

func (w *world) take(i int) packet {
	p := w.net[i]
	w.net = slices.Delete(w.net, i, i+1)
	return p
}

// deliver delivers one of the messages under way, mostly one of the oldest.
func (w *world) deliver() {
	if len(w.net) == 0 {
		return
	}
	among := min(len(w.net), 8)
	if w.chance(10) {
		among = len(w.net)
	}
	p := w.take(w.random.IntN(among))
	switch {
	case w.cut[p.From] || w.cut[p.To] || w.chance(w.loss):
		w.lose(p)
		return
	case w.chance(w.again):
		w.net = append(w.net, p)
	}
	w.arrive(p)
}

func (w *world) arrive(p packet) {
	from, to := w.members[p.From-1], w.members[p.To-1]
	if p.Type == raftpb.MsgSnap && to.kind != ourKind && to.cannotInstall(p.Snapshot.Metadata.ConfState) {
		from.compact(0)
		w.lose(p)
		return
	}
	to.step(p)
	if p.Type == raftpb.MsgSnap {
		from.core.reportSnapshot(p.To, true)
	}
}

// cannotInstall names the snapshots that an application of theirs must keep from its nodes. A change that was
// on its way to the apply worker when a snapshot came is applied to the snapshot's configuration, and panics.
// And a snapshot from before its node became a member is refused and sent again at once, for ever; the
// leader's application has to make a newer one.
func (m *member) cannotInstall(conf raftpb.ConfState) bool {
	return m.hasChangesToApply() || !slices.Contains(slices.Concat(conf.Voters, conf.VotersOutgoing, conf.Learners), m.id)
}

func (m *member) hasChangesToApply() bool {
	return slices.ContainsFunc(m.applies, func(p packet) bool {
		return slices.ContainsFunc(p.Entries, func(e raftpb.Entry) bool { return e.Type != raftpb.EntryNormal })
	})
}

// lose loses a message, which a transport may notice.
func (w *world) lose(p packet) {
	from := w.members[p.From-1]
	if p.Type == raftpb.MsgSnap {
		from.core.reportSnapshot(p.To, false)
	} else if w.chance(25) {
		from.core.reportUnreachable(p.To)
	}
}

// converge ends all faults and gives the cluster time. It must elect a leader that every member follows, and
// agree.
func (w *world) converge() {
	w.loss, w.again, w.cut = 0, 0, map[uint64]bool{}
	for _, m := range w.members {
		m.stuck = false
	}
	const rounds = 1000
	for round := range rounds {
		for _, m := range w.members {
			w.tick(m)
		}
		w.runIdle()
		w.checkLeaders()
		if leader := w.leader(); leader != nil && w.agree(leader) {
			w.compareLogs(leader)
			return
		}
		if round%25 == 24 {
			w.nudge()
		}
	}
	w.violation("no agreement after %d rounds without faults:%s", rounds, w.describe())
}

// runIdle does all work and delivers all messages, in order, until nothing is left. Ticks make more.
func (w *world) runIdle() {
	const enough = 100_000
	for range enough {
		busy := false
		for _, m := range w.members {
			for _, piece := range []func() bool{m.handle, m.hear, m.runAppend, m.runApply} {
				busy = piece() || busy
			}
		}
		if len(w.net) > 0 {
			p := w.take(0)
			if !w.cut[p.From] && !w.cut[p.To] {
				w.arrive(p)
			} else {
				w.lose(p)
			}
			busy = true
		}
		if !busy {
			return
		}
	}
	w.violation("still busy after %d rounds of work without a tick", enough)
}

// leader returns the leader of the highest term, if there is one. It may no longer be a voter.
func (w *world) leader() *member {
	var leader *member
	for _, m := range w.members {
		s := m.core.state()
		if s.role == leading && !w.cut[m.id] && (leader == nil || s.Term > leader.core.state().Term) {
			leader = m
		}
	}
	return leader
}

// agree reports whether all members have applied everything that the leader has, in one configuration and one
// term.
func (w *world) agree(leader *member) bool {
	conf, term := leader.machine.conf, leader.core.state().Term
	s := leader.core.stored()
	if len(conf.VotersOutgoing) > 0 || !slices.Contains(conf.Voters, leader.id) || leader.machine.applied != s.first+uint64(len(s.entries))-1 {
		return false
	}
	for _, id := range slices.Concat(conf.Voters, conf.Learners) {
		m := w.members[id-1]
		if m.core.state().Term != term || m.machine.applied != leader.machine.applied || m.machine.sum != leader.machine.sum {
			return false
		}
	}
	return true
}

// compareLogs checks that an entry of a member that the leader has not compacted is the leader's, with the
// same payload.
func (w *world) compareLogs(leader *member) {
	log := leader.core.stored()
	for _, id := range slices.Concat(leader.machine.conf.Voters, leader.machine.conf.Learners) {
		m := w.members[id-1]
		for _, e := range m.core.stored().entries {
			if e.Index < log.first {
				continue
			}
			i := e.Index - log.first
			if i >= uint64(len(log.entries)) {
				w.violation("%v has an entry at %d, of term %d, that its leader %v never had", m, e.Index, e.Term, leader)
			}
			if l := log.entries[i]; e.Term != l.Term || e.Type != l.Type || string(e.Data) != string(l.Data) {
				w.violation("%v and its leader %v have different entries at %d: %v and %v", m, leader, e.Index, e, l)
			}
		}
	}
}

// nudge does what an operator would: it switches off a removed member, ends a transition that waits for that,
// and forces another election if the terms are such that some member cannot follow (theirs does not answer
// messages of earlier terms).
func (w *world) nudge() {
	latest := slices.MaxFunc(w.members, func(a, b *member) int { return int(a.machine.applied) - int(b.machine.applied) })
	conf := latest.machine.conf
	for _, m := range w.members {
		if slices.Contains(slices.Concat(conf.Voters, conf.VotersOutgoing, conf.Learners), m.id) {
			delete(w.cut, m.id)
		} else {
			w.cut[m.id] = true
		}
	}
	next := w.members[pick(w, conf.Voters)-1]
	leader := w.leader()
	if leader == nil {
		w.refusable(next.core.campaign())
		return
	}
	if len(conf.VotersOutgoing) > 0 {
		w.refusable(leader.core.proposeChange(raftpb.ConfChangeV2{}))
	}
	w.propose(leader)
	w.refusable(leader.core.transfer(next.id))
}

func (w *world) describe() (all string) {
	for _, m := range w.members {
		s, on := m.core.state(), m.core.stored()
		all += fmt.Sprintf("\n%v: %s of term %d under %d, committed %d, applied %d, log %d+%d, cut off %t, %+v",
			m, s.role, s.Term, s.lead, s.Commit, m.machine.applied, on.first, len(on.entries), w.cut[m.id], m.machine.conf)
	}
	return all
}
