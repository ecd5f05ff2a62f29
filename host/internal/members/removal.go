package members

import (
	"fmt"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/lock"
)

// A member that was removed while it was away is told so by others, and stops. One host that lies must not
// stop a member, so one says so and another one confirms it. Neither counts while this member hears a
// leader, which sends nothing to those that were removed.
//
// A member that has stopped because it was removed still says so of others: one of three may be left.
//
// A single host is believed if this member knows no other. It is also believed if it repeats the notice for
// RemovalTimeouts election timeouts without a leader: it may be the only member left.
//
// Rejected: a majority of the roster. The members of an old roster may all be gone.

// RemovalTimeouts is how long, in election timeouts, one host alone is not believed.
const RemovalTimeouts = 64

// Removal is what others say of a removal of this member. The zero value is that none says so. Times are
// ticks that were not missed.
type Removal struct {
	mu    lock.Mutex
	first uint64 // the host that said so first, since a leader was heard; 0: none
	since int64  // when that was
}

// Notice is that a host says so.
type Notice struct {
	By         uint64
	Now, After int64 // the time, and how long one host alone is not believed
	LeaderAt   int64 // when a leader was heard last
	IsSilent   bool  // the leader is
	IsOnly     bool  // no other host can know of the group
}

// Believes reports whether this member is to believe a notice.
func (t *Removal) Believes(n Notice) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !n.IsSilent {
		t.first = 0
		return false
	}
	if t.first == 0 || n.LeaderAt >= t.since {
		t.first, t.since = n.By, n.Now
	}
	return t.first != n.By || n.Now-t.since >= n.After || n.IsOnly
}

// ReceiveRemoval learns from another host that this one's directory was removed. It may never have applied
// that it was added.
func (m *Group) ReceiveRemoval(by uint64, r Removed) {
	now := m.Rosters.Now()
	// A founder that was closed early may not know that the group is founded, but its log binds it.
	mayBe := now != nil && r.Version > now.Version || now == nil && (m.Joins || m.w.Bound() != nil)
	if r.Incarnation != m.w.Directory() || !mayBe {
		return // it is about another directory, or late
	}
	if m.believesRemoval(by) {
		m.w.Stop(fmt.Errorf("%w; host %d says so", &RemovedError{Group: m.settings.Group, Self: m.settings.Self, Index: r.Version}, by))
	}
}

// believesRemoval reports whether this member is to believe that it was removed, now that a host says so.
func (m *Group) believesRemoval(by uint64) bool {
	return m.removal.Believes(Notice{
		By: by, Now: m.w.Now(), After: RemovalTimeouts * m.settings.Election,
		LeaderAt: m.leaderAt.Load(), IsSilent: m.IsLeaderSilent(), IsOnly: m.View().IsOnlyOther(by, m.w.Others()),
	})
}

// RemovedError is why a member that was removed has stopped.
type RemovedError struct{ Group, Self, Index uint64 }

func (e *RemovedError) Error() string {
	return fmt.Sprintf("millrace: host %d was removed from group %d by entry %d of its log; remove its data with Host.RemoveGroup, or its directory if it has no other groups; the host can join again with an empty directory and another id", e.Self, e.Group, e.Index)
}

// Is makes errors.Is(err, outcome.ErrMemberRemoved) hold.
func (e *RemovedError) Is(target error) bool { return target == outcome.ErrMemberRemoved }
