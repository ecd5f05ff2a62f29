package sim

import (
	"time"

	"github.com/millrace/millrace/sim/property"
)

// When the faults have ended, agreement costs a bounded number of messages and terms: a cluster that works
// hard and agrees on nothing is broken, too (thesis §3.9). Checked at the end of each run.

// effort is what a cluster has spent and still has to do when the faults end.
type effort struct {
	at       time.Duration
	messages int
	terms    map[uint64]uint64 // the highest of each group
	lacking  uint64            // entries that members have not applied, of all groups
	asked    int               // by clients that wait: each may become an entry that every host lacks
}

// effort returns it for this moment.
func (w *world) effort() effort {
	e := effort{at: w.now, messages: w.net.messages, terms: map[uint64]uint64{}}
	w.eachReplica(func(r *replica) {
		e.asked += len(r.pending) + len(r.calls) + len(r.reading)
		if r.group == nil {
			return
		}
		s := r.group.Status()
		e.terms[r.ghost.id] = max(e.terms[r.ghost.id], s.Term)
		e.lacking += max(s.LastIndex, r.ghost.last()) - s.Applied
	})
	return e
}

// farStep is how far members climb at once towards a term that a liar has named (raft/farterm.go). The
// message may arrive just after the faults. It is one change of the term.
const farStep = 1 << 31

// What agreement may cost at most.
const (
	maxMessages      = 12 // of each pair of hosts in each group and heartbeat interval, and for each entry that a member lacks or is asked for
	termsAfterFaults = 12 // and two in each election timeout
)

// checkCost compares what was spent since the faults ended with what there was to do.
func (w *world) checkCost(began effort) {
	now := w.effort()
	intervals := int((now.at-began.at)/w.config.HeartbeatInterval) + 10
	hosts := len(w.hosts)
	used, most := now.messages-began.messages, maxMessages*(hosts*hosts*len(w.ghosts)*intervals+int(began.lacking)+hosts*began.asked)
	if used > most {
		w.breaks(property.Cost, "in %v after the faults the hosts, which lacked %d entries and were asked for %d, sent %d messages to agree, want at most %d", now.at-began.at, began.lacking, began.asked, used, most)
	}
	for group, term := range now.terms {
		if used, most := termsBetween(began.terms[group], term), uint64(termsAfterFaults+2*(now.at-began.at)/w.config.ElectionTimeout); used > most {
			w.breaks(property.Cost, "in %v after the faults group %d used %d terms, want at most %d", now.at-began.at, group, used, most)
		}
	}
}

// termsBetween counts the changes from one highest term to another. The member with the first one may be gone
// since. A far step may begin at a member with a lower term, and is then a little shorter.
func termsBetween(from, to uint64) uint64 {
	if to <= from {
		return 0
	}
	far := (to - from + farStep/2) / farStep
	return far + (to - from) - min(to-from, far*farStep)
}

// What a cluster may do at most that has nothing to do.
const (
	quietIntervals = 4  // heartbeat intervals, in which it is looked at
	maxQuietRuns   = 12 // of workers, for each group of each host in each interval
	quietLooks     = 25 // one of them must be quiet
)

// checkQuiet: without clients and without faults a host works at its ticks. One that finds again and again
// that it has something to do, and does nothing, keeps a processor busy for ever.
func (w *world) checkQuiet() {
	most, fewest := quietIntervals*maxQuietRuns*len(w.hosts)*len(w.ghosts), 0
	for look := range quietLooks {
		before := w.runs
		w.pass(quietIntervals * w.config.HeartbeatInterval)
		runs := w.runs - before
		if runs <= most {
			return
		}
		if look == 0 || runs < fewest {
			fewest = runs
		}
	}
	w.breaks(property.Cost, "without anything to do the workers of all hosts ran %d times and more in each of %d stretches of %d heartbeat intervals, want at most %d in one", fewest, quietLooks, quietIntervals, most)
}
