package examination

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/identity"
)

// findLeader finds a group without a leader for more than two election timeouts.
func (e *examination) findLeader() {
	since := e.Leaderless
	if since < 0 || e.Now-since <= e.Bounds.Wait() || !e.isFounded() {
		return
	}
	heardSince := map[uint64]int64{}
	var heard []uint64
	var unheard []string
	for _, id := range e.voters() {
		switch silent, ever := e.silence(id, 0); {
		case id == e.Host:
			heard, heardSince[id] = append(heard, id), 0
		case silent <= e.Bounds.Unheard():
			heard, heardSince[id] = append(heard, id), e.peer(id).HeardSince
		case !ever:
			unheard = append(unheard, fmt.Sprintf("host %d was not heard since this host has started, %v ago", id, e.text(silent)))
		default:
			unheard = append(unheard, fmt.Sprintf("host %d was heard %v ago", id, e.text(silent)))
		}
	}
	if !e.isQuorum(heard) {
		e.found(diagnosis.CodeNoQuorum, 0, since, "start the hosts that are down, or mend the network between them and this host; nothing is committed before",
			"no leader is known, and %s: %s", e.lackedQuorum(heard), strings.Join(unheard, "; "))
		return
	}
	if since = max(since, e.quorumSince(heardSince)); e.Now-since <= e.Bounds.Wait() {
		return // they have just found each other, and elect a leader
	}
	e.found(diagnosis.CodeNoLeader, 0, since, "ask Explain on the hosts that are heard: one may follow a leader whose messages do not arrive here; their disks may be full or slower than an election timeout, their groups may have stopped, or the network loses what they send",
		"hosts %v are heard, a quorum of %s, and yet this member knows no leader; it has reached term %d", heard, e.votersText(), e.Status.Term)
}

// findMembers finds what is wrong with the followers of this leader.
func (e *examination) findMembers() {
	leads := e.Leads
	if leads < 0 || e.Status.Role != event.RoleLeader || !e.isFounded() {
		return
	}
	views := e.followers()
	for _, id := range e.Members {
		if id == e.Host || e.isRefused(id) {
			continue
		}
		if silent, ever := e.silence(id, leads); silent > e.Bounds.Unheard() {
			when := ""
			switch {
			case !e.peer(id).Known:
				when = fmt.Sprintf(": this host knows %d others, the most that it can, and cannot reach it", identity.MaxHosts)
			case !ever:
				when = ", since this host has started"
			}
			meanwhile := "one member less can fail meanwhile"
			if !slices.Contains(e.voters(), id) {
				meanwhile = "it is a learner, so the group commits without it"
			}
			e.found(diagnosis.CodeMemberUnreachable, id, e.Now-silent, fmt.Sprintf("start host %d, or mend the network between it and this host; %s", id, meanwhile),
				"nothing has come from host %d for %v%s", id, e.text(silent), when)
			continue
		}
		if i := slices.IndexFunc(views, func(v Follower) bool { return v.ID == id }); i >= 0 {
			e.judgeMember(&views[i])
		}
	}
}

// isRefused reports whether a member is not heard because of its identity or certificate, or this one's.
func (e *examination) isRefused(id uint64) bool {
	return slices.ContainsFunc(e.d.Causes, func(c diagnosis.Cause) bool {
		return (c.Code == diagnosis.CodeIdentityRefused || c.Code == diagnosis.CodeCertificateRefused) && c.Member == id
	})
}

