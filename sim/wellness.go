package sim

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/host/event"
)

// wellness says since when the cluster is well. A cluster is well when nothing that Explain could blame is
// so:
//
//   - no fault was injected, and none lasts: each link carries everything in time, each disk takes, keeps and
//     returns what it is given, each machine has space and descriptors, each clock is right, no process is
//     paused, no state machine hangs, and no impostor runs;
//   - each host that is a member and is not lost for good runs, and refuses no member that speaks to it;
//   - each group is founded, all its members follow one leader in its term, lack no authority, and no
//     plan is under way, and no machine is halted;
//   - each leader has committed an entry of its term, and with it what it found in its log. Before that,
//     commands wait, and their memory may be used up;
//   - each member has stored and applied what its leader had committed an election timeout ago.
//
// Commands may come, also many: load is no illness. Snapshots are taken and sent, and leaders hand over.
// A host that is no member is not judged, and may be in any state: it waits, was removed, or is down.
type wellness struct {
	w     *world
	since time.Duration // it is well since then
	next  time.Duration // of the next look
	why   string        // it is not well; for the trace
	looks int           // at a cluster that has been well for long enough

	judged time.Duration // its verdicts are judged then
	goals  []goal        // by group
}

// goal is what a leader had committed at a moment: all members reach it within an election timeout.
type goal struct {
	index uint64
	at    time.Duration
}

const (
	wellStep     = 5 * time.Millisecond
	judgedRests  = 4096    // verdicts are judged at each look at first, and once a second after an hour in which all was well
	enoughMemory = 1 << 20 // for what the clients propose, nearly always
	ampleMemory  = 2 << 20 // always: a leader takes entries of up to half of a share before they are committed
)

// ill notes that something was done to the cluster.
func (n *wellness) ill() { n.since = n.w.now }

// isLong reports whether it has been well for long enough.
func (n *wellness) isLong() bool { return n.w.now-n.since >= wellTimeouts*n.w.config.ElectionTimeout }

// check is called after each event.
func (n *wellness) check() {
	w := n.w
	if w.now < n.next {
		return
	}
	n.next = w.now + wellStep
	was := n.why
	n.why = w.illness()
	if n.why == "" {
		n.why = n.lag()
	}
	if n.why != "" {
		n.since = w.now
	}
	if n.why != was && w.options.Trace != nil {
		fmt.Fprintf(w.options.Trace, "%12v wellness: %q\n", w.now, n.why)
	}
	if n.isLong() {
		n.looks++
		if w.now >= n.judged {
			n.judged = w.now + (w.now-n.since)/judgedRests
			w.eachRunningMember(w.checkVerdict)
		}
	}
}

// lag says which member lacks what was committed an election timeout ago; "": none does.
func (n *wellness) lag() (why string) {
	w := n.w
	if n.goals == nil {
		n.goals = make([]goal, len(w.ghosts))
	}
	for i, g := range w.ghosts {
		want, level := n.goals[i], true
		w.eachRunningMember(func(r *replica) {
			if s := r.group.Status(); r.ghost == g && min(s.Durable, s.Applied) < want.index {
				level = false
				if w.now-want.at > w.config.ElectionTimeout {
					why = r.name + " lags"
				}
			}
		})
		if level {
			n.goals[i] = goal{w.leading(g.id).group.Status().Committed, w.now}
		}
	}
	return why
}

// eachRunningMember visits the members of all groups that run.
func (w *world) eachRunningMember(visit func(*replica)) {
	w.eachReplica(func(r *replica) {
		if r.group != nil && !r.closing && !r.isCondemned() && r.ghost.has(r.life.host.id) {
			visit(r)
		}
	})
}

// illness says why the cluster is not well, as far as that can be seen now; "": nothing is seen.
func (w *world) illness() string {
	n := &w.net
	switch {
	case w.hangs != nil || w.diverging != nil || w.restoring != nil && w.restoring.copy != nil || w.impostors != nil && w.impostors.alive:
		return "a scenario, or an impostor"
	case n.drop > 0 || n.corrupt > 0 || len(n.cut) > 0 || len(n.late) > 0 || n.burst > w.now || n.queue > 0 || n.liar != 0 || n.swallows != nil:
		return "the network"
	case w.stalledUntil > w.now:
		return "work that hangs"
	case w.churn != nil && (w.churn.wiped != nil || len(w.churn.running) > 0):
		return "members change"
	}
	for p := range n.refusing {
		if p.from == p.from.host.alive && p.to == p.to.host.alive {
			return "hosts refuse each other"
		}
	}
	for _, h := range w.hosts {
		if why := h.illness(); why != "" && !h.gone && w.isMember(h.id) {
			return fmt.Sprintf("host %d: %s", h.id, why)
		}
	}
	for _, g := range w.ghosts {
		if why := w.groupIllness(g); why != "" {
			return fmt.Sprintf("group %d: %s", g.id, why)
		}
	}
	return ""
}

// isMember reports whether a host is a member of a group.
func (w *world) isMember(id uint64) bool {
	for _, g := range w.ghosts {
		if g.has(id) {
			return true
		}
	}
	return false
}

func (h *machine) illness() string {
	now, l := h.w.now, h.alive
	switch {
	case l == nil || l.process == nil || l.failed:
		return "it does not run"
	case h.isTroubled() || h.isShort() || h.slowDisk > 0 || max(h.stallUntil, h.readsUntil) > now:
		return "its disk"
	case l.isMoved:
		return "its directory"
	case h.machineUntil > now:
		return "its state machine"
	case h.clock.drift != 1 || h.stops > 0 || h.pausedUntil > now:
		return "its clock, or it is paused"
	case h.ghosts != nil:
		return "it is of another cluster"
	}
	return ""
}

func (w *world) groupIllness(g *ghost) (why string) {
	leads := w.leading(g.id)
	if leads == nil {
		return "no leader"
	}
	led, members := leads.group.Status(), leads.group.Members()
	if !members.Founded || members.Plan != "" || len(members.Outgoing) > 0 {
		return "not founded, or a plan is under way"
	}
	if _, own := g.entries[position{min(led.Committed, led.Durable), led.Term}]; !own {
		return leads.name + " has committed nothing of its term"
	}
	for _, h := range w.hosts {
		if h.gone || !g.has(h.id) {
			continue
		}
		r := w.replicaOf(h.id, g.id)
		if r == nil || r.closing || r.group.Err() != nil || r.group.Halted() != nil {
			return fmt.Sprintf("host %d is not there", h.id)
		}
		if s := r.group.Status(); s.Term != led.Term || s.Leader != leads.life.host.id || s.WithoutAuthority || (s.Role == event.RoleLeader) != (r == leads) {
			return r.name + " does not follow, or lacks something"
		}
	}
	return ""
}
