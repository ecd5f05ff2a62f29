package sim

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/sim/property"
)

// Every client gets an answer: when the cluster works, within answerTime, and before its host has closed.
// Checked at the end of each run and at each end in good order of a host or a group.

// answerTime is the virtual time within which every waiting client must be answered, once all hosts agree and
// no new commands arrive: dozens of round trips.
const answerTime = time.Second

// checkAnswers demands it of a cluster that works.
func (w *world) checkAnswers() {
	if !w.runUntil(max(w.now, w.stalledUntil)+answerTime, w.everyoneIsAnswered) {
		w.breaks(property.Answered, "%v after the cluster converged, without new commands, clients still wait: %s", answerTime, w.waiting())
	}
}

// everyoneIsAnswered: every proposal ends in one of three ways (errors.go in package host), and none of them
// is silence. The clients of a dead process learn its death from the connection; while a process lives, no
// client has to give up to get an answer.
func (w *world) everyoneIsAnswered() bool {
	waits := false
	w.eachReplica(func(r *replica) { waits = waits || r.isAwaited() && !r.neverJoined() })
	return !waits
}

// isAwaited reports whether clients wait for a replica.
func (r *replica) isAwaited() bool {
	return len(r.pending)+len(r.calls)+len(r.reading) > 0
}

func (w *world) waiting() string {
	var s string
	w.eachReplica(func(r *replica) {
		if len(r.calls) > 0 {
			c := r.calls[0]
			s += fmt.Sprintf("%d calls at %s, the first for %.20q since %v; ", len(r.calls), r.name, c.command, c.since)
		}
		if len(r.pending) > 0 {
			p := r.pending[0]
			s += fmt.Sprintf("%d at %s, the first for %.20q since %v; ", len(r.pending), r.name, p.command, p.since)
		}
		if len(r.reading) > 0 {
			s += fmt.Sprintf("%d reads at %s, the first %v since %v; ", len(r.reading), r.name, r.reading[0].kind, r.reading[0].since)
		}
	})
	return s + w.positions()
}

// checkTimes demands that no command and no read was timed that the counts do not have.
func (w *world) checkTimes() {
	w.eachReplica(func(r *replica) {
		if r.group == nil {
			return
		}
		m := r.group.Metrics()
		t, answered := m.Times, m.Reads.Linearizable+m.Reads.Bounded+m.Reads.AtLeast
		switch reads := t.Reads.Count(); {
		case !w.config.StageTimes && t != (host.TimeMetrics{}):
			w.breaks(property.ExactlyOnce, "%s has timed what it should not: %+v", r.name, t)
		case t.Commands.Replicated.Count() > t.Commands.Appended.Count():
			w.breaks(property.ExactlyOnce, "%s has timed %d commands as replicated, and %d as appended", r.name, t.Commands.Replicated.Count(), t.Commands.Appended.Count())
		case reads > answered:
			w.breaks(property.ExactlyOnce, "%s has timed %d reads, and answered %d", r.name, reads, answered)
		}
	})
}