// judgeMember judges a follower whose host is heard. The turn that has looked at it last was at v.At.
func (e *examination) judgeMember(v *Follower) {
	silent, _ := e.silence(v.ID, 0)
	isHeard := silent <= e.Bounds.Election+2*e.Bounds.Heartbeat
	silentSince := max(v.ActiveAt, e.peer(v.ID).HeardSince)
	switch {
	case isHeard && v.At-silentSince > e.Bounds.Wait():
		e.found(diagnosis.CodeMemberSilent, v.ID, silentSince, fmt.Sprintf("ask Explain on host %d: its group may have stopped, may not be open there, its turns hang, or what this host sends does not arrive there", v.ID),
			"host %d is heard, and its member of this group has answered nothing for %v; it is %d entries behind", v.ID, e.text(v.At-silentSince), v.Behind)
	case v.At-v.ActiveAt > e.Bounds.Wait() || v.Behind == 0: // it has just come back, or its host has just gone; or it is level
	case v.ReadingSince >= 0 && v.At-v.ReadingSince > e.Bounds.Election/2: // its entries are being read here
	case e.cannotSendTo(v):
	case v.Snapshot > 0 && (v.Slow || v.At-v.AckedAt > e.Bounds.Wait()):
		e.found(diagnosis.CodeSlowMember, v.ID, v.SnapshotAt, fmt.Sprintf("wait: it takes as long as its network and its state machine need; Explain on host %d says what hangs there, and its log what it refuses", v.ID),
			"host %d is %d entries behind, and needs the snapshot through entry %d: it is sent, or host %d restores it, for %v", v.ID, v.Behind, v.Snapshot, v.ID, e.text(v.At-v.SnapshotAt))
	case v.Slow:
		e.found(diagnosis.CodeSlowMember, v.ID, v.LevelAt, fmt.Sprintf("if host %d has just started, it catches up: wait; if not, look at its disk, its processor and the network to it", v.ID),
			"host %d is %d entries behind, for %v; it has acknowledged entry %d, %v ago", v.ID, v.Behind, e.text(v.At-v.LevelAt), v.Match, e.text(v.At-v.AckedAt))
	case v.At-v.AckedAt > max(2*e.Bounds.Wait(), e.Bounds.Stall+e.Bounds.Wait()):
		e.found(diagnosis.CodeDiskStalled, v.ID, v.AckedAt, fmt.Sprintf("ask Explain on host %d: its disk hangs or is full, or it has no memory for entries; if it names no cause, the network loses large packets", v.ID),
			"host %d answers heartbeats, has acknowledged no entry for %v, and is %d entries behind", v.ID, e.text(v.At-v.AckedAt), v.Behind)
	case v.At-v.AckedAt > 2*e.Bounds.Wait(): // a disk may take as long (Config.StallTimeout)
		e.found(diagnosis.CodeSlowMember, v.ID, v.AckedAt, fmt.Sprintf("ask Explain on host %d: its disk may be slow, or full, or it has no memory for entries", v.ID),
			"host %d answers heartbeats, has acknowledged no entry for %v (Config.StallTimeout is %v), and is %d entries behind", v.ID, e.text(v.At-v.AckedAt), e.Config.StallTimeout, v.Behind)
	}
}

// followers returns what the latest turn of this leader has seen of its followers. While the group is
// asleep, pulses are enough to know that all are well.
func (f *Facts) followers() []Follower {
	if f.Status.Role != event.RoleLeader {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.Followers), func(v Follower) bool { return f.Now-v.At > f.Bounds.Wait() })
}

// cannotSendTo finds a follower that is behind while messages to it are dropped here, again and again.
func (e *examination) cannotSendTo(v *Follower) bool {
	u := e.peer(v.ID).Unsent
	if u.N < 2 || e.Now-u.Latest > e.Bounds.Wait() || !v.Slow && v.At-v.AckedAt <= e.Bounds.Wait() {
		return false
	}
	e.found(diagnosis.CodeNotSent, v.ID, u.Since,
		fmt.Sprintf("look at the network to host %d, which takes less than this host sends; if there is memory, raise Config.MemoryBytes of this host", v.ID),
		"%d times in %v, the latest %v ago, this host has dropped messages to host %d: its queue to that host has no space (at most %d bytes, of Config.MemoryBytes, %d); host %d is %d entries behind, and the next one that it needs is entry %d",
		u.N, e.text(u.Latest-u.Since), e.text(e.Now-u.Latest), v.ID, e.Config.QueueBytes, e.Config.MemoryBytes, v.ID, v.Behind, v.Match+1)
	return true
}

// findPlacement finds a group whose leader should be elsewhere, and was moved too often.
func (e *examination) findPlacement() {
	if s := &e.Placement; s.Wants != 0 && s.Recent >= s.Most {
		e.found(diagnosis.CodePlacementRests, s.Wants, e.Now, "give all members the same Placement (SetPlacement), and look at the host of that member, and the network to it",
			"host %d should lead this group by the Placement of this member, and in the past %v the leadership was handed over for placement %d times, the most for a group", s.Wants, s.Window, s.Recent)
	}
}
