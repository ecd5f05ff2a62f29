package examination

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/raft/quorum"
)

// What Explain, and an error that says what a command waits for, know of quorums. While the configuration is
// joint, a quorum of the voters before the change and one of those after it are needed (thesis §4.3): most of
// all of them are not enough.

// isQuorum reports whether hosts are a quorum. Without a roster all members are voters.
func (f *Facts) isQuorum(hosts []uint64) bool {
	if r := f.Roster; r != nil {
		return r.Spare(func(id uint64) bool { return slices.Contains(hosts, id) }) >= 0
	}
	voters := f.voters()
	return len(common(voters, hosts)) >= quorum.Size(len(voters))
}

func (f *Facts) isJoint() bool {
	r := f.Roster
	return r != nil && r.IsJoint()
}

// quorumSince returns since when hosts have been a quorum, of which each was heard since a tick. Together
// they are one.
func (f *Facts) quorumSince(heard map[uint64]int64) int64 {
	ids := slices.SortedFunc(maps.Keys(heard), func(a, b uint64) int { return cmp.Compare(heard[a], heard[b]) })
	for n := range ids {
		if f.isQuorum(ids[:n+1]) {
			return heard[ids[n]]
		}
	}
	return f.Now
}

// lackedQuorum says how many of the voters this host hears, and how many it should.
func (f *Facts) lackedQuorum(heard []uint64) string {
	if f.isJoint() {
		before, after := f.Roster.Conf.VotersOutgoing, f.Roster.Conf.Voters
		return fmt.Sprintf("the members are being changed from voters %v to %v, which needs a quorum of both; of the former this host hears %v, of the latter %v",
			before, after, common(before, heard), common(after, heard))
	}
	voters, itself := f.voters(), ""
	if slices.Contains(heard, f.Host) {
		itself = ", itself included"
	}
	return fmt.Sprintf("of %d voters this host hears %d%s; a quorum is %d", len(voters), len(heard), itself, quorum.Size(len(voters)))
}

// votersText names the voters of whom a quorum is needed.
func (f *Facts) votersText() string {
	if f.isJoint() {
		conf := f.Roster.Conf
		return fmt.Sprintf("voters %v and of voters %v, since a change from the former to the latter is under way", conf.VotersOutgoing, conf.Voters)
	}
	return fmt.Sprintf("%d voters", len(f.voters()))
}

// common returns the voters that are heard.
func common(voters, heard []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(voters), func(id uint64) bool { return !slices.Contains(heard, id) })
}
