package placement

import (
	"fmt"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
)

// The turn's part in placement. A survey of the host has chosen members for a group (Placer); only the turn
// knows whether one of them is level. A member is level if it has authority and was active since the last
// check of the quorum. It gets the log as it grows (no snapshot, no probing), and holds all that the log had
// a heartbeat interval ago. Then the transfer, in which the leader takes no commands, takes about two round
// trips. A member of an idle group is level at once.
//
// If no member of the wish is level for an election timeout, the wish ends. The next survey makes another.

// Wish is what a survey wants a group to do: to hand over to one of some members, the best first. The turn
// owns one that was left for it.
type Wish struct {
	member *Member
	to     []target
	began  int64 // tick of the turn that has taken it

	marked int64  // tick at which the end of the log was noted,
	goal   uint64 // and that
}

// target is a member that should lead.
type target struct {
	id     uint64
	rank   int
	leads  uint64 // groups on its host
	here   int    // and on this one
	better bool   // it ranks above this member; otherwise it is for balance
}

// Turn is a turn of a group that leads or has led, as placement sees it. Its ticks count those that were
// missed.
type Turn interface {
	Core() Core
	Ticks() int64
	Discards() bool                   // entries of this member, so it leads no more
	Rests() bool                      // another hand-over was begun a moment ago
	ChangesMembers() bool             // a change of the members is noted
	Lacks(id uint64) string           // something that a member must have before it leads; "": nothing
	Refused(err error)                // of the core
	HandedOver(to uint64, why string) // in the present term
}

// Core is what is called of a core: raft.RawNode.
type Core interface {
	BasicStatus() raft.BasicStatus
	WithProgress(func(id uint64, kind raft.ProgressType, pr tracker.Progress))
	TransferLeader(to uint64) error
}

// Advance hands over as a wish says, when a member is level. came is a wish that was left for this turn, or
// nil. It reports whether the next turn must call it again. Only a turn calls it.
func (m *Member) Advance(t Turn, came *Wish) (again bool) {
	now := t.Ticks()
	if came != nil {
		came.began, came.marked, came.goal = now, now, t.Core().BasicStatus().LastIndex
		m.wish = came
	}
	if m.wish == nil {
		return false
	}
	if why := m.rejectWish(t); why != "" {
		m.endWish(why)
		return false
	}
	to, behind := m.wish.levelTarget(t)
	switch {
	case to != nil:
		m.handOver(t, to)
	case now-m.wish.began >= m.placer.settings.Election:
		m.endWish(behind)
	}
	return m.wish != nil
}

// HasWish reports whether a wish is under way, which a turn must look at in each heartbeat interval. Only
// a turn calls it.
func (m *Member) HasWish() bool { return m.wish != nil }

// endWish gives a wish up.
func (m *Member) endWish(why string) {
	m.wish = nil
	m.behind.Store(&why)
}

// rejectWish says why this turn must not hand over for placement, or "".
func (m *Member) rejectWish(t Turn) string {
	st := t.Core().BasicStatus()
	switch r := m.group.Roster(); {
	case st.RaftState != raft.StateLeader || t.Discards():
		return "this member does not lead"
	case st.LeadTransferee != raft.None || t.Rests():
		return "another hand-over is under way, or was a moment ago"
	case r == nil || r.Plan != nil || r.IsJoint() || t.ChangesMembers():
		return "the members change"
	}
	return ""
}

// levelTarget returns the first target of a wish that is level. Until a heartbeat interval has passed since
// the end of the log was noted, only the best one counts. Otherwise it says why the best is not level.
func (w *Wish) levelTarget(t Turn) (level *target, behind string) {
	waited := t.Ticks()-w.marked >= w.member.placer.settings.Heartbeat
	for i := range w.to {
		why := w.rejectTarget(t, w.to[i].id, waited)
		if why == "" {
			return &w.to[i], ""
		}
		if i == 0 {
			behind = why
		}
		if !waited {
			break
		}
	}
	if waited {
		w.marked, w.goal = t.Ticks(), t.Core().BasicStatus().LastIndex
	}
	return nil, behind
}

// rejectTarget says why a member is not level, or "". It waited if the goal was noted a heartbeat interval
// ago.
func (w *Wish) rejectTarget(t Turn, id uint64, waited bool) string {
	kind := raft.ProgressTypeLearner
	var pr tracker.Progress
	t.Core().WithProgress(func(other uint64, is raft.ProgressType, of tracker.Progress) {
		if other == id {
			kind, pr = is, of
		}
	})
	last := t.Core().BasicStatus().LastIndex
	switch {
	case kind != raft.ProgressTypePeer:
		return fmt.Sprintf("member %d does not vote", id)
	case pr.WithoutAuthority:
		return fmt.Sprintf("member %d is without authority", id)
	case !pr.RecentActive:
		return fmt.Sprintf("member %d was not heard lately", id)
	case pr.State == tracker.StateSnapshot:
		return fmt.Sprintf("member %d gets a snapshot", id)
	case t.Lacks(id) != "":
		return fmt.Sprintf("member %d lacks %s", id, t.Lacks(id))
	case pr.State != tracker.StateReplicate, pr.Match < w.goal, !waited && pr.Match < last:
		return fmt.Sprintf("member %d is behind: it holds entry %d of %d", id, pr.Match, last)
	}
	return ""
}

// handOver begins the transfer to a target.
func (m *Member) handOver(t Turn, to *target) {
	m.wish = nil
	if err := t.Core().TransferLeader(to.id); err != nil {
		t.Refused(err)
		m.endWish(err.Error())
		return
	}
	m.behind.Store(nil)
	m.placer.begun.Add(1)
	t.HandedOver(to.id, m.because(to))
}

// because says why a target should lead.
func (m *Member) because(to *target) string {
	if !to.better {
		return fmt.Sprintf("balance: %d groups lead on this host, and %d on host %d", to.here, to.leads, to.id)
	}
	p, s := m.preference.Load(), &m.placer.settings
	return fmt.Sprintf("placement: host %d (%s) should rather lead than this one (%s)", to.id, p.describe(to.id, m.placer.zone(to.id)), p.describe(s.Self, s.Zone))
}
