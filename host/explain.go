package host

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft"
)

// Explain answers the question of an operator at night: what is wrong with this group, how does this host
// know, and what can be done? It reads what the host notes anyway, and asks no other host, so it answers
// while disks, state machines and other hosts hang. The price: a member sees only its own part. The leader
// sees its followers; a follower sees itself and its leader.
//
// A verdict that cries wolf is not read the second time. So each bound here is longer than what a healthy
// cluster does under full load, in an election, or asleep: mostly two election timeouts. A cause that has
// ended is not reported. What comes in bursts (refused connections) has ended when it did not come again for
// longer than it rests. A paused process is a warning about the past, and is named for a while.
//
// Rejected: a verdict from the events of the past. A listener that missed one would never know that its cause
// has ended.

// CauseCode names a cause of a Diagnosis.
type CauseCode string

// The causes, in the order in which a Diagnosis names them.
const (
	// CodeStopped: the group has stopped on this host.
	CodeStopped CauseCode = "stopped"
	// CodeIdentityRefused: a host refuses the directory of another one, so the two do not speak.
	CodeIdentityRefused CauseCode = "identity refused"
	// CodeCertificateRefused: two hosts do not speak, because one refuses the certificate of the other.
	CodeCertificateRefused CauseCode = "certificate refused"
	// CodeNotFounded: the group takes no commands, because members have not met.
	CodeNotFounded CauseCode = "not founded"
	// CodeNotAdded: this host waits to be added to the group.
	CodeNotAdded CauseCode = "not added"
	// CodeWithoutAuthority: a member may lack what it has acknowledged, and does not count until it has
	// caught up.
	CodeWithoutAuthority CauseCode = "without authority"
	// CodeDiskFull: this host's disk refuses entries.
	CodeDiskFull CauseCode = "disk full"
	// CodeDiskStalled: this host's disk completes nothing or, if Member is set, that of a follower seems to.
	CodeDiskStalled CauseCode = "disk stalled"
	// CodeApplyStuck: this host's state machine has not returned from Apply.
	CodeApplyStuck CauseCode = "apply stuck"
	// CodeObjectLacking: this host's state machine waits for a large object that a command names.
	CodeObjectLacking CauseCode = "object lacking"
	// CodeNoQuorum: no leader is known, and too few members are heard to elect one.
	CodeNoQuorum CauseCode = "no quorum"
	// CodeNoLeader: no leader is known, although enough members are heard.
	CodeNoLeader CauseCode = "no leader"
	// CodeMemberUnreachable: this host leads and does not hear the host of a follower.
	CodeMemberUnreachable CauseCode = "member unreachable"
	// CodeMemberSilent: this host leads and hears the host of a follower, but not its member of this group.
	CodeMemberSilent CauseCode = "member silent"
	// CodeSlowMember: this host leads, and a follower that works is far behind.
	CodeSlowMember CauseCode = "slow member"
	// CodeNotSent: this host leads, and has no space in its queue to the host of a follower that is behind.
	CodeNotSent CauseCode = "not sent"
	// CodeDiverged: members have applied the same commands and differ, as this host has found as the
	// leader, or its leader has told it.
	CodeDiverged CauseCode = "members differ"
	// CodeSnapshotFails: a snapshot of this host's state machine could not be taken, so the log grows.
	CodeSnapshotFails CauseCode = "snapshot fails"
	// CodeSnapshotHangs: a piece of work with a snapshot does not return.
	CodeSnapshotHangs CauseCode = "snapshot hangs"
	// CodeSnapshotStuck: a directory of a snapshot stays until this host is started again, as its sync failed.
	CodeSnapshotStuck CauseCode = "snapshot stuck"
	// CodePlacementRests: this host leads, another member should rather lead, and the leadership was handed
	// over for that so often that it stays for now.
	CodePlacementRests CauseCode = "placement rests"
	// CodeSettingsDiffer: a member has another HeartbeatInterval or ElectionTimeout than this one.
	CodeSettingsDiffer CauseCode = "settings differ"
	// CodeNotCompared: this host leads, and a member with the same CommandOptions.Version sums up results in
	// another form, or states on one side only. So differences between the two may not be noticed.
	CodeNotCompared CauseCode = "not compared"
	// CodePaused: this process did not run for a while.
	CodePaused CauseCode = "process paused"
	// CodeDiskSlow: a write or a sync of this host takes longer than an election timeout, and not as long as
	// Config.StallTimeout.
	CodeDiskSlow CauseCode = "disk slow"
	// CodeOverloaded: commands, or entries of the leader, are refused because the memory for them is used up.
	CodeOverloaded CauseCode = "overloaded"
)

