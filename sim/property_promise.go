package sim

import (
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// What a host tells another one is on its disk when it leaves (thesis §3.8): entries that it acknowledges,
// the vote that it gives; and so is what it counts itself as durable. Checked for one of 32 messages and
// cursors, and for one of three after a disk was full, because each check opens the log as a crash would
// leave it.

// checkPromise: what a host tells another is on its disk, namely the entries that it acknowledges and the
// vote that it gives (thesis §3.8). It is checked now and then. A host that has heard of a later term may
// have another log already.
func (w *world) checkPromise(l *life, group uint64, m *raftpb.Message) {
	promises := !m.Reject && (m.Type == raftpb.MsgAppResp || m.Type == raftpb.MsgVoteResp)
	if !promises || l.process == nil || w.mode.Kind == wal.KindMemory || !w.inspectsImage(l) || !l.isInTerm(group, m.Term) {
		return
	}
	loss, _ := w.lossToSurvive()
	if m.Type == raftpb.MsgVoteResp {
		loss = crashfs.LoseAll // in the unsafe modes too
	}
	kept := false
	l.host.afterCrash(loss, group, func(log *wal.Group) {
		hs := log.HardState()
		switch {
		case hs.Term > m.Term:
			kept = true // what it has promised in a term that it has left binds it no more (seed 690)
		case m.Type == raftpb.MsgAppResp:
			kept = log.LastIndex() >= m.Index
		default:
			kept = hs.Term == m.Term && hs.Vote == m.To
		}
	})
	if !kept {
		w.breaks(property.ToldIsDurable, "%s sends %v to host %d in term %d, index %d, which it would forget in a crash with %v", l.name, m.Type, m.To, m.Term, m.Index, loss)
	}
}

// checkDurableCursor: entries that a host counts as durable, including its own entries in a leader's quorum,
// are on its disk.
func (w *world) checkDurableCursor(r *replica, s diagnosis.Status) {
	if s.Durable <= r.watch.status.Durable || w.mode.Kind == wal.KindMemory || !w.inspectsImage(r.life) {
		return
	}
	loss, _ := w.lossToSurvive()
	var last uint64
	r.life.host.afterCrash(loss, r.id, func(log *wal.Group) { last = log.LastIndex() })
	if last < s.Durable {
		w.breaks(property.ToldIsDurable, "%s counts its entries through %d as durable, but after a crash with %v its log ends at %d", r.name, s.Durable, loss, last)
	}
}

// inspectsImage draws whether to inspect a disk as a crash would leave it, which costs more than most events.
// After a full disk has refused something it is inspected more often.
func (w *world) inspectsImage(l *life) bool {
	if l.sawFull {
		return w.checks.IntN(3) == 0
	}
	return w.checks.IntN(32) == 0
}

// isInTerm reports whether a group of this process is in a term.
func (l *life) isInTerm(group, term uint64) bool {
	r := l.replicas[group-1]
	return r.group != nil && !r.closing && r.group.Status().Term == term
}
