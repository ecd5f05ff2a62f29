package host

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/appendlane"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
)

// This file collects what Explain needs and nothing else keeps: moments. All are ticks that were not missed
// (hostClock.lived): what happened while the process did not run is the fault of the pause only.

// roleTimes are moments in the life of a group, in ticks that were not missed; -1 if it is not so now.
type roleTimes struct {
	opened     atomic.Int64
	stopped    atomic.Int64
	leads      atomic.Int64
	leaderless atomic.Int64
}

// begin notes that the group is opened.
func (t *roleTimes) begin(now int64) {
	t.opened.Store(now)
	t.stopped.Store(-1)
	t.leads.Store(-1)
	t.leaderless.Store(now)
}

// note notes the role and the leader of the group.
func (t *roleTimes) note(s diagnosis.Status, now int64) {
	setSince(&t.leads, s.Role == event.RoleLeader, now)
	setSince(&t.leaderless, s.Leader == raft.None, now)
}

func setSince(since *atomic.Int64, is bool, now int64) {
	switch {
	case !is:
		since.Store(-1)
	case since.Load() < 0:
		since.Store(now)
	}
}

// hostWatch is what a host notes for Explain. Its methods may be called by any goroutine.
type hostWatch struct {
	slowTicks int64 // a write or a sync that takes longer is slow: an election timeout; does not change

	mu           sync.Mutex
	disk         stallWatch
	slow         slowDisk
	pauses       [maxPauses]pause // a ring: the latest ones
	nPauses      int              // so far
	missed       int64            // ticks, in all of them
	refused      map[uint64]examination.Refusal
	certificates map[uint64]examination.Certificate
}

// pause is a time in which the process did not run. It ended at a tick, missed ones included.
type pause struct{ ends, missed int64 }

// maxPauses bounds the pauses that are remembered.
const maxPauses = 16

// stalledDisk returns since when the append lane has had work and completed nothing.
func (w *hostWatch) stalledDisk(l *appendlane.Lane, now int64) (since int64, stalls bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.disk
	if w.disk.waits(l.IsBusy(), l.Pieces.Load(), now); before.busy && w.disk.done != before.done {
		w.slow.note(now-before.since, now, w.slowTicks)
	}
	return w.disk.since, w.disk.busy
}

// slowDisk counts writes and syncs that took long and were completed, in a row.
type slowDisk struct {
	since, latest, n, longest int64 // moments, a count, and ticks
}

// note notes what a piece of work took. What takes longer than slow is slow.
func (s *slowDisk) note(took, now, slow int64) {
	if took <= slow {
		return
	}
	if s.n == 0 || now-s.latest > slowDiskTimeouts*slow {
		*s = slowDisk{since: now - took}
	}
	s.n, s.latest, s.longest = s.n+1, now, max(s.longest, took)
}

// slowDiskTimeouts is for how many election timeouts a slow write is a cause after its end.
const slowDiskTimeouts = 2

// slowDisk returns the slow writes of the latest time; nil: there were none.
func (w *hostWatch) slowDisk(now int64) *examination.SlowDisk {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := &w.slow; s.n > 0 && now-s.latest <= slowDiskTimeouts*w.slowTicks {
		return &examination.SlowDisk{Since: s.since, N: s.n, Longest: s.longest}
	}
	return nil
}

// notePause notes that the process has missed ticks, at a tick.
func (w *hostWatch) notePause(now, missed int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pauses[w.nPauses%maxPauses] = pause{now, missed}
	w.nPauses++
	w.missed += missed
}

// paused returns the pauses that ended within the given ticks before now, and how long ago the first ended.
func (w *hostWatch) paused(now, within int64) (all examination.Pauses) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pauses[:min(w.nPauses, maxPauses)] {
		if ago := now - p.ends; ago <= within {
			all = examination.Pauses{N: all.N + 1, Missed: all.Missed + p.missed, Longest: max(all.Longest, p.missed), Since: max(all.Since, ago)}
		}
	}
	return all
}

// noteAdmitted forgets that a host was refused.
func (w *hostWatch) noteAdmitted(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.refused, id)
	delete(w.certificates, id)
}

// noteRefused notes that a host of the founding list was refused because of its identity.
func (w *hostWatch) noteRefused(id uint64, why error, fix, remote string, now, recent int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused == nil {
		w.refused = map[uint64]examination.Refusal{}
	}
	r, known := w.refused[id]
	if !known || now-r.Latest > recent {
		r.Since = now
	}
	r.Why, r.Remote, r.Fix, r.Latest = why.Error(), remote, fix, now
	w.refused[id] = r
}

// refusedHost returns why a host was refused last; nil: it was not.
func (w *hostWatch) refusedHost(id uint64) *examination.Refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, was := w.refused[id]; was {
		return &r
	}
	return nil
}

