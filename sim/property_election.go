package sim

import (
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/sim/property"
)

// A term has one leader at most (thesis §3.4), over all lives, and every leader has all that was committed in
// earlier terms (§3.6.3). Checked after each event of a host, when it says for the first time that it leads a
// term.

// checkElectionSafety: there is at most one leader in a term (§3.4), over all lives. A host that leads the
// same term in two lives has forgotten its vote.
func (w *world) checkElectionSafety(r *replica, s diagnosis.Status) {
	if s.Role != event.RoleLeader || r.watch.leaderIn[s.Term] {
		return
	}
	r.watch.leaderIn[s.Term] = true
	if other, led := r.ghost.leaders[s.Term]; led {
		w.breaks(property.ElectionSafety, "term %d has two leaders: host %d, and now %s", s.Term, other, r.name)
	}
	r.ghost.leaders[s.Term] = r.life.host.id
	w.checkLeaderCompleteness(r, s.Term)
	r.ghost.led = max(r.ghost.led, s.Term)
	w.nemesis.newLeader(r.life)
}

// checkLeaderCompleteness: every committed entry is in the log of every leader of a later term (§3.6.3). One
// that hears late of its votes need not have what later terms have committed (seed 610 of 29 November). The
// append lane may still hold new entries of a log, but not entries from before the leader's election.
func (w *world) checkLeaderCompleteness(r *replica, leads uint64) {
	first := r.group.Status().FirstIndex // what was compacted is in a snapshot
	termOf := r.logTerm
	if r.life.isMoved {
		termOf = r.knownTerm // the log cannot open its cold segments meanwhile (seeds 849 and 4359)
	}
	for k := range r.ghost.applied {
		if uint64(k+1) < first || r.ghost.ledBy[k] >= leads {
			continue
		}
		term := termOf(uint64(k + 1))
		for at, c := range r.ghost.commands(uint64(k+1), uint64(k+1)) {
			if term != c.term {
				w.breaks(property.LeaderCompleteness, "new leader %s of term %d has term %d at index %v, where an entry of term %d is committed", r.name, leads, term, at, c.term)
			}
		}
	}
}
