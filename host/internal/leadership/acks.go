package leadership

import (
	"slices"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
)

// Acks are when the other members acknowledged appends last, in ticks. It belongs to the turn.
type Acks struct{ all []ack }

type ack struct {
	from uint64
	at   int64
}

// Record records that a member has acknowledged an append at a tick.
func (a *Acks) Record(from uint64, at int64) {
	if i := slices.IndexFunc(a.all, func(b ack) bool { return b.from == from }); i >= 0 {
		a.all[i].at = at
		return
	}
	a.all = append(a.all, ack{from, at})
}

// Forget forgets them all.
func (a *Acks) Forget() { a.all = a.all[:0] }

// Since reports whether a member has acknowledged an append after a tick.
func (a *Acks) Since(id uint64, since int64) bool {
	return slices.ContainsFunc(a.all, func(b ack) bool { return b.from == id && b.at > since })
}

// Core is what is read of a core: raft.RawNode.
type Core interface {
	BasicStatus() raft.BasicStatus
	Leadership() (term, lead uint64, role raft.StateType)
	WithProgress(func(id uint64, kind raft.ProgressType, pr tracker.Progress))
}

// ReadyWithout returns the member with most of the log, if a quorum is ready without this leader. Ready is
// who has acknowledged appends since a tick, or waits for this leader's disk to read some. Otherwise it
// returns None. In a joint configuration isQuorum asks both halves.
func (a *Acks) ReadyWithout(core Core, self uint64, since int64, isQuorum func(has func(id uint64) bool) bool) (target uint64) {
	ready, most := []uint64(nil), uint64(0)
	core.WithProgress(func(id uint64, kind raft.ProgressType, pr tracker.Progress) {
		if kind != raft.ProgressTypePeer {
			return
		}
		// A member that waits for entries which this host cannot read acknowledges nothing and is ready.
		if id == self || pr.WithoutAuthority || !a.Since(id, since) && !(pr.EntriesPending && pr.RecentActive) {
			return
		}
		if ready = append(ready, id); target == raft.None || pr.Match > most {
			target, most = id, pr.Match
		}
	})
	if !isQuorum(func(id uint64) bool { return slices.Contains(ready, id) }) {
		return raft.None
	}
	return target
}