// overload is what a group has refused for lack of memory.
type overload struct{ commands, messages stretch }

// stretch counts what happens again and again: a new stretch begins when it has not happened for a while. It
// may be off by a few when several goroutines note at the same moment.
type stretch struct{ since, latest, n atomic.Int64 }

// note notes n of them, at a tick.
func (s *stretch) note(n int, now, ends int64) {
	if s.n.Load() == 0 || now-s.latest.Load() > ends {
		s.since.Store(now)
		s.n.Store(0)
	}
	s.latest.Store(now)
	s.n.Add(int64(n))
}

func (s *stretch) load() examination.Repeats {
	return examination.Repeats{Since: s.since.Load(), Latest: s.latest.Load(), N: s.n.Load()}
}

// noteOverload notes commands that were refused for lack of memory.
func (g *Group) noteOverload(n int) {
	g.proposals.overload.commands.note(n, g.host.clock.livedAtBeat(), int64(2*g.host.config.electionTicks()))
}

// noteNoSpace notes messages that were dropped for lack of memory.
func (g *Group) noteNoSpace(n int) {
	g.proposals.overload.messages.note(n, g.host.clock.livedAtBeat(), int64(2*g.host.config.electionTicks()))
}

// memberWatches is how a leader watches its followers: a view of each, and what was committed when. Only the
// turn changes it; any goroutine may read the views.
type memberWatches struct {
	mu      sync.Mutex
	views   []examination.Follower
	at      int64 // of the latest look
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

// load returns a copy of the views.
func (w *memberWatches) load() []examination.Follower {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.views)
}

// watchMembers looks at the followers, once in a tick at most. It is part of a turn.
func (g *Group) watchMembers() (again bool) {
	w, now := &g.life.views, g.core.at.ticks-g.core.at.missed
	st := g.core.node.BasicStatus()
	if leads := st.RaftState == raft.StateLeader; !leads && w.next == 0 && w.views == nil || leads && now == w.at && w.views != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if st.RaftState != raft.StateLeader {
		w.views, w.next, w.at = nil, 0, 0
		return false
	}
	timeout := int64(g.host.config.electionTicks())
	slept := w.views != nil && now-w.at > timeout // only pulses concerned the group: all was well
	w.at = now
	if latest := w.samples[(w.next+commitSamples-1)%commitSamples]; w.next == 0 || now-latest.at >= max(timeout/4, 1) {
		w.samples[w.next%commitSamples] = commitSample{now, st.Commit}
		w.next++
	}
	n := 0
	g.core.node.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == g.self {
			return
		}
		if n == len(w.views) {
			w.views = append(w.views, examination.Follower{})
		}
		v := &w.views[n]
		if n++; v.ID != id || slept {
			*v = examination.Follower{ID: id, ActiveAt: now, AckedAt: now, LevelAt: now, ReadingSince: examination.Never, LostSince: examination.Never, Match: pr.Match}
		}
		if w.look(v, &pr, st, now, timeout); now-v.ActiveAt > timeout/2 {
			g.host.askIfAlive(id, now)
		}
	})
	w.views = w.views[:n]
	return false
}

// noteActive notes followers that have answered pulses. The core forgets that they are active when it counts
// its quorum, and a leader that has nothing else to do has its turn just then.
func (w *memberWatches) noteActive(ids []uint64, now, timeout int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.views {
		if v := &w.views[i]; slices.Contains(ids, v.ID) {
			v.Hear(now, timeout)
		}
	}
}

// look brings a view up to date.
func (w *memberWatches) look(v *examination.Follower, pr *tracker.Progress, st raft.BasicStatus, now, timeout int64) {
	v.At = now
	if pr.RecentActive {
		v.Hear(now, timeout)
	}
	if pr.Match != v.Match || pr.Match == st.LastIndex {
		v.AckedAt = now
	}
	switch {
	case !pr.EntriesPending:
		v.ReadingSince = examination.Never
	case v.ReadingSince < 0 || v.Next != pr.Next:
		v.ReadingSince = now
	}
	switch {
	case !pr.WithoutAuthority:
		v.LostSince = examination.Never
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

// askIfAlive greets a host, at most twice in an election timeout, so that Explain can tell a host that is
// down from one that is up and has nothing to say.
func (h *Host) askIfAlive(id uint64, now int64) {
	p := h.network.handshakes.of(id)
	if p == nil {
		return
	}
	if was := p.askedAt.Load(); now-was > int64(h.config.electionTicks()/2) && p.askedAt.CompareAndSwap(was, now) {
		h.greet(id, greetsAsk)
	}
}

// refusedDirectoryError is why a group stops whose host comes with a directory that it must not have.
type refusedDirectoryError struct{ error }

func (e *refusedDirectoryError) Unwrap() error { return e.error }
