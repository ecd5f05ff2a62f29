package raft

import (
	"fmt"

	"github.com/millrace/millrace/raft/confchange"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// Membership (thesis chapter 4). A change is an entry like any other, and takes effect on each node when that
// node applies it; in the thesis it takes effect when it is appended. So a configuration in force is never
// rolled back. This is safe because there is one change at a time: a leader accepts the next change only when
// it has applied the last one (a new leader waits until it has applied everything that it found), and a node
// with a committed change that it has not applied does not campaign.
//
// Invariant: a node that durably holds the entry of change k+1 durably holds a commit index of at least the
// index of change k. A leader proposes k+1 only when it has applied k, an append carries its commit index,
// and storage writes the two together, or the commit index first (doc.go, "A write is atomic"). So a node
// that campaigns has applied all changes in its log but the last, and quorums of two configurations that are
// one change apart have a member in common. A node that held k+1 and had forgotten that k is committed would
// campaign two changes behind, and such quorums need not have a common member.
//
// raft/confchange computes the configuration that follows from a change. A change that it refuses is refused
// when it is proposed. If such a change is committed nevertheless, every node refuses it alike and keeps its
// configuration.

// changer returns the algebra of changes, starting from a configuration.
func (r *raft) changer(config tracker.Config, views tracker.ProgressMap) confchange.Changer {
	t := tracker.MakeProgressTracker(r.cfg.maxInflightMsgs, r.cfg.maxInflightBytes)
	t.Config, t.Progress = config, views
	return confchange.Changer{Tracker: t, LastIndex: r.log.lastIndex()}
}

// views returns what the next configuration inherits: a leader's view of its members, and nothing on any
// other role.
func (r *raft) views(config tracker.Config) tracker.ProgressMap {
	if r.leader != nil {
		return r.leader.members.Map()
	}
	return tracker.MakeMembers(config, r.log.lastIndex(), r.cfg.maxInflightMsgs, r.cfg.maxInflightBytes).Map()
}

// changed returns the configuration that follows from a change. A local worker would execute what is sent to
// its address, so that address cannot become a member.
func (r *raft) changed(config tracker.Config, c raftpb.ConfChangeV2) (tracker.Config, tracker.ProgressMap, error) {
	for _, change := range c.Changes {
		if IsLocalMsgTarget(change.NodeID) {
			return tracker.Config{}, nil, notAMember(change.NodeID)
		}
	}
	changer := r.changer(config, r.views(config))
	if c.LeaveJoint() {
		return changer.LeaveJoint()
	}
	if autoLeave, joint := c.EnterJoint(); joint {
		return changer.EnterJoint(autoLeave, c.Changes...)
	}
	return changer.Simple(c.Changes...)
}

// restored returns the configuration that is in storage or in a snapshot.
func (r *raft) restored(cs raftpb.ConfState) (tracker.Config, error) {
	config, _, err := confchange.Restore(r.changer(tracker.Config{}, nil), cs)
	if err != nil {
		return tracker.Config{}, err
	}
	for _, id := range config.Members() {
		if IsLocalMsgTarget(id) {
			return tracker.Config{}, notAMember(id)
		}
	}
	return config, nil
}

func notAMember(id uint64) error {
	return fmt.Errorf("%w: member %d is the address of a local storage worker, not a node", confchange.ErrInconsistent, id)
}

// applyConfChange makes a committed change take effect, and returns the configuration after it. A change that
// a pending snapshot covers, and that was on its way to the apply worker when the snapshot arrived, has no
// effect any more; the configuration that follows it is returned nevertheless.
func (r *raft) applyConfChange(c raftpb.ConfChangeV2) raftpb.ConfState {
	config := r.conf
	if r.superseded != nil {
		config = *r.superseded
	}
	next, views, err := r.changed(config, c)
	switch {
	case err != nil:
		r.warningf("%d ignores a committed membership change, as every node does: %v (%+v at %s)", r.id, err, c, config)
		next = config
	case r.superseded != nil:
		r.superseded = &next
	default:
		r.switchTo(next, views)
	}
	return next.ConfState()
}

// switchTo puts a configuration in force, and repeats every decision that depended on the previous one.
func (r *raft) switchTo(config tracker.Config, views tracker.ProgressMap) {
	r.conf = config
	r.infof("%d is in configuration %s", r.id, config)
	switch {
	case r.role == StateLeader:
		r.leader.setMembers(config, views.Members())
		r.leadConfiguration()
	case r.candidate != nil && !r.promotable():
		r.becomeFollower(r.term, None)
	}
}

// leadConfiguration adapts a leader to a new configuration: it may have lost its own vote, the quorum may
// have become smaller, and there may be new members that need entries.
func (r *raft) leadConfiguration() {
	if !r.promotable() {
		if r.cfg.stepDownOnRemoval {
			r.becomeFollower(r.term, None)
		}
		return
	}
	if target := r.leader.transfer.target; target != None && !r.conf.IsVoter(target) {
		r.abortTransfer()
	}
	if r.advanceCommit() {
		r.askParkedReads()
		r.broadcastAppend()
	} else {
		for i := range r.leader.members {
			if p := &r.leader.members[i]; p.ID != r.id {
				r.sendAppend(p.ID, &p.Progress, unlessEmpty)
			}
		}
	}
	r.releaseReads()
}

// rejectConfChange returns why a change may not be proposed now, or nil.
func (r *raft) rejectConfChange(c raftpb.ConfChangeV2) error {
	l, applied := r.leader, r.log.applied
	switch {
	case l.pendingConf > applied:
		return fmt.Errorf("%w: entry %d, which may be a membership change, must be applied first; the applied index is %d; try again after that", ErrConfChangeRefused, l.pendingConf, applied)
	case r.conf.IsJoint() && !c.LeaveJoint():
		return fmt.Errorf("%w: the configuration is joint (%s); propose an empty change to leave it first", ErrConfChangeRefused, r.conf)
	}
	if _, _, err := r.changed(r.conf, c); err != nil {
		return fmt.Errorf("%w: %w (at %s)", ErrConfChangeRefused, err, r.conf)
	}
	return nil
}

// readConfChange decodes the change in an entry, and refuses what no version of this package writes.
func readConfChange(e *raftpb.Entry) (raftpb.ConfChangeV2, error) {
	var c raftpb.ConfChangeV2
	if e.Type == raftpb.EntryConfChange {
		var v1 raftpb.ConfChange
		if err := v1.Unmarshal(e.Data); err != nil {
			return c, fmt.Errorf("%w: its %d bytes of data are not a ConfChange: %w", ErrConfChangeRefused, len(e.Data), err)
		}
		c = v1.AsV2()
	} else if err := c.Unmarshal(e.Data); err != nil {
		return c, fmt.Errorf("%w: its %d bytes of data are not a ConfChangeV2: %w", ErrConfChangeRefused, len(e.Data), err)
	}
	if _, named := raftpb.ConfChangeTransition_name[int32(c.Transition)]; !named {
		return c, fmt.Errorf("%w: its transition %d is unknown", ErrConfChangeRefused, c.Transition)
	}
	return c, nil
}

// leaveJoint ends a transition that ends by itself, once the change that began it is applied. It runs at
// every apply and at every tick, so an obstacle only delays it.
func (r *raft) leaveJoint() {
	if !r.conf.AutoLeave || r.leader.pendingConf > r.log.applied || r.transferring() || !r.promotable() {
		return
	}
	r.leader.pendingConf = r.log.lastIndex() + 1
	r.infof("%d proposes to leave the joint configuration %s", r.id, r.conf)
	r.appendOwn([]raftpb.Entry{{Type: raftpb.EntryConfChangeV2}})
	r.broadcastAppend()
}

// hasUnappliedConfChange reports whether a membership change is committed that this node has not applied.
// Such a node would count votes by a configuration that is no longer in force. Compacted entries are applied,
// though perhaps not yet acknowledged.
func (r *raft) hasUnappliedConfChange() bool {
	return r.log.changes.next(max(r.log.applied+1, r.log.firstIndex())) <= r.log.committed
}

// ProposeConfChange proposes a membership change. ErrConfChangeRefused says why it cannot be made now. A
// follower forwards the change to the leader, which may refuse it without notice. In any case a change takes
// effect only when it is applied.
func (rn *RawNode) ProposeConfChange(c raftpb.ConfChangeI) error {
	kind, data, err := raftpb.MarshalConfChange(c)
	if err != nil {
		return err
	}
	return rn.step(&raftpb.Message{Type: raftpb.MsgProp, From: rn.raft.id, Entries: []raftpb.Entry{{Type: kind, Data: data}}})
}

// ApplyConfChange makes a change take effect. The application must call it for each committed entry with a
// change, in order, before it acknowledges the entry as applied. A snapshot that covers the entry must not
// come first. If the application rejects the change, on every node alike, it does not call it, or calls it
// with the change of node 0. ApplyConfChange returns the configuration after the entry, which belongs in a
// snapshot of that index. An illegal change has no effect.
//
// A commit index alone is saved without a sync. An application that acts on a change towards others (it
// wipes the removed member, for example) must first make sure that a quorum knows durably of the commit. If
// a crash makes the quorum forget it, the removed member can no longer help.
func (rn *RawNode) ApplyConfChange(c raftpb.ConfChangeI) *raftpb.ConfState {
	var change raftpb.ConfChangeV2
	if c != nil {
		change = c.AsV2()
	}
	cs := rn.raft.applyConfChange(change)
	rn.raft.checkCursors()
	return &cs
}
