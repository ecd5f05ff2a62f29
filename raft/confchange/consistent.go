package confchange

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/raft/tracker"
)

// consistent names the first rule that a configuration and the views of its members break, in the order below. What
// apply makes of a consistent configuration is consistent; what a caller or a peer hands in need not be.
func consistent(config tracker.Config, views tracker.ProgressMap) error {
	members := config.Members()
	if len(members) > 0 && len(config.Voters[0]) == 0 {
		return fmt.Errorf("%w: it has members and no voter: %s", ErrInconsistent, config)
	}
	for _, id := range members {
		if rule := brokenBy(id, config, views[id]); rule != "" {
			return fmt.Errorf("%w: member %d %s: %s", ErrInconsistent, id, rule, config)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(config.LearnersNext)) {
		if !set(config.Voters[1]).has(id) || set(config.Voters[0]).has(id) {
			return fmt.Errorf("%w: member %d is to listen next, but is no outgoing voter who loses its vote: %s", ErrInconsistent, id, config)
		}
	}
	if config.AutoLeave && !config.IsJoint() {
		return fmt.Errorf("%w: it is not joint, so nobody can leave it: %s", ErrInconsistent, config)
	}
	if len(views) != len(members) {
		return fmt.Errorf("%w: have views of %d members, want %d: %s", ErrInconsistent, len(views), len(members), config)
	}
	return nil
}

// brokenBy returns the rule about one member that does not hold, or "".
func brokenBy(id uint64, config tracker.Config, view *tracker.Progress) string {
	learner := set(config.Learners).has(id)
	switch {
	case id == 0:
		return "has the number that stands for nobody"
	case learner && config.IsVoter(id):
		return "votes and only listens"
	case view == nil:
		return "has no view"
	case view.IsLearner != learner:
		return "listens by its view or by the configuration, not by both"
	}
	return ""
}
