package confchange

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/raft/tracker"
)

// consistent returns an error for the first rule, in the order below, that a configuration and the views of
// its members break. apply turns a consistent configuration into a consistent one; input from a caller or a
// peer may be inconsistent.
func consistent(config tracker.Config, views tracker.ProgressMap) error {
	members := config.Members()
	if len(members) > 0 && len(config.Voters[0]) == 0 {
		return fmt.Errorf("%w: it has members but no voter: %s", ErrInconsistent, config)
	}
	for _, id := range members {
		if rule := brokenBy(id, config, views[id]); rule != "" {
			return fmt.Errorf("%w: member %d %s: %s", ErrInconsistent, id, rule, config)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(config.LearnersNext)) {
		if !set(config.Voters[1]).has(id) || set(config.Voters[0]).has(id) {
			return fmt.Errorf("%w: member %d is in LearnersNext, but is not an outgoing voter that loses its vote: %s", ErrInconsistent, id, config)
		}
	}
	if config.AutoLeave && !config.IsJoint() {
		return fmt.Errorf("%w: it has AutoLeave but is not joint: %s", ErrInconsistent, config)
	}
	if len(views) != len(members) {
		return fmt.Errorf("%w: have the progress of %d members, want %d: %s", ErrInconsistent, len(views), len(members), config)
	}
	return nil
}

// brokenBy returns the rule about one member that does not hold, or "".
func brokenBy(id uint64, config tracker.Config, view *tracker.Progress) string {
	learner := set(config.Learners).has(id)
	switch {
	case id == 0:
		return "has the id 0, which stands for no node"
	case learner && config.IsVoter(id):
		return "is both a voter and a learner"
	case view == nil:
		return "has no progress"
	case view.IsLearner != learner:
		return "is a learner in its progress or in the configuration, but not in both"
	}
	return ""
}
