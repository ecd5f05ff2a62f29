package plans

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/membership"
)

// Hosts says what a member knows of the hosts around it.
type Hosts interface {
	// IsHere reports whether a member was heard within an election timeout.
	IsHere(id uint64) bool
	// RejectNew says why a host cannot be added, or returns nil.
	RejectNew(id uint64) error
	// Excludes reports whether a member comes with a directory that does not count.
	Excludes(id uint64) bool
}

// RejectStages says why a leader does not begin a plan that the roster allows, or returns nil.
func RejectStages(r *membership.Roster, p membership.Plan, hosts Hosts) error {
	for _, steps := range p.Stages {
		for _, s := range steps {
			if err := hosts.RejectNew(s.ID); err != nil && s.Op == membership.Add {
				return err
			}
			if s.Op == membership.Promote && r.Role(s.ID) == membership.Learner && hosts.Excludes(s.ID) && !rebinds(p.Stages, s.ID) {
				return fmt.Errorf("%w: host %d comes with another directory than member %d is bound to; replace the member", membership.ErrRefused, s.ID, s.ID)
			}
		}
	}
	if why := LeavesNoQuorum(r, p.Stages, hosts.IsHere); why != "" {
		return fmt.Errorf("%w: %s; start the members that are down first, or remove them before others", membership.ErrRefused, why)
	}
	return nil
}

// rebinds reports whether stages bind a member to another directory.
func rebinds(stages [][]membership.Step, id uint64) bool {
	return slices.ContainsFunc(stages, func(steps []membership.Step) bool {
		return slices.ContainsFunc(steps, func(s membership.Step) bool { return s.ID == id && s.Replaces })
	})
}

// LeavesNoQuorum says after which of some stages the members that are here would be no quorum, or "". A
// member that is promoted on the way counts as there: the stage waits for it.
func LeavesNoQuorum(r *membership.Roster, stages [][]membership.Step, isHere func(id uint64) bool) string {
	rosters, err := r.Play(stages)
	if err != nil {
		return err.Error()
	}
	for _, next := range rosters {
		if left := next.Spare(func(id uint64) bool { return isHere(id) || !r.Votes(id) }); left < 0 {
			there := slices.DeleteFunc(slices.Clone(next.Conf.Voters), func(id uint64) bool { return !isHere(id) })
			return fmt.Sprintf("with voters %v, of which %v were heard lately, the group would have no quorum", next.Conf.Voters, there)
		}
	}
	return ""
}
