package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// This file looks for each cause of explain.go. What the causes are seen by is collected in explainwatch.go.

// explainStopped is the verdict on a group that does nothing any more.
func (e *examination) explainStopped(err error) {
	fix := "find out why with the error and the log of this host, then close the group and open it again"
	var refused *refusedDirectoryError
	switch {
	case errors.Is(err, ErrStopped), errors.Is(err, ErrRemoved):
		fix = "the program has closed it; open it again, or ignore this"
	case errors.Is(err, ErrMemberRemoved):
		fix = "do what the error says; the group works without this host"
	case errors.Is(err, wal.ErrDiskFull):
		fix = "make space, then start the host again"
	case e.host.storage.lane.Failed():
		fix = "look at the disk and at the kernel's log, then start this host again; what it has acknowledged is safe on the others"
	case errors.As(err, &refused):
		fix = "see \"identity refused\""
	}
	since := e.life.roleTimes.stopped.Load()
	e.found(diagnosis.CodeStopped, 0, since, fix, "the group has stopped on this host: %v", err)
	if refused != nil {
		e.found(diagnosis.CodeIdentityRefused, 0, since, fixDirectory, "%v", err)
	}
}

// What to do about a host that is refused because of its directory, its cluster or its key.
const (
	fixDirectory = "give the host that is refused its old directory back, or stop it if another host runs under its id; if the directory is lost, " + identity.ReplaceLost + "; never start it on a copy"
	fixCluster   = "correct the address, the list or the number that the sentence names; the directories of a cluster that has worked stay as they are"
	fixKey       = "if the certificate is the one that you have made, call Host.AcceptKey on each host that refuses it; if not, put the old one back, and find out who has made this one"
)

// lookForIdentity finds hosts that refuse this one, and members that this one refuses.
func (e *examination) lookForIdentity() {
	for _, id := range e.memberIDs() {
		p := e.host.network.handshakes.of(id)
		if p == nil {
			continue
		}
		if why := p.refuses.Load(); why != nil {
			e.found(diagnosis.CodeIdentityRefused, id, p.refusesSince.Load(), fixDirectory, "host %d refuses this host: %s", id, *why)
		}
		if r, ok := e.host.reports.watch.refusedHost(id, e.now, e.host.config.refusedTicks()); ok {
			e.found(diagnosis.CodeIdentityRefused, id, r.since, r.fix, "this host refuses host %d, which speaks from %s: %s", id, r.remote, r.why)
		}
	}
	for _, id := range e.Founding().Refused {
		if silent, ever := e.silence(id, 0); !ever || silent > e.host.config.refusedTicks() {
			continue // it came with that directory once; now it does not come
		}
		came, _ := e.host.trust.admission.Incarnation(id)
		e.found(diagnosis.CodeIdentityRefused, id, e.members.refusesSince.Load(), fixDirectory,
			"the host of member %d comes with directory %v, and the group is bound to another one", id, came)
	}
}

// A host that is refused comes again after the longest pause of a transport, a second. So a refusal that was
// not repeated for refusedTimeouts has ended. An operator who looks for what has stopped a process comes
// later: a pause is named for pausedTimeouts after it. Both are in election timeouts.
const (
	refusedTimeouts = 8
	pausedTimeouts  = 20
)

// refusedTicks is how long a refusal is a cause after it was seen.
func (c Config) refusedTicks() int64 { return refusedTimeouts * int64(c.electionTicks()) }

// lookForFounding finds a group that is not founded although two election timeouts have passed.
func (e *examination) lookForFounding() {
	f, opened := e.Founding(), e.life.roleTimes.opened.Load()
	if f.Founded && !f.Joins || e.now-opened <= e.waitBound() {
		return
	}
	if f.Joins {
		e.found(diagnosis.CodeNotAdded, 0, opened, "make a join token on a member (NewJoinToken) and start this host with it, or plan on a member to add this host, or to replace its old directory (Plan)",
			"%s", strings.TrimPrefix((&NotFoundedError{Group: e.id, Founding: f}).Error(), "millrace: "))
		return
	}
	e.found(diagnosis.CodeNotFounded, 0, opened, f.Fix(), "%s", strings.TrimPrefix((&NotFoundedError{Group: e.id, Founding: f}).Error(), "millrace: "))
}

