package examination

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/identity"
)

// What to do about a host that is refused because of its directory, its cluster or its key.
const (
	FixDirectory = "give the host that is refused its old directory back, or stop it if another host runs under its id; if the directory is lost, " + identity.ReplaceLost + "; never start it on a copy"
	FixCluster   = "correct the address, the list or the number that the sentence names; the directories of a cluster that has worked stay as they are"
	FixKey       = "if the certificate is the one that you have made, call Host.AcceptKey on each host that refuses it; if not, put the old one back, and find out who has made this one"
)

// lookForStop is the verdict on a group that does nothing any more.
func (e *examination) lookForStop() {
	fix := "find out why with the error and the log of this host, then close the group and open it again"
	switch e.Stop.Why {
	case StoppedByProgram:
		fix = "the program has closed it; open it again, or ignore this"
	case StoppedByRemoval:
		fix = "do what the error says; the group works without this host"
	case StoppedByFullDisk:
		fix = "make space, then start the host again"
	case StoppedByDisk:
		fix = "look at the disk and at the kernel's log, then start this host again; what it has acknowledged is safe on the others"
	case StoppedByDirectory:
		fix = "see \"identity refused\""
	}
	e.found(diagnosis.CodeStopped, 0, e.Stop.Since, fix, "the group has stopped on this host: %v", e.Stop.Err)
	if e.Stop.Directory {
		e.found(diagnosis.CodeIdentityRefused, 0, e.Stop.Since, FixDirectory, "%v", e.Stop.Err)
	}
}

// lookForIdentity finds hosts that refuse this one, and members that this one refuses.
func (e *examination) lookForIdentity() {
	for _, id := range e.Members {
		p := e.peer(id)
		if r := p.RefusedBy; r != nil {
			e.found(diagnosis.CodeIdentityRefused, id, r.Since, FixDirectory, "host %d refuses this host: %s", id, r.Why)
		}
		if r := e.refused(p); r != nil {
			e.found(diagnosis.CodeIdentityRefused, id, r.Since, r.Fix, "this host refuses host %d, which speaks from %s: %s", id, r.Remote, r.Why)
		}
	}
	for _, id := range e.Founding.Refused {
		if silent, ever := e.silence(id, 0); !ever || silent > e.Bounds.Refused() {
			continue // it came with that directory once; now it does not come
		}
		e.found(diagnosis.CodeIdentityRefused, id, e.DirectoriesSince, FixDirectory,
			"the host of member %d comes with directory %v, and the group is bound to another one", id, e.peer(id).Directory)
	}
}

// refused returns why this host refuses another one, if it has lately.
func (f *Facts) refused(p *Peer) *Refusal {
	if r := p.Refused; r.Lasts(f.Now, f.Bounds) {
		return r
	}
	return nil
}

// lookForCertificates finds members with which this host does not speak because of a certificate.
func (e *examination) lookForCertificates() {
	for _, id := range e.Members {
		c := e.peer(id).Certificate
		if silent, _ := e.silence(id, 0); c == nil || e.Now-c.Latest > e.Bounds.Refused() || silent <= e.Bounds.Unheard() {
			continue
		}
		if c.ByPeer {
			e.found(diagnosis.CodeCertificateRefused, id, c.Since,
				fmt.Sprintf("renew the certificate of this host, or make host %d trust its CA; no restart is needed", id),
				"host %d refuses the certificate of this host: %v", id, c.Err)
			continue
		}
		e.found(diagnosis.CodeCertificateRefused, id, c.Since,
			fmt.Sprintf("renew the certificate of host %d, or make this host trust its CA; no restart is needed", id),
			"this host refuses a certificate of host %d, which speaks from %s: %v", id, c.Remote, c.Err)
	}
}

// lookForFounding finds a group that is not founded although two election timeouts have passed.
func (e *examination) lookForFounding() {
	f := &e.Founding
	if f.Founded && !f.Joins || e.Now-e.Opened <= e.Bounds.Wait() {
		return
	}
	if f.Joins {
		e.found(diagnosis.CodeNotAdded, 0, e.Opened, "make a join token on a member (NewJoinToken) and start this host with it, or plan on a member to add this host, or to replace its old directory (Plan)",
			"group %d %v", e.Group, f)
		return
	}
	e.found(diagnosis.CodeNotFounded, 0, e.Opened, f.Fix(), "group %d %v", e.Group, f)
}

