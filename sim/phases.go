package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/sim/coverage"
)

// Phases are read from the hosts at the moment of an injection. A host takes part in all groups, so a phase
// of one of its groups is a phase of the host. The window of what is in flight to a follower is not public,
// so that phase (pipeline-full) is for package sim/core alone.

// moments are what a life did last, for phases that no status shows.
type moments struct {
	capturing int           // snapshots that are being made
	offers    time.Duration // it last sent what concerns a snapshot that it offers
	asks      time.Duration // the same, for one that it receives
	rolled    time.Duration // a file of its log was last made, renamed or removed
	handsOver bool          // it is about to close
	transfers time.Duration // it was last asked to hand a leadership over
}

// lately is how long such a moment counts: a round trip and a write.
const lately = 10 * time.Millisecond

// phases returns what the groups of a host are doing; nil: those of any host.
func (w *world) phases(h *machine) (s coverage.Set) {
	was := w.looking
	w.looking = true // reads of the phases are not operations of the process
	defer func() { w.looking = was }()
	level := true
	for _, g := range w.ghosts {
		of, isLevel := w.groupPhases(g)
		s, level = s.Union(of), level && isLevel
	}
	for _, one := range w.hosts {
		if (h == nil || h == one) && one.alive != nil && one.alive.process != nil {
			s = s.Union(one.alive.phases())
		}
	}
	s.Add(coverage.MixedVersions, w.mixed)
	if level && s.Without(coverage.MixedVersions) == 0 {
		s.Add(coverage.Steady, true)
	}
	return s
}

// groupPhases returns the phases of a group, and whether all members that run follow one leader.
func (w *world) groupPhases(g *ghost) (s coverage.Set, level bool) {
	s.Add(coverage.Bootstrap, len(g.counted) == 0)
	leads := w.leading(g.id)
	var leader struct{ term, last, committed uint64 }
	if leads != nil {
		st := leads.group.Status()
		leader.term, leader.last, leader.committed = st.Term, st.LastIndex, st.Committed
		s.Add(coverage.NewLeader, st.Committed == 0 || leads.knownTerm(st.Committed) != st.Term)
		m := leads.group.Members()
		s.Add(coverage.ConfigChange, m.Plan != "" || len(m.Outgoing) > 0)
		for _, id := range m.Learners {
			s.Add(coverage.LearnerCatchUp, w.replicaOf(id, g.id).appliedLess(st.Committed))
		}
	}
	level = leads != nil
	w.eachReplica(func(r *replica) {
		if r.ghost != g || r.group == nil || !g.has(r.life.host.id) {
			return
		}
		st := r.group.Status()
		s.Add(coverage.Candidate, st.Role == event.RoleCandidate || st.Role == event.RolePreCandidate)
		if leads != nil && r != leads && st.Term <= leader.term {
			level = level && st.Term == leader.term
			s.Add(coverage.Conflict, st.Durable > leader.last || st.Durable > 0 && r.differs(leads, st.Durable))
		}
	})
	return s, level
}

// replicaOf returns a host's replica of a group, or nil.
func (w *world) replicaOf(id, group uint64) *replica {
	if l := w.hosts[id-1].alive; l != nil && l.process != nil && l.replicas[group-1].group != nil {
		return l.replicas[group-1]
	}
	return nil
}

func (r *replica) appliedLess(than uint64) bool { return r != nil && r.group.Status().Applied < than }

// knownTerm returns the term of an entry that the checks have seen in the log, or that of its state.
func (r *replica) knownTerm(index uint64) uint64 {
	if i := index - r.watch.base - 1; index > r.watch.base && i < uint64(len(r.watch.terms)) {
		return r.watch.terms[i]
	}
	return r.logTerm(index)
}

// differs reports whether another log has another term at an index.
func (r *replica) differs(other *replica, index uint64) bool {
	mine, theirs := r.knownTerm(index), other.knownTerm(index)
	return mine != 0 && theirs != 0 && mine != theirs
}

// phases returns what the process itself is doing.
func (l *life) phases() (s coverage.Set) {
	now := l.w.now
	since := func(at time.Duration) bool { return at > 0 && now-at < lately }
	s.Add(coverage.SnapshotBuild, l.capturing > 0)
	s.Add(coverage.SnapshotSend, since(l.offers))
	s.Add(coverage.SnapshotInstall, since(l.asks))
	s.Add(coverage.Compaction, since(l.rolled))
	s.Add(coverage.Shutdown, l.handsOver || slices.ContainsFunc(l.replicas, func(r *replica) bool { return r.closing }))
	s.Add(coverage.Transfer, since(l.transfers))
	for _, r := range l.replicas {
		s.Add(coverage.Recovery, r.group != nil && r.recovers > 0 && r.watch.applied.Index < r.recovers)
	}
	return s
}

// observeRecord notes what a life tells another one about snapshots (host/internal/bulk/record.go).
func (l *life) observeRecord(kind byte) {
	switch kind {
	case 48, 50: // an offer, a block
		l.offers = l.w.now
	case 49: // it asks for blocks
		l.asks = l.w.now
	}
}

// injects is asked immediately before a fault hits a host (nil: several), and reports whether it happens.
func (w *world) injects(f coverage.Fault, h *machine) bool {
	if w.nemesis.stopped {
		return true // the last of what was under way
	}
	during := w.phases(h)
	happens := w.ledger.Strikes(f, during)
	w.well.ill()
	if w.options.Trace != nil {
		where, what := "", ""
		if h != nil {
			where = fmt.Sprintf(" of host %d", h.id)
		}
		if !happens {
			what = ", left out"
		}
		fmt.Fprintf(w.options.Trace, "%12v injection %d: %v%s, in: %v%s\n", w.now, w.ledger.Injections(), f, where, during, what)
	}
	return happens
}

// leaveOutRates turns off the rates of faults that a run has to do without.
func (w *world) leaveOutRates() {
	for f, rate := range map[coverage.Fault]*float64{coverage.DropBurst: &w.net.drop, coverage.DuplicateBurst: &w.net.duplicate, coverage.CorruptFrame: &w.net.corrupt} {
		if !w.ledger.Happens(f) {
			*rate = 0
		}
	}
}