// causeCodes are all codes, in the order in which a Diagnosis names them.
var causeCodes = []CauseCode{
	CodeStopped, CodeIdentityRefused, CodeCertificateRefused, CodeNotFounded, CodeNotAdded,
	CodeWithoutAuthority, CodeDiskFull, CodeDiskStalled, CodeMachineHalted, CodeApplyStuck, CodeObjectLacking,
	CodeNoQuorum, CodeNoLeader, CodeMemberUnreachable, CodeMemberSilent, CodeSlowMember,
	CodeNotSent, CodeDiverged, CodeSnapshotFails, CodeSnapshotHangs, CodeSnapshotStuck, CodePlacementRests,
	CodeSettingsDiffer, CodeNotCompared, CodePaused, CodeDiskSlow, CodeOverloaded,
}

// isWarning reports whether a group with this cause works: an operator should know it, and no probe should
// take the member out of service for it.
func (c CauseCode) isWarning() bool {
	switch c {
	case CodePaused, CodePlacementRests, CodeSettingsDiffer, CodeNotCompared, CodeDiskSlow, CodeSnapshotStuck:
		return true
	}
	return false
}

// Cause is one thing that is wrong with a group, as far as a member can see.
type Cause struct {
	Code CauseCode
	// Member is the member that the cause is about; 0 if it is this host, or the group as a whole.
	Member uint64
	// Since is for how long it has been so, in time in which this process ran; 0 if that is not known. It is
	// exact to about a heartbeat interval.
	Since time.Duration
	// Evidence is what this host has seen, with numbers. Fix is what an operator can do. Both are for people,
	// without a full stop at the end, and may change with any version.
	Evidence, Fix string
}

// Diagnosis is what one member can say about the health of its group.
type Diagnosis struct {
	Group, Host uint64
	Status      Status
	// Healthy means that there are no causes. Warnings do not count: the group works.
	Healthy          bool
	Causes, Warnings []Cause
	// Leaderless is for how long this host has known no leader; 0 if it knows one. An election takes up to
	// two election timeouts, and is no cause.
	Leaderless time.Duration
}

// Has reports whether a cause or a warning has the code.
func (d Diagnosis) Has(code CauseCode) bool {
	is := func(c Cause) bool { return c.Code == code }
	return slices.ContainsFunc(d.Causes, is) || slices.ContainsFunc(d.Warnings, is)
}

// String is a page for an operator: the verdict first, then each cause with its evidence and what to do, then
// the warnings.
func (d Diagnosis) String() string {
	var b strings.Builder
	switch n := len(d.Causes); n {
	case 0:
		fmt.Fprintf(&b, "group %d, seen from host %d: healthy%s\n", d.Group, d.Host, warned(len(d.Warnings)))
	case 1:
		fmt.Fprintf(&b, "group %d, seen from host %d: not healthy: %s\n", d.Group, d.Host, d.Causes[0].name())
	default:
		names := make([]string, n)
		for i := range d.Causes {
			names[i] = d.Causes[i].name()
		}
		fmt.Fprintf(&b, "group %d, seen from host %d: not healthy, %d causes: %s\n", d.Group, d.Host, n, strings.Join(names, ", "))
	}
	fmt.Fprintf(&b, "  %s\n", d.position())
	for i := range d.Causes {
		fmt.Fprintf(&b, "\n%d. %s", i+1, &d.Causes[i])
	}
	for i := range d.Warnings {
		fmt.Fprintf(&b, "\nwarning: %s", &d.Warnings[i])
	}
	if leader := d.Status.Leader; leader != raft.None && leader != d.Host {
		fmt.Fprintf(&b, "\nHost %d leads; it sees how far the other members are.\n", leader)
	}
	return b.String()
}

// String is the cause with its evidence and what to do, on three lines.
func (c *Cause) String() string {
	text := c.name()
	if c.Since > 0 {
		text += fmt.Sprintf(", for %v", rounded(c.Since))
	}
	return text + fmt.Sprintf("\n   what is seen: %s\n   what to do:   %s\n", c.Evidence, c.Fix)
}

// warned says how many warnings there are.
func warned(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", with a warning"
	}
	return fmt.Sprintf(", with %d warnings", n)
}

// name is the code, and the member if it is another one.
func (c *Cause) name() string {
	if c.Member != 0 {
		return fmt.Sprintf("%s (host %d)", c.Code, c.Member)
	}
	return string(c.Code)
}

