package host

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// What Explain, and an error that says what a command waits for, know of quorums. While the configuration is
// joint, a quorum of the voters before the change and one of those after it are needed (thesis §4.3): most of
// all of them are not enough.

// isQuorum reports whether hosts are a quorum. Without a roster all members are voters.
func (e *examination) isQuorum(hosts []uint64) bool {
	if r := e.roster(); r != nil {
		return r.Spare(func(id uint64) bool { return slices.Contains(hosts, id) }) >= 0
	}
	voters := e.voters()
	return len(common(voters, hosts)) > len(voters)/2
}

func (e *examination) isJoint() bool {
	r := e.roster()
	return r != nil && r.IsJoint()
}

// quorumSince returns since when hosts have been a quorum, of which each was heard since a tick. Together
// they are one.
func (e *examination) quorumSince(heard map[uint64]int64) int64 {
	ids := slices.SortedFunc(maps.Keys(heard), func(a, b uint64) int { return cmp.Compare(heard[a], heard[b]) })
	for n := range ids {
		if e.isQuorum(ids[:n+1]) {
			return heard[ids[n]]
		}
	}
	return e.now
}

// lackedQuorum says how many of the voters this host hears, and how many it should.
func (e *examination) lackedQuorum(heard []uint64) string {
	if e.isJoint() {
		before, after := e.roster().Conf.VotersOutgoing, e.roster().Conf.Voters
		return fmt.Sprintf("the members are being changed from voters %v to %v, which needs a quorum of both; of the former this host hears %v, of the latter %v",
			before, after, common(before, heard), common(after, heard))
	}
	voters, itself := e.voters(), ""
	if slices.Contains(heard, e.self) {
		itself = ", itself included"
	}
	return fmt.Sprintf("of %d voters this host hears %d%s; a quorum is %d", len(voters), len(heard), itself, len(voters)/2+1)
}

// votersText names the voters of whom a quorum is needed.
func (e *examination) votersText() string {
	if e.isJoint() {
		conf := e.roster().Conf
		return fmt.Sprintf("voters %v and of voters %v, since a change from the former to the latter is under way", conf.VotersOutgoing, conf.Voters)
	}
	return fmt.Sprintf("%d voters", len(e.voters()))
}

// common returns the voters that are heard.
func common(voters, heard []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(voters), func(id uint64) bool { return !slices.Contains(heard, id) })
}