// isFounded reports whether the group takes commands. What members do before that is part of the founding.
func (e *examination) isFounded() bool { return e.Founding.Founded }

// lookForAuthority finds a member without authority: this one or, on a leader, another.
func (e *examination) lookForAuthority() {
	if e.Authority != nil {
		fix := "wait: it is fed by the leader; the events and the log of this host say when it has authority again"
		s := e.Status
		why := fmt.Sprintf("the log of this host may lack what it has acknowledged, so it neither votes nor counts; it holds the log through %d", s.Durable)
		switch {
		case s.Leader == 0:
			fix = "start the other members: a leader and a quorum without this member are needed; if they are lost for good, " +
				"stop this host and accept the loss with \"millrace wal repair --write --accept-loss " + e.Config.LogDir + "\""
		case e.Authority.Unmet:
			fix = "start the other members: this log was repaired, so all voters must be heard once"
		}
		e.found(diagnosis.CodeWithoutAuthority, 0, e.Authority.LostAt, fix, "%s", why)
	}
	for _, v := range e.followers() {
		if v.LostSince >= 0 {
			e.found(diagnosis.CodeWithoutAuthority, v.ID, v.LostSince, "keep the other members running until it has caught up; Explain on that host says what it waits for",
				"the log of host %d may lack what it has acknowledged, so it neither votes nor counts; it holds the log through %d", v.ID, v.Match)
		}
	}
}

// lookForSettings finds members with other settings than this one.
func (e *examination) lookForSettings() {
	for _, id := range e.Members {
		p := e.peer(id)
		var differ, names []string
		for _, s := range p.Settings {
			if s.Theirs != s.Ours {
				names = append(names, s.Name)
				differ = append(differ, fmt.Sprintf("%s is %v on host %d and %v on host %d", s.Name, s.Theirs, id, s.Ours, e.Host))
			}
		}
		if len(differ) > 0 {
			e.found(diagnosis.CodeSettingsDiffer, id, p.SettingsAt,
				fmt.Sprintf("give all members the same %s, and restart those that have another one", strings.Join(names, " and ")),
				"%s: a member with a short timeout does not wait for a leader with a long one, so leaders may change again and again", strings.Join(differ, ", "))
		}
	}
}

// lookForPauses finds a process that did not run.
func (e *examination) lookForPauses() {
	p, timeout := &e.Pauses, e.Bounds.Election
	if p.Longest < max(timeout/2, 1) && p.Missed < timeout {
		return
	}
	e.add(diagnosis.Cause{
		Code: diagnosis.CodePaused, Since: e.duration(p.Since),
		Evidence: fmt.Sprintf("in the last %v this process did not run for %v in all, in %d pauses of which the longest took %v; a clock that runs too fast or too slow cannot be seen from here",
			e.text(e.Bounds.Paused()), e.text(p.Missed), p.N, e.text(p.Longest)),
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
	m := &e.Load
	shares := fmt.Sprintf("of the shares of Config.MemoryBytes (%d), waiting commands use %d of %d bytes, proposed ones %d of %d, received messages %d of %d, entries for the disk %d of %d; one group gets half of a share at most",
		e.Config.MemoryBytes, m.Waiting.Used, m.Waiting.Share, m.Proposed.Used, m.Proposed.Share, m.Received.Used, m.Received.Share, m.Writing.Used, m.Writing.Share)
	if r := m.Commands; r.N > 0 && e.Now-r.Latest <= e.Bounds.Wait() {
		e.found(diagnosis.CodeOverloaded, 0, r.Since, "propose less at a time, or spread the commands over more groups and hosts; if there is memory, raise Config.MemoryBytes",
			"%d commands were refused with ErrOverloaded, the latest %v ago; %s", r.N, e.text(e.Now-r.Latest), shares)
	}
	if r := m.Messages; r.N > 0 && e.Now-r.Latest <= e.Bounds.Wait() && r.Latest-r.Since > e.Bounds.Wait() {
		e.found(diagnosis.CodeOverloaded, 0, r.Since, "look at the disk and the processor of this host, which is slower than its leader; if there is memory, raise Config.MemoryBytes",
			"%d messages of other members were dropped for lack of memory, the latest %v ago; %s", r.N, e.text(e.Now-r.Latest), shares)
	}
}
