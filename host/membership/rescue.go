package membership

import (
	"slices"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// Rescue returns the roster after an entry with which an operator has made one member a group of its own.
// The reason is a majority of the voters that is gone for good. The member is the only voter, with a new
// directory. It also returns how the core's configuration becomes that of the roster, one change after
// another. A plan that was under way is cancelled, whatever it was waiting for.
//
// The roster forgets which directories were removed. The cluster is a new one, whose number every host
// compares, so none of them is heard any more, and their ids may be given to new directories. Join tokens are
// void: they name the cluster for which they were made. The keys of the member stay.
//
// Rejected: the entries of an ordinary plan. Each of them leaves a quorum in common with the configuration
// before, and so cannot exchange the directory of the only voter.
func (r *Roster) Rescue(index, id uint64, as transport.Incarnation) (*Roster, []raftpb.ConfChangeV2, error) {
	self, is := r.Member(id)
	switch {
	case !is:
		return nil, nil, refuse("host %d is no member, so it cannot be rescued; the members are %v", id, r.IDs())
	case as == transport.Incarnation{} || as == self.Incarnation || r.Was(id, as):
		return nil, nil, refuse("a rescued host has a new directory, and %v is not new", as)
	}
	changes, conf, err := alone(r.Conf, id)
	if err != nil {
		return nil, nil, err
	}
	self.Incarnation = as
	next := *r
	next.Version, next.Changed = index, index
	next.Conf, next.Members, next.Removed, next.Tokens = conf, []Member{self}, nil, nil
	if next.Plan != nil {
		next.finish(index, true)
	}
	return &next, changes, nil
}

// alone returns the changes after which one member is the only one, and the configuration after them.
func alone(conf raftpb.ConfState, id uint64) (changes []raftpb.ConfChangeV2, _ raftpb.ConfState, err error) {
	change := func(cc raftpb.ConfChangeV2) {
		if err == nil {
			conf, err = nextConf(conf, cc)
			changes = append(changes, cc)
		}
	}
	single := func(typ raftpb.ConfChangeType, id uint64) {
		change(raftpb.ConfChangeV2{Changes: []raftpb.ConfChangeSingle{{Type: typ, NodeID: id}}})
	}
	if len(conf.VotersOutgoing) > 0 {
		change(leaveJoint)
	}
	if !slices.Contains(conf.Voters, id) {
		single(raftpb.ConfChangeAddNode, id)
	}
	for _, other := range slices.Concat(conf.Voters, conf.Learners) {
		if other != id {
			single(raftpb.ConfChangeRemoveNode, other)
		}
	}
	if err != nil {
		return nil, conf, refuse("%w", err)
	}
	return changes, conf, nil
}
