package examination

import (
	"slices"

	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
)

// FollowerWatch is how a leader watches its followers: a view of each, and what was committed when. Only the
// turn changes it; any goroutine may read the views.
type FollowerWatch struct {
	mu      lock.Mutex
	Views   []Follower // guarded by mu
	at      int64      // of the latest look
	samples [commitSamples]commitSample
	next    int
}

// commitSample is how far the log was committed at a tick.
type commitSample struct {
	at    int64
	index uint64
}

// commitSamples are taken four times in an election timeout, so they reach back four of them.
const commitSamples = 16

// Load returns a copy of the views.
func (w *FollowerWatch) Load() []Follower {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.Views)
}

// Core is what is read of a core: raft.RawNode.
type Core interface {
	BasicStatus() raft.BasicStatus
	WithProgress(func(id uint64, kind raft.ProgressType, pr tracker.Progress))
}

// Observe looks at the followers, once in a tick at most, and calls silent for each that was not heard for
// half an election timeout. A turn calls it.
func (w *FollowerWatch) Observe(core Core, self uint64, now, timeout int64, silent func(id uint64)) {
	st := core.BasicStatus()
	if leads := st.RaftState == raft.StateLeader; !leads && w.next == 0 && w.Views == nil || leads && now == w.at && w.Views != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if st.RaftState != raft.StateLeader {
		w.Views, w.next, w.at = nil, 0, 0
		return
	}
	slept := w.Views != nil && now-w.at > timeout // only pulses concerned the group: all was well
	w.at = now
	if latest := w.samples[(w.next+commitSamples-1)%commitSamples]; w.next == 0 || now-latest.at >= max(timeout/4, 1) {
		w.samples[w.next%commitSamples] = commitSample{now, st.Commit}
		w.next++
	}
	n := 0
	core.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == self {
			return
		}
		if n == len(w.Views) {
			w.Views = append(w.Views, Follower{})
		}
		v := &w.Views[n]
		if n++; v.ID != id || slept {
			*v = Follower{ID: id, ActiveAt: now, AckedAt: now, LevelAt: now, ReadingSince: Never, LostSince: Never, Match: pr.Match}
		}
		if w.observe(v, &pr, st, now, timeout); now-v.ActiveAt > timeout/2 {
			silent(id)
		}
	})
	w.Views = w.Views[:n]
}

// At returns when the followers were observed last. Only the turn may ask.
func (w *FollowerWatch) At() int64 { return w.at }

// Heard says when a follower has answered a pulse.
type Heard struct {
	ID uint64
	At int64
}

// Hear records answers to pulses. The core forgets who is active when it counts its quorum, and a leader that
// has nothing else to do has its turn just then.
func (w *FollowerWatch) Hear(heard []Heard, timeout int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range heard {
		if i := slices.IndexFunc(w.Views, func(v Follower) bool { return v.ID == h.ID }); i >= 0 {
			w.Views[i].Hear(h.At, timeout)
		}
	}
}

// observe brings a view up to date.
func (w *FollowerWatch) observe(v *Follower, pr *tracker.Progress, st raft.BasicStatus, now, timeout int64) {
	v.At = now
	if pr.RecentActive {
		v.Hear(now, timeout)
	}
	if pr.Match != v.Match || pr.Match == st.LastIndex {
		v.AckedAt = now
	}
	switch {
	case !pr.EntriesPending:
		v.ReadingSince = Never
	case v.ReadingSince < 0 || v.Next != pr.Next:
		v.ReadingSince = now
	}
	switch {
	case !pr.WithoutAuthority:
		v.LostSince = Never
	case v.LostSince < 0:
		v.LostSince = now
	}
	switch {
	case pr.State == tracker.StateReplicate || pr.Match >= v.Snapshot && pr.PendingSnapshot == 0:
		v.Snapshot = 0
	case pr.PendingSnapshot > 0 && v.Snapshot == 0:
		v.Snapshot, v.SnapshotAt = pr.PendingSnapshot, now
	case pr.PendingSnapshot > 0:
		v.Snapshot = pr.PendingSnapshot // a later one
	}
	v.Next, v.Match, v.Behind = pr.Next, pr.Match, st.LastIndex-min(pr.Match, st.LastIndex)
	if pr.Match >= st.Commit {
		v.LevelAt = now
	}
	for i := range min(w.next, commitSamples) {
		if s := w.samples[i]; s.index <= pr.Match {
			v.LevelAt = max(v.LevelAt, s.at)
		}
	}
	switch lag := now - v.LevelAt; {
	case lag <= timeout:
		v.Slow = false
	case lag > 2*timeout && now-v.AckedAt <= 2*timeout:
		v.Slow = true
	case now-v.AckedAt > 4*timeout:
		v.Slow = false // it does not work at all
	}
}
