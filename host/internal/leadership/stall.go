package leadership

import (
	"errors"
	"fmt"
	"time"

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
// connections or heartbeats. A follower whose disk hangs, too, is alive and no help. While no client writes,
// the leader proposes an empty entry for that. A stall ends with any progress of this leader's own work, so a
// slow disk that works is no reason.
//
// A stuck state machine is another case, with questions of its own (machine.go).
//
// The leader hands over to the member that has most of its log. If it still leads after that, it steps down
// and does not campaign for a while. It does so once in two election timeouts at most.

// Watch gives the leadership up if this leader's own work stands still while others could work. It looks once
// in a tick at most, and when members have answered. It reports whether the next turn must call it again.
func (l *Leader) Watch(answers []AppliedRecord) (again bool) {
	st := l.turn.Core().BasicStatus()
	if st.RaftState != raft.StateLeader {
		l.disk, l.full, l.machine.watch, l.tried = examination.Standstill{}, examination.Standstill{}, examination.Standstill{}, 0
		l.machine.end()
		l.acks.Forget()
		l.checkedAt = -1
		return false
	}
	now := l.turn.Ticks()
	if now == l.checkedAt && len(answers) == 0 {
		return l.machine.goal != 0
	}
	l.checkedAt = now
	l.recordAnswers(answers)
	busy, rounds, isFull := l.turn.Disk()
	hangs := l.disk.Observe(busy, rounds, now)
	full := l.full.Observe(isFull, 0, now)
	mayAct := !l.Rests() && st.LeadTransferee == raft.None
	switch bound := l.settings.Stall; {
	case !mayAct:
	case full > l.settings.Heartbeat:
		l.giveUp(l.full.Since, "its disk is full")
	case hangs > bound:
		l.giveUp(l.disk.Since, fmt.Sprintf("its disk has completed nothing for %v", time.Duration(hangs)*l.settings.Tick))
	}
	l.checkMachine(now, mayAct && !l.Rests())
	return l.machine.goal != 0
}

// giveUp hands the leadership over, or steps down if that was tried in this term, provided that a quorum has
// acknowledged appends since a tick.
func (l *Leader) giveUp(since int64, cause string) {
	target := l.acks.ReadyWithout(l.turn.Core(), l.settings.Self, since, l.turn.IsQuorum)
	if target == raft.None {
		l.askToWrite(since)
		return
	}
	term := l.turn.Core().BasicStatus().Term
	l.Rest()
	if l.tried == term {
		l.stepped = term
		l.turn.Core().StepDown(quietTimeouts * int(l.settings.Election))
		l.turn.GivenUp(term, raft.None, cause)
		return
	}
	l.tried = term
	if err := l.turn.Core().TransferLeader(target); err != nil {
		l.turn.Refused(err)
		return
	}
	l.turn.GivenUp(term, target, cause)
}

// askToWrite proposes an empty entry, at most once in an election timeout: the others acknowledge it when it
// is on their disks. It proposes none if all that have acknowledged nothing since a tick have something to
// write already: the log must not grow for as long as a disk hangs.
func (l *Leader) askToWrite(since int64) {
	if l.turn.Ticks() < l.askAfter {
		return
	}
	last, idle := l.turn.Core().BasicStatus().LastIndex, false
	l.turn.Core().WithProgress(func(id uint64, kind raft.ProgressType, pr tracker.Progress) {
		idle = idle || kind == raft.ProgressTypePeer && id != l.settings.Self && pr.Match == last && !l.acks.Since(id, since)
	})
	if !idle {
		return
	}
	l.askAfter = l.turn.Ticks() + l.settings.Election
	err := l.turn.Core().Step(raftpb.Message{Type: raftpb.MsgProp, From: l.settings.Self, Entries: []raftpb.Entry{{}}})
	if !errors.Is(err, raft.ErrProposalDropped) { // then the others have enough to write
		l.turn.Refused(err)
	}
}

// quietTimeouts is for how many election timeouts a leader that has stepped down does not campaign.
const quietTimeouts = 4
