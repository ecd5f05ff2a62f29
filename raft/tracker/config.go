package tracker

import (
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/raft/quorum"
	"github.com/millrace/millrace/raft/raftpb"
)

// Config is a configuration: which members vote, and which only listen (learners). It is joint while it moves
// from one set of voters to another (thesis §4.3): Voters[0] is the new set, Voters[1] the old one.
//
// Invariant: no member is both a voter of either half and a learner. A voter of the second half that becomes
// a learner after the transition waits in LearnersNext. Outside a transition LearnersNext is empty and
// AutoLeave is false.
//
// A Config is immutable once made: raft/confchange makes new ones.
type Config struct {
	Voters quorum.JointConfig
	// AutoLeave makes the leader propose to leave the joint configuration as soon as it may.
	AutoLeave    bool
	Learners     map[uint64]struct{}
	LearnersNext map[uint64]struct{}
}

// MakeConfig reads a configuration from its stored form, without checks. confchange.Restore checks it.
func MakeConfig(cs raftpb.ConfState) Config {
	c := Config{
		Voters:       quorum.JointConfig{set(cs.Voters), set(cs.VotersOutgoing)},
		AutoLeave:    cs.AutoLeave,
		Learners:     set(cs.Learners),
		LearnersNext: set(cs.LearnersNext),
	}
	return c
}

func set(ids []uint64) map[uint64]struct{} {
	m := make(map[uint64]struct{}, len(ids))
	for _, id := range ids {
		m[id] = struct{}{}
	}
	return m
}

// ConfState returns the form in which storage keeps the configuration, with every list in ascending order.
func (c Config) ConfState() raftpb.ConfState {
	return raftpb.ConfState{
		Voters:         sorted(c.Voters[0]),
		VotersOutgoing: sorted(c.Voters[1]),
		Learners:       sorted(c.Learners),
		LearnersNext:   sorted(c.LearnersNext),
		AutoLeave:      c.AutoLeave,
	}
}

// sorted returns nil for an empty set, as decoding does.
func sorted(ids map[uint64]struct{}) []uint64 { return slices.Sorted(maps.Keys(ids)) }

// Clone returns a copy that shares nothing.
func (c Config) Clone() Config {
	c.Voters = quorum.JointConfig{maps.Clone(c.Voters[0]), maps.Clone(c.Voters[1])}
	c.Learners = maps.Clone(c.Learners)
	c.LearnersNext = maps.Clone(c.LearnersNext)
	return c
}

// String prints the configuration as etcd-io/raft does: voters=(1 2)&&(2 3) learners=(4) learners_next=(3)
// autoleave.
func (c Config) String() string {
	var b strings.Builder
	b.WriteString("voters=" + c.Voters.String())
	if len(c.Learners) > 0 {
		b.WriteString(" learners=" + quorum.MajorityConfig(c.Learners).String())
	}
	if len(c.LearnersNext) > 0 {
		b.WriteString(" learners_next=" + quorum.MajorityConfig(c.LearnersNext).String())
	}
	if c.AutoLeave {
		b.WriteString(" autoleave")
	}
	return b.String()
}

// IsJoint reports whether decisions need a majority of two sets of voters.
func (c Config) IsJoint() bool { return len(c.Voters[1]) > 0 }

// IsVoter reports whether id votes in either half.
func (c Config) IsVoter(id uint64) bool {
	_, a := c.Voters[0][id]
	_, b := c.Voters[1][id]
	return a || b
}

// IsMember reports whether id is a voter or a learner.
func (c Config) IsMember(id uint64) bool {
	_, learner := c.Learners[id]
	return learner || c.IsVoter(id)
}

// Members returns voters and learners in ascending order.
func (c Config) Members() []uint64 {
	var ids []uint64
	for id := range c.Voters.IDs() {
		ids = append(ids, id)
	}
	for id := range c.Learners {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
