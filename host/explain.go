package host

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
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

// examination is one call of Explain.
type examination struct {
	*Group
	now int64 // in ticks that were not missed
	d   diagnosis.Diagnosis
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
func (g *Group) Explain() diagnosis.Diagnosis {
	e := examination{Group: g, now: g.host.clock.lived()}
	e.d = diagnosis.Diagnosis{Group: g.id, Host: g.self, Status: g.Status()}
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
func (e *examination) found(code diagnosis.Code, member uint64, since int64, fix, evidence string, args ...any) {
	e.add(diagnosis.Cause{
		Code: code, Member: member, Since: max(e.duration(e.now-since), 0),
		Evidence: fmt.Sprintf(evidence, args...), Fix: fix,
	})
}

// add puts a cause among the causes or the warnings.
func (e *examination) add(c diagnosis.Cause) {
	if c.Code.IsWarning() {
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