// isFounded reports whether the group takes commands. What members do before that is part of the founding.
func (e *examination) isFounded() bool { return e.Founding().Founded }

// lookForFullDisk finds a disk that refuses this group's entries.
func (e *examination) lookForFullDisk() {
	q := e.Group.writes.append
	if !q.Full.Load() {
		return
	}
	text, fix := "no space", "make space on the disk of this host's directory; the host continues by itself"
	since, because := q.Refusal()
	if because != nil {
		text = because.Error()
		if vfs.IsShort(because) {
			fix = "let the process open more files (ulimit -n, LimitNOFILE), or end what holds the machine's; the host continues by itself"
		}
	}
	e.found(diagnosis.CodeDiskFull, 0, since, fix,
		"the log refuses entries, and %d bytes of them wait in memory: %s; the member votes and accepts nothing else", q.Held(), text)
}

// lookForStalledDisk finds an append lane that completes nothing, and reads for followers that do not return.
func (e *examination) lookForStalledDisk() {
	const fix = "look at the disk of this host's directory: its latency, the kernel's log, other programs that use it; if it does not recover, stop the host"
	bound := e.host.config.stallTicks()
	if since, stalls := e.host.reports.watch.stalledDisk(e.host.storage.lane, e.now); stalls && e.now-since > bound {
		s := e.host.storage.log.Stats()
		e.found(diagnosis.CodeDiskStalled, 0, since, fix,
			"the oldest write of this host has waited for %v (Config.StallTimeout is %v), and %d bytes wait with it; %d syncs were completed before",
			diagnosis.Rounded(e.duration(e.now-since)), e.host.config.StallTimeout, e.host.memory.writing.Used(), s.Syncs)
		return
	}
	for _, v := range e.memberViews() {
		if v.readingSince >= 0 && e.now-v.readingSince > bound {
			e.found(diagnosis.CodeDiskStalled, 0, v.readingSince, fix,
				"a read of old entries for host %d has waited for %v (Config.StallTimeout is %v)", v.id, diagnosis.Rounded(e.duration(e.now-v.readingSince)), e.host.config.StallTimeout)
			return
		}
	}
}

// lookForSlowDisk finds writes that take longer than an election timeout and do not count as stalled. They
// are judged one by one: a disk that takes much at a time works.
func (e *examination) lookForSlowDisk() {
	if slices.ContainsFunc(e.d.Causes, func(c diagnosis.Cause) bool { return c.Code == diagnosis.CodeDiskStalled && c.Member == 0 }) {
		return
	}
	const fix = "look at the disk of this host's directory: its latency, the kernel's log, other programs that use it; commands of the groups that this host leads take as long"
	slow := e.host.reports.watch.slowTicks
	if since, waits := e.host.reports.watch.stalledDisk(e.host.storage.lane, e.now); waits && e.now-since > slow {
		e.found(diagnosis.CodeDiskSlow, 0, since, fix, "the oldest write of this host has waited for %v (Config.ElectionTimeout is %v, Config.StallTimeout %v)",
			diagnosis.Rounded(e.duration(e.now-since)), e.host.config.ElectionTimeout, e.host.config.StallTimeout)
		return
	}
	if s, is := e.host.reports.watch.slowDisk(e.now, slow); is {
		e.found(diagnosis.CodeDiskSlow, 0, s.since, fix, "%d writes or syncs of this host took longer than Config.ElectionTimeout (%v) in the last %v, the longest %v, and all were completed (Config.StallTimeout is %v)",
			s.n, e.host.config.ElectionTimeout, diagnosis.Rounded(e.duration(e.now-s.since)), diagnosis.Rounded(e.duration(s.longest)), e.host.config.StallTimeout)
	}
}

