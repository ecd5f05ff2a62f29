package examination

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft/quorum"
)

// What a command or a read has waited for when its context ends. Explain has bounds of two election
// timeouts, because a verdict on a group must not cry wolf. A call that has ended has no bound: its caller
// wants to know what was missing at that moment.

// Want is what a group lacks to commit, apply and read, as far as it decides which error a caller gets.
type Want int

// What may be missing.
const (
	Nothing Want = iota
	Quorum       // too few voters are heard
	Leader       // no leader is known
	Work         // there are both, and the group has not come so far yet
)

// Refusals says which hosts are refused, by this one or by them, and why; "": none is.
func Refusals(f *Facts) string {
	var why []string
	for _, id := range f.Members {
		p := f.peer(id)
		if r := f.refused(p); r != nil {
			why = append(why, fmt.Sprintf("this host refuses host %d: %s", id, r.Why))
		}
		if r := p.RefusedBy; r != nil {
			why = append(why, fmt.Sprintf("host %d refuses this host: %s", id, r.Why))
		}
	}
	return strings.Join(why, "; ")
}

// Missing returns what a group that is founded lacks, and says it.
func Missing(f *Facts) (Want, string) {
	if what, text := missingVoters(f); what != Nothing {
		return what, text
	}
	return missingWork(f)
}

// missingVoters finds a group without a leader or a quorum.
func missingVoters(f *Facts) (Want, string) {
	voters, leader := f.voters(), f.Status.Leader
	var heard []uint64
	var unheard []string
	bound := max(f.Bounds.Election/2, 3*f.Bounds.Heartbeat)
	for _, id := range voters {
		silent, ever := f.silence(id, 0)
		switch {
		case id == f.Host, ever && silent <= bound:
			heard = append(heard, id)
		case !ever:
			unheard = append(unheard, fmt.Sprintf("host %d was not heard since this host has started", id))
		default:
			unheard = append(unheard, fmt.Sprintf("host %d was heard %v ago", id, f.text(silent)))
		}
	}
	switch missing := strings.Join(unheard, ", "); {
	case !f.isQuorum(heard) && f.isJoint():
		return Quorum, fmt.Sprintf("%s: %s", f.lackedQuorum(heard), missing)
	case !f.isQuorum(heard):
		return Quorum, fmt.Sprintf("%v of %d, and a quorum is %d: %s", heard, len(voters), quorum.Size(len(voters)), missing)
	case leader == 0:
		return Leader, fmt.Sprintf("hosts %v are heard, a quorum of %s", heard, f.votersText())
	case slices.Contains(voters, leader) && !slices.Contains(heard, leader):
		return Work, fmt.Sprintf("host %d leads, as far as this host knows, and is silent: %s", leader, missing)
	}
	return Nothing, ""
}

// missingWork finds what a group waits for that has a leader and a quorum.
func missingWork(f *Facts) (Want, string) {
	s := &f.Status
	switch {
	case s.Role == event.RoleLeader && s.Committed < s.LastIndex:
		var behind []string
		for _, v := range f.followers() {
			if v.Match < s.LastIndex {
				behind = append(behind, fmt.Sprintf("host %d through %d", v.ID, v.Match))
			}
		}
		return Work, fmt.Sprintf("entries through %d wait for a quorum of durable copies: this host has entry %d on its disk, others acknowledge less: %s",
			s.LastIndex, s.Durable, strings.Join(behind, ", "))
	case s.Applied < s.Committed:
		return Work, fmt.Sprintf("entries through %d are committed, and the state machine of this host has applied entry %d last", s.Committed, s.Applied)
	case s.Leader != f.Host && s.Leader != 0:
		return Work, fmt.Sprintf("host %d leads, and has not answered this host; ask Explain there", s.Leader)
	}
	return Nothing, ""
}
