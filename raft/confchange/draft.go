package confchange

import (
	"fmt"
	"maps"

	"github.com/millrace/millrace/raft/quorum"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// draft is a configuration with its redundancy taken out. The five fields of a configuration follow from it:
//
//	Voters[0]     incoming
//	Voters[1]     outgoing               (empty: not joint)
//	Learners      listeners \ outgoing   (who listens already)
//	LearnersNext  listeners ∩ outgoing   (who still votes)
//	AutoLeave     autoLeave
//
// Invariant: incoming and listeners are disjoint. apply keeps it: each of its steps puts a member into one of them or
// into neither.
type draft struct {
	incoming  set // who votes when the transition is over
	outgoing  set // who votes until then
	listeners set // who only listens when it is over
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

// difference returns how many are in one set and not in the other.
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

// apply works the changes in, in their order; the last word on a member counts. A change of member 0 is void: so does
// an application cancel one that is already in the log.
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
			// Concerns what the application knows of the member, not its part in decisions.
		default:
			return fmt.Errorf("%w: %d", ErrUnknownChange, int32(change.Type))
		}
	}
	if len(d.incoming) == 0 {
		return ErrRemovesVoters
	}
	return nil
}

// remove also forgets what is known of the member, unless it still votes: should a later change of the same list add
// it again, that may be another machine under the same number.
func (d *draft) remove(id uint64) {
	delete(d.incoming, id)
	delete(d.listeners, id)
	if !d.outgoing.has(id) {
		delete(d.views, id)
	}
}

// finish derives the configuration and the view of each member: of one who was a member before what was known, of a new
// one nothing.
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
		// Until the next check of the quorum a new member counts as heard, or adding one could cost the leader its
		// place before the member had a chance to speak.
		RecentActive: true,
	}
}
