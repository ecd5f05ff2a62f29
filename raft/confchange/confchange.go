// Package confchange is the algebra of membership: how a change makes a configuration from another (thesis
// chapter 4). It computes and decides. The core (package raft) decides when a change is proposed, logged
// and applied.
//
// There are two ways from one set of voters to another.
//
//   - Simple: one voter is added or removed. Any majority before and any majority after then share a server
//     (thesis §4.1). So no two leaders can be elected in one term while some nodes follow the old
//     configuration and some the new one. Learners do not count; any number of them may change at the same
//     time.
//   - Through a joint configuration: EnterJoint, then LeaveJoint. In between, elections and commitment need
//     a majority of the old voters and a majority of the new voters (thesis §4.3). So any number of voters
//     may change at once.
//
// The approach: the five fields of a configuration constrain each other, so a change is made on a draft
// (draft.go). It has three sets, which hardly do: the future voters, the voters until then, and the future
// learners. The configuration and the views are derived from the draft at the end, once, for all ways and
// for Restore. Rejected: editing the fields in place and checking afterwards, where each pair of fields is
// a case to forget.
package confchange

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// The reasons to refuse a change. The texts are etcd-io/raft's, and its golden cases check them.
var (
	ErrJoint           = errors.New("can't apply simple config change in joint config")
	ErrAlreadyJoint    = errors.New("config is already joint")
	ErrNotJoint        = errors.New("can't leave a non-joint config")
	ErrNoVoters        = errors.New("can't make a zero-voter config joint")
	ErrRemovesVoters   = errors.New("removed all voters")
	ErrTooManyVoters   = errors.New("more than one voter changed without entering joint config")
	ErrUnknownChange   = errors.New("unknown kind of membership change")
	ErrInconsistent    = errors.New("inconsistent configuration")
	ErrRestoreNonEmpty = errors.New("restore needs an empty configuration to start from")
)

// Changer computes the configuration, and a leader's views of its members, that follow from a change. It
// never modifies its input: after a refused change the old configuration is still valid for every caller that
// keeps it.
type Changer struct {
	Tracker tracker.ProgressTracker
	// LastIndex is the entry after which a new member is probed.
	LastIndex uint64
}

// Simple applies the changes at once. They may change one voter at most, and any number of learners.
func (c Changer) Simple(changes ...raftpb.ConfChangeSingle) (tracker.Config, tracker.ProgressMap, error) {
	d, err := c.draft()
	if err != nil {
		return c.refuse(err)
	}
	if c.Tracker.IsJoint() {
		return c.refuse(ErrJoint)
	}
	if err := d.apply(changes); err != nil {
		return c.refuse(err)
	}
	if difference(c.Tracker.Voters[0], d.incoming) > 1 {
		return c.refuse(ErrTooManyVoters)
	}
	return d.finish(c)
}

// EnterJoint begins a transition: today's voters become the outgoing half, and the changes make the incoming
// half. A voter that becomes a learner keeps its vote in the outgoing half until LeaveJoint. autoLeave is
// stored for the core.
func (c Changer) EnterJoint(autoLeave bool, changes ...raftpb.ConfChangeSingle) (tracker.Config, tracker.ProgressMap, error) {
	d, err := c.draft()
	if err != nil {
		return c.refuse(err)
	}
	if c.Tracker.IsJoint() {
		return c.refuse(ErrAlreadyJoint)
	}
	if len(d.incoming) == 0 {
		return c.refuse(ErrNoVoters)
	}
	d.outgoing, d.autoLeave = d.incoming.clone(), autoLeave
	if err := d.apply(changes); err != nil {
		return c.refuse(err)
	}
	return d.finish(c)
}

// LeaveJoint ends a transition: the incoming half decides alone, and the members in LearnersNext become
// learners.
func (c Changer) LeaveJoint() (tracker.Config, tracker.ProgressMap, error) {
	d, err := c.draft()
	if err != nil {
		return c.refuse(err)
	}
	if !c.Tracker.IsJoint() {
		return c.refuse(ErrNotJoint)
	}
	d.outgoing, d.autoLeave = nil, false
	return d.finish(c)
}

// Restore returns the configuration that storage or a snapshot holds, with views in which nothing is known.
// The Changer must be empty. A snapshot comes from a peer, so a configuration that no sequence of changes can
// produce is refused.
func Restore(c Changer, cs raftpb.ConfState) (tracker.Config, tracker.ProgressMap, error) {
	if len(c.Tracker.Members()) > 0 || len(c.Tracker.Progress) > 0 {
		return c.refuse(ErrRestoreNonEmpty)
	}
	d := draft{
		incoming:  makeSet(cs.Voters),
		outgoing:  makeSet(cs.VotersOutgoing),
		listeners: makeSet(cs.Learners, cs.LearnersNext),
		autoLeave: cs.AutoLeave,
	}
	config, views, err := d.finish(c)
	if err != nil {
		return c.refuse(err)
	}
	// If the three sets do not reproduce the stored form, that form contradicted itself or listed a member
	// twice.
	if err := config.ConfState().Equivalent(cs); err != nil {
		return c.refuse(fmt.Errorf("%w: %w", ErrInconsistent, err))
	}
	return config, views, nil
}

// draft opens the current configuration for a change.
func (c Changer) draft() (draft, error) {
	if err := consistent(c.Tracker.Config, c.Tracker.Progress); err != nil {
		return draft{}, err
	}
	return openDraft(c.Tracker), nil
}

func (c Changer) refuse(err error) (tracker.Config, tracker.ProgressMap, error) {
	return tracker.Config{}, nil, err
}
