package host

import (
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/raft"
)

// duties is what a group does besides replicating commands: a row has what it is called, where in a turn,
// what it does, on which occasions besides its inputs, and when it is due. Its inputs are in dutiesOf and
// where Group.want is called. A duty that stays wanted until it is done (its step returns true) needs no
// more.
var duties = turn.NewTable((*Group).changes, []turn.Duty[*Group]{
	dutyInstall:   {Name: "install", At: turn.BeforeTime, Step: (*Group).stepReceived},
	dutyAuthority: {Name: "authority", At: turn.BeforeTime, Step: (*Group).regainAuthority},
	dutyFetched:   {Name: "entries for followers", At: turn.BeforeTime, Step: (*Group).dropFetched, On: turn.Change},

	dutyApplied:     {Name: "what is applied", At: turn.AfterTime, Step: (*Group).answerApplied},
	dutyStalls:      {Name: "stalls", At: turn.AfterTime, Step: (*Group).checkStall, On: turn.Tick | turn.Change, Due: (*Group).stuckDue, Moves: true},
	dutySlowMembers: {Name: "slow members", At: turn.AfterTime, Step: (*Group).checkMembers, On: turn.Tick | turn.Change},
	dutyViews:       {Name: "views of members", At: turn.AfterTime, Step: (*Group).watchMembers, On: turn.Tick | turn.Change},
	dutyWaitingLine: {Name: "waiting line", At: turn.AfterTime, Step: (*Group).sayWhatIsMissing, On: turn.Change},
	dutyShutdown:    {Name: "shutdown", At: turn.AfterTime, Step: (*Group).handOverIfAsked},
	dutyTransfer:    {Name: "transfer", At: turn.AfterTime, Step: (*Group).transferLeadership},
	dutyPlacement:   {Name: "placement", At: turn.AfterTime, Step: (*Group).advancePlacement, Due: (*Group).wishDue},
	dutyFounding:    {Name: "founding", At: turn.AfterTime, Step: (*Group).advanceFounding, Due: (*Group).foundingDue},
	dutyObjects:     {Name: "objects", At: turn.AfterTime, Step: (*Group).advanceObjects, On: turn.Change, Due: (*Group).objectsDue, Fixed: true},
	dutyPlan:        {Name: "plan", At: turn.AfterTime, Step: (*Group).advancePlan, On: turn.Change, Due: (*Group).planDue},
	dutyResume:      {Name: "resume", At: turn.AfterTime, Step: (*Group).resume, Due: (*Group).resumeAt},
	dutyReads:       {Name: "reads", At: turn.AfterTime, Step: (*Group).advanceReads, On: turn.Change, Due: (*Group).readsDue},

	dutyRefused:       {Name: "refused entries", At: turn.AfterReady, Step: (*Group).requestDiscard},
	dutyFoundingState: {Name: "state of the founding", At: turn.AfterReady, Step: (*Group).reportFounding},
	dutySkips:         {Name: "skips", At: turn.AfterReady, Step: (*Group).orderSkips, Due: (*Group).skipDue},
	dutyHalted:        {Name: "halted machine", At: turn.AfterReady, Step: (*Group).answerHalted},

	dutySnapshots: {Name: "snapshots", At: turn.AfterStatus, Step: (*Group).advanceSnapshots},
	dutyPulses:    {Name: "pulses", At: turn.AfterStatus, Step: (*Group).leadQuietly, On: turn.Tick | turn.Change},
}...)

// dutiesOf returns the duties for which a turn has inputs.
func dutiesOf(in *inputs) (s turn.Set) {
	if len(in.fetched) > 0 {
		s |= turn.Of(dutyFetched)
	}
	if len(in.questions) > 0 {
		s |= turn.Of(dutyApplied)
	}
	if len(in.applied) > 0 {
		s |= turn.Of(dutyStalls)
	}
	if in.handOver {
		s |= turn.Of(dutyShutdown)
	}
	if in.transfer != nil {
		s |= turn.Of(dutyTransfer)
	}
	if in.wish != nil {
		s |= turn.Of(dutyPlacement)
	}
	if in.notCovered {
		s |= turn.Of(dutyPulses)
	}
	return s
}

// changes reports whether role, term, leader or roster have changed since the last call.
func (g *Group) changes() bool {
	term, lead, role := g.core.node.Leadership()
	now := bearing{term, lead, role, g.roster()}
	if now == g.work.bearing {
		return false
	}
	g.work.bearing = now
	return true
}

// dropFetched drops entries that were read for followers, when this member does not lead.
func (g *Group) dropFetched() (again bool) {
	if _, _, role := g.core.node.Leadership(); role != raft.StateLeader {
		g.writes.storage.Forget()
	}
	return false
}

// handOverIfAsked hands the leadership over when the host is about to stop.
func (g *Group) handOverIfAsked() (again bool) {
	if g.work.taken.handOver && !g.handOver() {
		g.leadership.staysLeader.Store(true)
		g.life.roleChanged.notify()
	}
	return false
}

// transferLeadership begins, and ends, what Group.StartTransfer asks for.
func (g *Group) transferLeadership() (again bool) {
	came := g.work.taken.transfer
	g.work.taken.transfer = nil
	return g.leadership.leader.Transfer(came)
}

// reportFounding publishes how far the founding is, and holds commands until it takes them.
func (g *Group) reportFounding() (again bool) {
	if g.members.founding.IsFounded() {
		return false
	}
	g.members.founding.Publish()
	g.work.releases = g.holdCommands() || g.work.releases
	return true
}
