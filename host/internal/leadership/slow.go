package leadership

import (
	"slices"

	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
)

// SlowMembers is a leader's watch on its followers, for event.MemberSlow. It belongs to the turn.
type SlowMembers struct {
	checkedAt int64 // tick
	watches   []memberWatch
}

type memberWatch struct {
	id uint64
	examination.Standstill
	told bool
}

// Observe calls report for each follower that lags and has acknowledged nothing for longer than a bound,
// once. It looks once in a tick at most.
func (w *SlowMembers) Observe(core Core, self uint64, now, bound int64, report func(id, behind uint64, stalled int64)) {
	if now == w.checkedAt {
		return
	}
	w.checkedAt = now
	st := core.BasicStatus()
	if st.RaftState != raft.StateLeader {
		w.watches = nil
		return
	}
	core.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == self {
			return
		}
		m := w.member(id)
		switch stalled := m.Observe(pr.Match < st.LastIndex, pr.Match, now); {
		case stalled <= bound:
			m.told = false
		case !m.told:
			m.told = true
			report(id, st.LastIndex-pr.Match, stalled)
		}
	})
}

// member returns the watch on a member. There are as many as members that the core knows.
func (w *SlowMembers) member(id uint64) *memberWatch {
	i := slices.IndexFunc(w.watches, func(m memberWatch) bool { return m.id == id })
	if i < 0 {
		i = len(w.watches)
		w.watches = append(w.watches, memberWatch{id: id})
	}
	return &w.watches[i]
}
