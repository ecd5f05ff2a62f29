package confchange

import (
	"fmt"
	"maps"

	"github.com/millrace/millrace/raft/quorum"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// draft is a configuration without redundancy. The five fields of a configuration follow from it:
//
//	Voters[0]     incoming
//	Voters[1]     outgoing               (empty: not joint)
//	Learners      listeners \ outgoing   (they listen already)
//	LearnersNext  listeners ∩ outgoing   (they still vote)
//	AutoLeave     autoLeave
//
// Invariant: incoming and listeners are disjoint. apply maintains this: each of its steps puts a member into
// one of them or into neither.
type draft struct {
	incoming  set // the voters after the transition
	outgoing  set // the voters until then
	listeners set // the learners after the transition
	autoLeave bool
	views     tracker.ProgressMap
}

type set map[uint64]struct{}

func makeSet(lists ...[]uint64) set {
	s := set{}
	for _, ids := range lists {
		for _, id := range ids {
			s[id] = struct{}{}
		}
	}
	return s
}

func (s set) clone() set {
	c := make(set, len(s))
	maps.Copy(c, s)
	return c
}

func (s set) has(id uint64) bool {
	_, ok := s[id]
	return ok
}

// difference returns the number of members that are in exactly one of the two sets.
func difference(a, b map[uint64]struct{}) int {
	common := 0
	for id := range a {
		if _, ok := b[id]; ok {
			common++
		}
	}
	return len(a) + len(b) - 2*common
}

func openDraft(t tracker.ProgressTracker) draft {
	d := draft{
		incoming:  set(t.Voters[0]).clone(),
		outgoing:  set(t.Voters[1]).clone(),
		listeners: set(t.Learners).clone(),
		autoLeave: t.AutoLeave,
		views:     maps.Clone(t.Progress),
	}
	maps.Copy(d.listeners, t.LearnersNext)
	return d
}

// apply makes the changes in their order; the last change of a member counts. A change of member 0 is void:
// in this way an application cancels a change that is already in the log.
func (d *draft) apply(changes []raftpb.ConfChangeSingle) error {
	for _, change := range changes {
		id := change.NodeID
		if id == 0 {
			continue
		}
		switch change.Type {
		case raftpb.ConfChangeAddNode:
			d.incoming[id] = struct{}{}
			delete(d.listeners, id)
		case raftpb.ConfChangeAddLearnerNode:
			delete(d.incoming, id)
			d.listeners[id] = struct{}{}
		case raftpb.ConfChangeRemoveNode:
			d.remove(id)
		case raftpb.ConfChangeUpdateNode:
			// The update is for the application; the member's part in decisions does not change.
		default:
			return fmt.Errorf("%w: %d", ErrUnknownChange, int32(change.Type))
		}
	}
	if len(d.incoming) == 0 {
		return ErrRemovesVoters
	}
	return nil
}

// remove also forgets what is known about the member, unless it still votes. If a later change of the same
// list adds the member again, it may be another machine with the same id.
func (d *draft) remove(id uint64) {
	delete(d.incoming, id)
	delete(d.listeners, id)
	if !d.outgoing.has(id) {
		delete(d.views, id)
	}
}

// finish derives the configuration and the view of each member. An old member keeps its view; about a new one
// nothing is known.
func (d *draft) finish(c Changer) (tracker.Config, tracker.ProgressMap, error) {
	config := tracker.Config{
		Voters:       quorum.JointConfig{quorum.MajorityConfig(d.incoming), quorum.MajorityConfig(d.outgoing)},
		AutoLeave:    d.autoLeave,
		Learners:     set{},
		LearnersNext: set{},
	}
	for id := range d.listeners {
		if d.outgoing.has(id) {
			config.LearnersNext[id] = struct{}{}
		} else {
			config.Learners[id] = struct{}{}
		}
	}
	views := tracker.ProgressMap{}
	for _, id := range config.Members() {
		views[id] = d.view(id, c)
		views[id].IsLearner = set(config.Learners).has(id)
	}
	if err := consistent(config, views); err != nil {
		return c.refuse(err)
	}
	return config, views, nil
}

func (d *draft) view(id uint64, c Changer) *tracker.Progress {
	if known, ok := d.views[id]; ok {
		view := *known
		return &view
	}
	return &tracker.Progress{
		Next:      max(c.LastIndex, 1),
		Inflights: tracker.NewInflights(c.Tracker.MaxInflight, c.Tracker.MaxInflightBytes),
		// A new member counts as active until the next check of the quorum. Otherwise adding it could cost
		// the leader its quorum before the new member had a chance to answer.
		RecentActive: true,
	}
}