// lookForStuckApply finds a state machine that holds its lane, or the turn, and a group that waits for a
// lane.
func (e *examination) lookForStuckApply() {
	const fix = "take the stacks of this process (SIGQUIT) and look for Apply, or for the function of a read (StartBetween, Do): it waits for a lock, a disk or a network; the other groups and members go on"
	bound, next := e.host.config.stallTicks(), e.d.Status.Applied+1
	if ran, hangs := e.seat.Runs(); hangs && e.host.env.pipeline.AsyncStorageWrites() {
		if ticks := int64(ran / e.host.config.tickPeriod()); ticks > bound {
			e.found(diagnosis.CodeApplyStuck, 0, e.now-ticks, fix,
				"a turn of the group has run for %v, and entry %d is the next to apply: the state machine is declared NonBlocking (GroupConfig) and blocks", diagnosis.Rounded(ran), next)
		}
		return
	}
	s := e.host.appliers.StateOf(&e.machine.apply.seat)
	if !s.Waits || e.now-s.Since <= bound {
		return
	}
	if s.Running {
		e.found(diagnosis.CodeApplyStuck, 0, s.Since, fix,
			"a call of the state machine for entry %d and later ones has run for %v (Config.StallTimeout is %v), and committed entries through %d wait; of this host's %d apply lanes %d hang, and %d were started in their place",
			next, diagnosis.Rounded(e.duration(e.now-s.Since)), e.host.config.StallTimeout, e.d.Status.Committed, s.Lanes, s.Hung, s.Substitutes)
		return
	}
	e.found(diagnosis.CodeApplyStuck, 0, s.Since, fix,
		"entry %d and later ones have waited for an apply lane for %v (Config.StallTimeout is %v); of this host's %d apply lanes %d hang in state machines, and %d were started in their place",
		next, diagnosis.Rounded(e.duration(e.now-s.Since)), e.host.config.StallTimeout, s.Lanes, s.Hung, s.Substitutes)
}

// lookForLackingObject finds a machine that waits for a large object.
func (e *examination) lookForLackingObject() {
	p := e.machine.apply.parked.Load()
	if p == nil || e.now-p.since <= e.host.config.stallTicks() {
		return
	}
	text := "other members have it, or a snapshot that is beyond the entry"
	if e.machine.apply.lost.Load() == p.index {
		text = "no member that was asked has it, and the leader was asked for a snapshot that is beyond the entry"
	}
	e.found(diagnosis.CodeObjectLacking, 0, p.since, "look at the disk of this host (ObjectOptions.ReserveBytes) and at the network to the members that hold the object; the machine continues by itself",
		"entry %d names object %v, which this host has not fetched for %v; %s", p.index, e.machine.objects.Awaits(), diagnosis.Rounded(e.duration(e.now-p.since)), text)
}

// lookForLeader finds a group without a leader for more than two election timeouts.
func (e *examination) lookForLeader() {
	since := e.life.roleTimes.leaderless.Load()
	if since < 0 || e.now-since <= e.waitBound() || !e.isFounded() {
		return
	}
	heardSince := map[uint64]int64{}
	var heard []uint64
	var unheard []string
	for _, id := range e.voters() {
		switch silent, ever := e.silence(id, 0); {
		case id == e.self:
			heard, heardSince[id] = append(heard, id), 0
		case silent <= e.unheardBound():
			heard, heardSince[id] = append(heard, id), e.host.network.handshakes.heardSince(id)
		case !ever:
			unheard = append(unheard, fmt.Sprintf("host %d was not heard since this host has started, %v ago", id, diagnosis.Rounded(e.duration(silent))))
		default:
			unheard = append(unheard, fmt.Sprintf("host %d was heard %v ago", id, diagnosis.Rounded(e.duration(silent))))
		}
	}
	if !e.isQuorum(heard) {
		e.found(diagnosis.CodeNoQuorum, 0, since, "start the hosts that are down, or mend the network between them and this host; nothing is committed before",
			"no leader is known, and %s: %s", e.lackedQuorum(heard), strings.Join(unheard, "; "))
		return
	}
	if since = max(since, e.quorumSince(heardSince)); e.now-since <= e.waitBound() {
		return // they have just found each other, and elect a leader
	}
	e.found(diagnosis.CodeNoLeader, 0, since, "ask Explain on the hosts that are heard: one may follow a leader whose messages do not arrive here; their disks may be full or slower than an election timeout, their groups may have stopped, or the network loses what they send",
		"hosts %v are heard, a quorum of %s, and yet this member knows no leader; it has reached term %d", heard, e.votersText(), e.d.Status.Term)
}

