package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// Gray failures. A leader whose disk hangs or is full, or is slower than a client waits, still sends
// heartbeats, and its followers may commit without its disk. But it serves its clients badly: it applies
// nothing that is not on its disk, its memory fills, and with one follower less it commits nothing. So it
// gives its leadership up when a quorum is ready to work without it.
//
// That a quorum is ready is known from acknowledgements of appends that came after the stall began, not from
// connections or heartbeats: a follower whose disk hangs, too, is alive and no help. While no client writes,
// the leader proposes an empty entry for that. A stall ends with any progress of this leader's own work, so a
// slow disk that works is no reason.
//
// A stuck state machine is another case, with questions of its own (stuckapply.go).
//
// The leader hands over to the member that has most of its log. If it still leads after that, it steps down
// and does not campaign for a while. It does so once in two election timeouts at most.

// noteAck records that a member acknowledged an append of this term. A late one of an earlier term says
// nothing about the member's disk now.
func (g *Group) noteAck(m *raftpb.Message) {
	if m.Type != raftpb.MsgAppResp || m.Reject || m.Index == 0 || m.Term != g.core.node.BasicStatus().Term {
		return
	}
	g.leadership.stalls.acks.Record(m.From, g.core.at.Ticks)
}

// checkStall gives the leadership up if this leader's own work stands still while others could work. It looks
// once in a tick at most, and when members have answered.
func (g *Group) checkStall() (again bool) {
	st := g.core.node.BasicStatus()
	if st.RaftState != raft.StateLeader {
		g.leadership.stalls.disk, g.leadership.stalls.full, g.leadership.stalls.machine.watch, g.leadership.stalls.tried = examination.Standstill{}, examination.Standstill{}, examination.Standstill{}, 0
		g.leadership.stalls.machine.end()
		g.leadership.stalls.acks.Forget()
		g.leadership.stalls.checkedAt = -1
		return false
	}
	now := g.core.at.Ticks
	if now == g.leadership.stalls.checkedAt && len(g.work.taken.applied) == 0 {
		return g.leadership.stalls.machine.goal != 0
	}
	g.leadership.stalls.checkedAt = now
	g.noteApplied()
	hangs := g.leadership.stalls.disk.Observe(g.writes.append.Held() > 0, g.writes.append.Rounds(), now)
	full := g.leadership.stalls.full.Observe(g.writes.append.Full.Load(), 0, now)
	mayAct := now >= g.leadership.stalls.actAfter && st.LeadTransferee == raft.None
	switch bound := g.host.config.stallTicks(); {
	case !mayAct:
	case full > ticksPerHeartbeat:
		g.giveUp(g.leadership.stalls.full.Since, "its disk is full")
	case hangs > bound:
		g.giveUp(g.leadership.stalls.disk.Since, fmt.Sprintf("its disk has completed nothing for %v", time.Duration(hangs)*g.host.config.tickPeriod()))
	}
	g.checkApply(now, mayAct && now >= g.leadership.stalls.actAfter)
	return g.leadership.stalls.machine.goal != 0
}

// giveUp hands the leadership over, or steps down if that was tried in this term, provided that a quorum has
// acknowledged appends since a tick.
func (g *Group) giveUp(since int64, cause string) {
	target := g.leadership.stalls.acks.ReadyWithout(g.core.node, g.self, since, g.isQuorum)
	if target == raft.None {
		g.askToWrite(since)
		return
	}
	term, timeout := g.core.node.BasicStatus().Term, g.host.config.electionTicks()
	g.leadership.stalls.actAfter = g.core.at.Ticks + int64(2*timeout)
	if g.leadership.stalls.tried == term {
		g.leadership.stalls.stepped = term
		g.core.node.StepDown(quietTimeouts * timeout)
		g.reportGivenUp(event.LeadershipGivenUp{Group: g.id, Term: term, Cause: cause})
		return
	}
	g.leadership.stalls.tried = term
	if err := g.core.node.TransferLeader(target); err != nil {
		g.noteRefusal(err)
		return
	}
	g.reportGivenUp(event.LeadershipGivenUp{Group: g.id, Term: term, To: target, Cause: cause})
}

// askToWrite proposes an empty entry, at most once in an election timeout: the others acknowledge it when it
// is on their disks. It proposes none if all that have acknowledged nothing since a tick have something to
// write already: the log must not grow for as long as a disk hangs.
func (g *Group) askToWrite(since int64) {
	if g.core.at.Ticks < g.leadership.stalls.askAfter {
		return
	}
	last, idle := g.core.node.BasicStatus().LastIndex, false
	g.core.node.WithProgress(func(id uint64, kind raft.ProgressType, pr tracker.Progress) {
		idle = idle || kind == raft.ProgressTypePeer && id != g.self && pr.Match == last && !g.leadership.stalls.acks.Since(id, since)
	})
	if !idle {
		return
	}
	g.leadership.stalls.askAfter = g.core.at.Ticks + int64(g.host.config.electionTicks())
	err := g.core.node.Step(raftpb.Message{Type: raftpb.MsgProp, From: g.self, Entries: []raftpb.Entry{{}}})
	if !errors.Is(err, raft.ErrProposalDropped) { // then the others have enough to write
		g.noteRefusal(err)
	}
}

// quietTimeouts is for how many election timeouts a leader that has stepped down does not campaign.
const quietTimeouts = 4

// handOver hands the leadership to the member with most of the log, because this host is about to stop. It
// reports whether a transfer is under way.
func (g *Group) handOver() bool {
	st := g.core.node.BasicStatus()
	if st.RaftState != raft.StateLeader {
		return false
	}
	target := g.successor(func(_ uint64, pr tracker.Progress) bool { return pr.RecentActive })
	if target == raft.None {
		// The check of the quorum has just begun to count again, and no answer has come since.
		target = g.successor(func(id uint64, pr tracker.Progress) bool {
			return pr.State == tracker.StateReplicate && pr.Match == st.LastIndex && g.host.isThere(id)
		})
	}
	if target == raft.None {
		return false
	}
	if err := g.core.node.TransferLeader(target); err != nil {
		g.noteRefusal(err)
		return false
	}
	g.reportGivenUp(event.LeadershipGivenUp{Group: g.id, Term: st.Term, To: target, Cause: "its host is about to stop"})
	return true
}
