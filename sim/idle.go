package sim

import (
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/host/event"
)

// Idleness is what happens to idle groups.
type Idleness int

// The kinds.
const (
	LeftAlone     Idleness = iota // clocks drift; nothing else happens
	LeaderCutOff                  // the host with most leaders is cut off from the others
	LeaderStops                   // one group is closed on the host that leads it; the host lives
	FollowersStop                 // one group is closed on the hosts that follow it; the hosts live
)

// Idle runs a scenario with many groups without commands, for which the hosts exchange pulses only. It has
// three hosts, a network that delays, and clocks between half and twice their speed. Without a fault all
// leaders stay for the time given, and no group sends a message. With one, the groups that it concerns have
// another leader within ten election timeouts, by the slowest clock, and the others keep theirs. It returns
// how many messages the groups sent while nothing else happened. The error, if any, is a *Violation.
func Idle(o Options, groups int, quiet time.Duration, kind Idleness) (messages int, err error) {
	o.groups = groups
	err = scenario(o, func(w *world, rng *rand.Rand) {
		w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond)
		w.startHosts()
		w.meet()
		if !w.runUntil(healTime, func() bool { return len(w.leadersNow()) == groups }) {
			w.violate("in %v not every group has a leader", healTime)
		}
		w.pass(time.Second) // the groups become quiet
		if kind == LeftAlone {
			for _, h := range w.hosts {
				h.clock.setDrift(0.5+1.5*rng.Float64(), w.now)
			}
		}
		before := w.leadersNow()
		if len(before) < groups {
			w.violate("without a fault only %d of %d groups have a leader", len(before), groups)
		}
		w.pass(time.Second)
		sent := w.net.messages
		if kind == LeftAlone {
			w.pass(quiet)
			w.checkLeadersStay(before, nil)
			messages = w.net.messages - sent
			return
		}
		w.pass(between(rng, 0, 2*w.config.ElectionTimeout))
		w.checkLeadersStay(before, nil)
		messages = w.net.messages - sent
		old := before[1].replica
		concerns := func(g uint64) bool { return g == 1 }
		switch kind {
		case LeaderCutOff:
			concerns = func(g uint64) bool { return before[g].life == old.life }
			for _, h := range w.hosts { // from itself too, as a mark
				w.net.cut[link{h.id, old.life.host.id}], w.net.cut[link{old.life.host.id, h.id}] = true, true
			}
		case LeaderStops:
			old.stop()
		case FollowersStop:
			w.eachReplica(func(r *replica) {
				if r.id == 1 && r.life != old.life {
					r.stop()
				}
			})
		}
		changed := func() bool {
			now := w.leadersNow()
			for g := range before {
				is, lead := now[g]
				switch {
				case !concerns(g):
				case kind == FollowersStop && lead:
					return false
				case kind != FollowersStop && (!lead || is.life == old.life):
					return false
				}
			}
			return true
		}
		if !w.runUntil(w.now+w.maxElection(), changed) {
			w.violate("%v after the leader of idle groups has failed, or has lost its followers, the others know nothing of it: %s", w.maxElection(), w.positions())
		}
		w.pass(w.maxElection())
		w.checkLeadersStay(before, concerns)
	})
	return messages, err
}

// leads says which replica leads a group in a term.
type leads struct {
	*replica
	term uint64
}

// leadersNow returns the leader of each group in its highest term.
func (w *world) leadersNow() map[uint64]leads {
	found := map[uint64]leads{}
	w.eachReplica(func(r *replica) {
		if !r.leads() {
			return
		}
		if s := r.group.Status(); s.Term > found[r.id].term {
			found[r.id] = leads{r, s.Term}
		}
	})
	return found
}

// checkLeadersStay: the groups that a fault does not concern keep their leader and its term, and every
// member follows it that can hear it.
func (w *world) checkLeadersStay(before map[uint64]leads, concerns func(group uint64) bool) {
	w.eachReplica(func(r *replica) {
		is := before[r.id]
		if concerns != nil && concerns(r.id) || r.closing || w.net.cut[link{r.life.host.id, r.life.host.id}] {
			return
		}
		s := r.group.Status()
		if s.Term != is.term || s.Leader != is.life.host.id || (s.Role == event.RoleLeader) != (r == is.replica) {
			w.violate("%s was idle, with leader %d in term %d, and is in term %d now, %v with leader %d", r.name, is.life.host.id, is.term, s.Term, s.Role, s.Leader)
		}
	})
}

// stop closes a group on one host, for good.
func (r *replica) stop() {
	r.closing = true
	_ = r.group.Close(ended) // the simulator runs what is left of it
}