// silence returns for how long a host was not heard, in ticks, and whether it was heard in this life. What it
// did before a tick does not count against it.
func (e *examination) silence(id uint64, before int64) (ticks int64, ever bool) {
	p := e.host.network.handshakes.of(id)
	if p == nil {
		return e.now - before, false
	}
	return e.now - max(p.heardAt.Load(), before), p.met.Load()
}

// lookForMembers finds what is wrong with the followers of this leader.
func (e *examination) lookForMembers() {
	leads := e.life.roleTimes.leads.Load()
	if leads < 0 || e.d.Status.Role != event.RoleLeader || !e.isFounded() {
		return
	}
	views := e.memberViews()
	for _, id := range e.memberIDs() {
		if id == e.self || e.isRefused(id) {
			continue
		}
		if silent, ever := e.silence(id, leads); silent > e.unheardBound() {
			when := ""
			switch {
			case e.host.network.handshakes.of(id) == nil:
				when = fmt.Sprintf(": this host knows %d others, the most that it can, and cannot reach it", identity.MaxHosts)
			case !ever:
				when = ", since this host has started"
			}
			meanwhile := "one member less can fail meanwhile"
			if !slices.Contains(e.voters(), id) {
				meanwhile = "it is a learner, so the group commits without it"
			}
			e.found(diagnosis.CodeMemberUnreachable, id, e.now-silent, fmt.Sprintf("start host %d, or mend the network between it and this host; %s", id, meanwhile),
				"nothing has come from host %d for %v%s", id, diagnosis.Rounded(e.duration(silent)), when)
			continue
		}
		if i := slices.IndexFunc(views, func(v memberView) bool { return v.id == id }); i >= 0 {
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

// judgeMember judges a follower whose host is heard. The turn that has looked at it last was at v.at.
func (e *examination) judgeMember(v *memberView) {
	silent, _ := e.silence(v.id, 0)
	isHeard := silent <= int64(e.host.config.electionTicks())+2*ticksPerHeartbeat
	silentSince := max(v.activeAt, e.host.network.handshakes.heardSince(v.id))
	switch {
	case isHeard && v.at-silentSince > e.waitBound():
		e.found(diagnosis.CodeMemberSilent, v.id, silentSince, fmt.Sprintf("ask Explain on host %d: its group may have stopped, may not be open there, its turns hang, or what this host sends does not arrive there", v.id),
			"host %d is heard, and its member of this group has answered nothing for %v; it is %d entries behind", v.id, diagnosis.Rounded(e.duration(v.at-silentSince)), v.behind)
	case v.at-v.activeAt > e.waitBound() || v.behind == 0: // it has just come back, or its host has just gone; or it is level
	case v.readingSince >= 0 && v.at-v.readingSince > int64(e.host.config.electionTicks()/2): // its entries are being read here
	case e.cannotSendTo(v):
	case v.snapshot > 0 && (v.slow || v.at-v.ackedAt > e.waitBound()):
		e.found(diagnosis.CodeSlowMember, v.id, v.snapshotAt, fmt.Sprintf("wait: it takes as long as the network and the state machine of host %d need for a snapshot; what hangs there is said by Explain there", v.id),
			"host %d is %d entries behind, and needs the snapshot through entry %d: it is sent, or host %d restores it, for %v", v.id, v.behind, v.snapshot, v.id, diagnosis.Rounded(e.duration(v.at-v.snapshotAt)))
	case v.slow:
		e.found(diagnosis.CodeSlowMember, v.id, v.levelAt, fmt.Sprintf("if host %d has just started, it catches up: wait; if not, look at its disk, its processor and the network to it", v.id),
			"host %d is %d entries behind, for %v; it has acknowledged entry %d, %v ago", v.id, v.behind, diagnosis.Rounded(e.duration(v.at-v.levelAt)), v.match, diagnosis.Rounded(e.duration(v.at-v.ackedAt)))
	case v.at-v.ackedAt > max(2*e.waitBound(), e.host.config.stallTicks()+e.waitBound()):
		e.found(diagnosis.CodeDiskStalled, v.id, v.ackedAt, fmt.Sprintf("ask Explain on host %d: its disk hangs or is full, or it has no memory for entries; if it names no cause, the network loses large packets", v.id),
			"host %d answers heartbeats, has acknowledged no entry for %v, and is %d entries behind", v.id, diagnosis.Rounded(e.duration(v.at-v.ackedAt)), v.behind)
	case v.at-v.ackedAt > 2*e.waitBound(): // a disk may take as long (Config.StallTimeout)
		e.found(diagnosis.CodeSlowMember, v.id, v.ackedAt, fmt.Sprintf("ask Explain on host %d: its disk may be slow, or full, or it has no memory for entries", v.id),
			"host %d answers heartbeats, has acknowledged no entry for %v (Config.StallTimeout is %v), and is %d entries behind", v.id, diagnosis.Rounded(e.duration(v.at-v.ackedAt)), e.host.config.StallTimeout, v.behind)
	}
}

// memberViews returns what the latest turn of this leader has seen of its followers. While the group is
// asleep, pulses are enough to know that all are well.
func (e *examination) memberViews() []memberView {
	if e.d.Status.Role != event.RoleLeader {
		return nil
	}
	views := e.life.views.load()
	return slices.DeleteFunc(views, func(v memberView) bool { return e.now-v.at > e.waitBound() })
}

// lookForPauses finds a process that did not run.
func (e *examination) lookForPauses() {
	timeout := int64(e.host.config.electionTicks())
	within := pausedTimeouts * timeout
	n, missed, longest, since := e.host.reports.watch.paused(e.host.clock.latest().ticks, within)
	if longest < max(timeout/2, 1) && missed < timeout {
		return
	}
	e.add(diagnosis.Cause{
		Code: diagnosis.CodePaused, Since: e.duration(since),
		Evidence: fmt.Sprintf("in the last %v this process did not run for %v in all, in %d pauses of which the longest took %v; a clock that runs too fast or too slow cannot be seen from here",
			diagnosis.Rounded(e.duration(within)), diagnosis.Rounded(e.duration(missed)), n, diagnosis.Rounded(e.duration(longest))),
		Fix: "look for what stops the process: too few processors or a quota (throttling), swapping, a suspended virtual machine, SIGSTOP, long collections of garbage",
	})
}

// lookForOverload finds a group that refuses commands for lack of memory, or entries of its leader, and
// no other cause of that.
func (e *examination) lookForOverload() {
	for _, c := range []diagnosis.Code{diagnosis.CodeDiskFull, diagnosis.CodeDiskStalled, diagnosis.CodeApplyStuck, diagnosis.CodeNoQuorum, diagnosis.CodeNoLeader} {
		if e.d.Has(c) {
			return
		}
	}
	m := e.host.Memory()
	shares := fmt.Sprintf("of the shares of Config.MemoryBytes (%d), waiting commands use %d of %d bytes, proposed ones %d of %d, received messages %d of %d, entries for the disk %d of %d; one group gets half of a share at most",
		e.host.config.MemoryBytes, m.Waiting.Used, m.Waiting.Share, m.Proposed.Used, m.Proposed.Share, m.Received.Used, m.Received.Share, m.Writing.Used, m.Writing.Share)
	if since, latest, n := e.proposals.overload.commands.load(); n > 0 && e.now-latest <= e.waitBound() {
		e.found(diagnosis.CodeOverloaded, 0, since, "propose less at a time, or spread the commands over more groups and hosts; if there is memory, raise Config.MemoryBytes",
			"%d commands were refused with ErrOverloaded, the latest %v ago; %s", n, diagnosis.Rounded(e.duration(e.now-latest)), shares)
	}
	if since, latest, n := e.proposals.overload.messages.load(); n > 0 && e.now-latest <= e.waitBound() && latest-since > e.waitBound() {
		e.found(diagnosis.CodeOverloaded, 0, since, "look at the disk and the processor of this host, which is slower than its leader; if there is memory, raise Config.MemoryBytes",
			"%d messages of other members were dropped for lack of memory, the latest %v ago; %s", n, diagnosis.Rounded(e.duration(e.now-latest)), shares)
	}
}
