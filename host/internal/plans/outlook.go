package plans

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft"
)

// Stage is one change of the members, as an operator sees it before it is made.
type Stage struct {
	What             string   // in words
	Voters, Learners []uint64 // after it
	// During and After are how many voters may fail while the stage is under way and after it, besides those
	// that are not there now. A negative number means that the group would have no quorum.
	During, After int
}

// Judge says what each stage does. A member that a stage adds or promotes counts as there: a stage waits
// until it has caught up.
func Judge(r *membership.Roster, stages [][]membership.Step, isHere func(id uint64) bool) (all []Stage, err error) {
	works := func(id uint64) bool { return isHere(id) || !r.Votes(id) }
	rosters, err := r.Play(stages)
	if err != nil {
		return nil, err
	}
	before := r
	for _, steps := range stages {
		s := Stage{What: membership.Describe(steps), During: before.Spare(works)}
		for {
			next := rosters[0]
			rosters = rosters[1:]
			s.During = min(s.During, next.Spare(works))
			before = next
			if !next.IsJoint() {
				break
			}
		}
		s.After, s.Voters, s.Learners = before.Spare(works), before.Conf.Voters, before.Conf.Learners
		all = append(all, s)
	}
	return all, nil
}

// Outlook is what an operator learns of a plan before it begins.
type Outlook struct {
	ID                  membership.PlanID
	Group, Host, Leader uint64 // Host has made it
	View                uint64 // the member by whose view it is judged; 0: none that knows
	Tolerates           int    // voters that may fail now
	Absent              []uint64
	Stages              []Stage
}

// String is a page for an operator.
func (o Outlook) String() string {
	var b strings.Builder
	if o.View == raft.None {
		return o.unseen()
	}
	fmt.Fprintf(&b, "plan %v for group %d, which tolerates %s now", o.ID, o.Group, tolerance(o.Tolerates))
	if o.View != o.Host {
		fmt.Fprintf(&b, ", as host %d says, which leads", o.View)
	}
	if len(o.Absent) > 0 {
		fmt.Fprintf(&b, "; members %v were not heard lately", o.Absent)
	}
	for i, s := range o.Stages {
		fmt.Fprintf(&b, "\n%d. %s: tolerates %s meanwhile and %s afterwards, with voters %v", i+1, s.What, tolerance(s.During), tolerance(s.After), s.Voters)
		if len(s.Learners) > 0 {
			fmt.Fprintf(&b, " and learners %v", s.Learners)
		}
	}
	return b.String()
}

// unseen is the page of a member that does not know who is there.
func (o Outlook) unseen() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan %v for group %d; how many failures it tolerates is unknown to host %d (%s)", o.ID, o.Group, o.Host, whomToAsk(o.Leader))
	for i, s := range o.Stages {
		fmt.Fprintf(&b, "\n%d. %s, with voters %v", i+1, s.What, s.Voters)
		if len(s.Learners) > 0 {
			fmt.Fprintf(&b, " and learners %v", s.Learners)
		}
	}
	return b.String()
}

// whomToAsk says who knows which members are there.
func whomToAsk(leader uint64) string {
	if leader == raft.None {
		return "no leader is known"
	}
	return fmt.Sprintf("host %d leads: ask there", leader)
}

func tolerance(n int) string {
	switch {
	case n < 0:
		return "nothing (no quorum is left)"
	case n == 1:
		return "1 failure"
	}
	return fmt.Sprintf("%d failures", n)
}
