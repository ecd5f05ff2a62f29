package examination

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
)

// examination is one judgement.
type examination struct {
	*Facts
	d diagnosis.Diagnosis
}

// symptoms are what is looked for, in order. A later one may depend on what an earlier one has found.
var symptoms = []func(*examination){
	(*examination).findIdentity,
	(*examination).findCertificates,
	(*examination).findDivergence,
	(*examination).findFounding,
	(*examination).findAuthority,
	(*examination).findFullDisk,
	(*examination).findStalledDisk,
	(*examination).findHalted,
	(*examination).findStuckApply,
	(*examination).findLackingObject,
	(*examination).findLeader,
	(*examination).findMembers,
	(*examination).findSnapshots,
	(*examination).findStuckSnapshots,
	(*examination).findRefusedSnapshot,
	(*examination).findPlacement,
	(*examination).findSettings,
	(*examination).findSingleEntries,
	(*examination).findUncompared,
	(*examination).findPauses,
	(*examination).findSlowDisk,
	(*examination).findOverload, // last: it is often a consequence of another cause
}

// Examine judges the group. A healthy group has no cause: also not under full load, in an election that takes
// less than two election timeouts, or while nothing happens.
func Examine(f *Facts) diagnosis.Diagnosis {
	e := examination{f, diagnosis.Diagnosis{Group: f.Group, Host: f.Host, Status: f.Status}}
	if f.Leaderless >= 0 && f.Stop == nil {
		e.d.Leaderless = max(e.duration(e.Now-f.Leaderless), 1)
	}
	if f.Stop != nil {
		e.findStop()
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
		Code: code, Member: member, Since: max(e.duration(e.Now-since), 0),
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
func (f *Facts) duration(ticks int64) time.Duration { return time.Duration(ticks) * f.Bounds.Tick }

// text is the time of some ticks, as evidence has it.
func (f *Facts) text(ticks int64) time.Duration { return diagnosis.Rounded(f.duration(ticks)) }

// peer returns what is known of another host.
func (f *Facts) peer(id uint64) *Peer {
	for i := range f.Peers {
		if f.Peers[i].ID == id {
			return &f.Peers[i]
		}
	}
	return &Peer{ID: id}
}

// silence returns for how long a host was not heard, in ticks, and whether it was heard in this life. What it
// did before a tick does not count against it.
func (f *Facts) silence(id uint64, before int64) (ticks int64, ever bool) {
	p := f.peer(id)
	if !p.Known {
		return f.Now - before, false
	}
	return f.Now - max(p.HeardAt, before), p.Heard
}

// voters are the members that the core counts, in either half of a joint configuration.
func (f *Facts) voters() []uint64 {
	if f.Roster != nil {
		return f.Roster.Voters()
	}
	return f.Members
}
