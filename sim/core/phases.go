package core

import (
	"fmt"
	"math/rand/v2"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
	"github.com/millrace/millrace/sim/coverage"
)

// Phases are read from the nodes themselves, at the moment of an injection, and not from what the nemesis has
// done before: a transfer that was asked for and refused is none.

// phases returns what the cluster is doing, and what a node is doing; nil: any node.
func (w *world) phases(n *node) coverage.Set {
	s, level := w.groupPhases()
	for _, one := range w.nodes {
		if n == nil || one == n {
			s = s.Union(one.phases())
		}
	}
	if only := s.Without(coverage.MixedVersions); level && only == 0 {
		s.Add(coverage.Steady, true)
	}
	return s
}

// groupPhases returns the phases of the cluster, and whether all nodes that run follow one leader.
func (w *world) groupPhases() (s coverage.Set, level bool) {
	leader := w.leader()
	level = leader != nil
	s.Add(coverage.Bootstrap, !w.oracle.begun)
	s.Add(coverage.MixedVersions, w.mixed)
	for _, n := range w.nodes {
		if n.rn == nil {
			continue
		}
		s.Add(coverage.Candidate, n.role == raft.StateCandidate || n.role == raft.StatePreCandidate)
		s.Add(coverage.Transfer, n.leads && n.transferee != 0)
		s.Add(coverage.ConfigChange, len(n.conf.VotersOutgoing) > 0)
		if leader != nil && n != leader {
			s.Add(coverage.Conflict, w.conflicts(leader, n))
			level = level && n.term == leader.term
		}
	}
	if leader == nil {
		return s, false
	}
	s.Add(coverage.NewLeader, leader.commit == 0 || w.oracle.ghost[leader.commit-1].by != leader.term)
	s.Add(coverage.ConfigChange, leader.applied < w.changing)
	leader.rn.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if id == leader.id {
			return
		}
		s.Add(coverage.PipelineFull, p.State == tracker.StateReplicate && p.MsgAppFlowPaused)
		s.Add(coverage.SnapshotSend, p.State == tracker.StateSnapshot)
		s.Add(coverage.LearnerCatchUp, p.IsLearner && p.Match < leader.commit)
	})
	return s, level
}

// conflicts reports whether a node has entries that the leader will make it replace. By log matching its last
// entry says so.
func (w *world) conflicts(leader, n *node) bool {
	if n.term > leader.term {
		return false // the next leader has another log
	}
	if n.last > leader.last {
		return true
	}
	have, known := n.rn.EntryTerm(n.last)
	want, knows := leader.rn.EntryTerm(n.last)
	return known && knows && have != want
}

// phases returns what the node itself is doing.
func (n *node) phases() (s coverage.Set) {
	if n.rn == nil {
		return s
	}
	s.Add(coverage.Recovery, n.applied < n.recovers)
	s.Add(coverage.SnapshotBuild, n.building)
	s.Add(coverage.Compaction, n.trimming)
	s.Add(coverage.Shutdown, n.leaving)
	s.Add(coverage.SnapshotInstall, n.installing)
	s.Add(coverage.Conflict, n.disk.live.truncates(n.appends) >= 0)
	for i := range n.appends {
		s.Add(coverage.SnapshotInstall, n.appends[i].Snapshot != nil)
	}
	return s
}

// ofInjection returns a random source for the latest injection. So what is drawn when it happens, and not
// when it is left out, changes no other draw.
func (w *world) ofInjection() *rand.Rand {
	return split(w.seed, 1<<32|uint64(w.ledger.Injections()))
}

// injects is asked immediately before a fault hits a node (nil: the cluster), and reports whether it happens.
// Others are nodes that the fault concerns as well: the members that are added or removed, the target of a
// transfer.
func (w *world) injects(f coverage.Fault, n *node, others ...*node) bool {
	if w.healing {
		return true // the last of what was under way
	}
	during := w.phases(n)
	for _, other := range others {
		during = during.Union(other.phases())
	}
	if during.Without(coverage.Steady).Without(coverage.MixedVersions) != 0 {
		during = during.Without(coverage.Steady)
	}
	happens := w.ledger.Strikes(f, during)
	if w.trace != nil {
		where, what := "", ""
		if n != nil {
			where = fmt.Sprintf(" of %d", n.id)
		}
		if !happens {
			what = ", left out"
		}
		w.trace("injection %d: %v%s, in: %v%s", w.ledger.Injections(), f, where, during, what)
	}
	return happens
}