// position is the state of the member in a line.
func (d Diagnosis) position() string {
	s := d.Status
	text := fmt.Sprintf("term %d", s.Term)
	switch {
	case d.Has(CodeStopped):
		text = "stopped in " + text
	case s.Role == event.RoleLeader:
		text = "leads in " + text
	case s.Leader != raft.None:
		text = fmt.Sprintf("follows host %d in %s", s.Leader, text)
	case d.Leaderless > 0 && d.Healthy:
		text = fmt.Sprintf("no leader is known for %v, as in any election; %s", rounded(d.Leaderless), text)
	default:
		text = "no leader is known; " + text
	}
	return fmt.Sprintf("%s; applied %d, committed %d, durable %d, last entry %d", text, s.Applied, s.Committed, s.Durable, s.LastIndex)
}

// rounded leaves three digits or so of a duration.
func rounded(d time.Duration) time.Duration {
	switch {
	case d > time.Minute:
		return d.Round(time.Second)
	case d > time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// examination is one call of Explain.
type examination struct {
	*Group
	now int64 // in ticks that were not missed
	d   Diagnosis
}

// symptoms are what Explain looks for, in order. A later one may depend on what an earlier one has found.
// What other files look for is added here.
var symptoms = []func(*examination){
	(*examination).lookForIdentity,
	(*examination).lookForCertificates,
	(*examination).lookForDivergence,
	(*examination).lookForFounding,
	(*examination).lookForAuthority,
	(*examination).lookForFullDisk,
	(*examination).lookForStalledDisk,
	(*examination).lookForHalted,
	(*examination).lookForStuckApply,
	(*examination).lookForLackingObject,
	(*examination).lookForLeader,
	(*examination).lookForMembers,
	(*examination).lookForSnapshots,
	(*examination).lookForStuckSnapshots,
	(*examination).lookForPlacement,
	(*examination).lookForSettings,
	(*examination).lookForUncompared,
	(*examination).lookForPauses,
	(*examination).lookForSlowDisk,
	(*examination).lookForOverload, // last: it is often a consequence of another cause
}

// Explain says what is wrong with the group as far as this host can see, since when, and what to do. A
// healthy group has no cause: also not under full load, in an election that takes less than two election
// timeouts, or while nothing happens. It never waits, neither for the group nor for a disk, and may be called
// at any time, also after Close, by any goroutine.
//
// What it cannot see: clocks that drift, and whatever only another member knows. So ask the leader first, and
// then the members that it names.
func (g *Group) Explain() Diagnosis {
	e := examination{Group: g, now: g.host.clock.lived()}
	e.d = Diagnosis{Group: g.id, Host: g.self, Status: g.Status()}
	if since := g.life.roleTimes.leaderless.Load(); since >= 0 && g.Err() == nil {
		e.d.Leaderless = max(e.duration(e.now-since), 1)
	}
	if err := g.Err(); err != nil {
		e.explainStopped(err)
	} else {
		for _, look := range symptoms {
			look(&e)
		}
	}
	e.d.Healthy = len(e.d.Causes) == 0
	return e.d
}

// found adds a cause. since is a tick that was not missed.
func (e *examination) found(code CauseCode, member uint64, since int64, fix, evidence string, args ...any) {
	e.add(Cause{
		Code: code, Member: member, Since: max(e.duration(e.now-since), 0),
		Evidence: fmt.Sprintf(evidence, args...), Fix: fix,
	})
}

// add puts a cause among the causes or the warnings.
func (e *examination) add(c Cause) {
	if c.Code.isWarning() {
		e.d.Warnings = append(e.d.Warnings, c)
		return
	}
	e.d.Causes = append(e.d.Causes, c)
}

// duration converts ticks.
func (e *examination) duration(ticks int64) time.Duration {
	return time.Duration(ticks) * e.host.config.tickPeriod()
}

// waitBound is how long a healthy member may take for what others wait for.
func (e *examination) waitBound() int64 { return e.host.config.waitTicks() }

// unheardBound is how long a host that lives may be silent.
func (e *examination) unheardBound() int64 { return e.host.config.unheardTicks() }

// waitTicks is how long a healthy member may take for what others wait for: two election timeouts.
func (c Config) waitTicks() int64 { return 2 * int64(c.electionTicks()) }

// unheardTicks is how long a host that lives may be silent. A candidate asks once in up to two election
// timeouts.
func (c Config) unheardTicks() int64 { return c.waitTicks() + 2*ticksPerHeartbeat }
