package appendlane

import (
	"errors"

	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// A full disk still votes. While the disk is full, the log refuses entries and reserves space for writes
// without entries. The refused round waits, with everything behind it. But term and vote may be written ahead
// of it. Then the answers leave that concern only term and vote. This is the one exception in raft/doc.go to
// the order of the append queue. Otherwise one full disk of three would keep the other two
// from electing a leader.
//
// The write ahead carries the newest queued term and vote, and the commit index that the log already has. A
// newer commit index would be safe only together with the entries that it covers. They may be in the refused
// round, and may replace other entries that the log still holds. Lowering the commit index to the end of the
// log does not help, for the same reason.
//
// The answers that leave (mayOvertake in package workqueue) were true when the core gave them, and stay
// true after a crash that loses the refused entries. A vote is given to a log that is at least as good as
// this member's log in memory. Everything that this member has ever acknowledged is in that log and on its
// disk. So it does not matter for the vote whether the rest becomes durable.
//
// Acknowledgements of entries and refusals of appends stay, because they concern the log. So does the request
// for votes, with this member's vote for itself, because the request names the last entry. So a full member
// votes and does not campaign. It does not even try (Group.pass): a candidate that cannot ask for votes only
// raises its term and makes others wait.
//
// What stays keeps its order, and each answer is given once. When there is space again, the round is written
// whole. Its hard state takes the term and vote that have overtaken it, and keeps its own commit index
// (DurableState.raise).

// writeHardState writes a group's term and vote ahead of its refused round, if answers wait for them or if
// always is set. It reports whether it wrote. The next sync covers the answers, and they leave after it.
func (l *Lane) writeHardState(q *Queue, always bool) (wrote bool) {
	newest, early := q.DequeueEarly()
	if len(early) == 0 && !(always && workqueue.Behind(q.durable.hs, newest)) {
		return false
	}
	ahead := raftpb.HardState{Term: newest.Term, Vote: newest.Vote, Commit: q.durable.hs.Commit}
	if workqueue.Behind(q.durable.hs, ahead) {
		write := wal.Write{Group: q.group, HardState: ahead}
		err := l.append([]wal.Write{write})
		if errors.Is(err, wal.ErrDiskFull) {
			q.Requeue(early)
			return false
		}
		if err != nil {
			l.stop(err)
			return false
		}
		q.durable.Wrote(&write)
		l.sync = true
	}
	q.round = append(q.round, raftpb.Message{Responses: early})
	l.join(q)
	return true
}
