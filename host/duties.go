package host

import "github.com/millrace/millrace/raft"

// duties are what a group does besides replicating commands, in the order in which a turn calls them. What
// decides about members comes before what uses them; what may hand the leadership over comes before what
// needs a leader.
var duties = dutyTable{
	{beforeTime, duty{Name: "install", Step: (*Group).stepReceived}},
	{beforeTime, duty{Name: "authority", Step: (*Group).regainAuthority}},
	{beforeTime, duty{Name: "entries for followers", Step: (*Group).dropFetched}},

	{afterTime, duty{Name: "applied", Step: (*Group).answerApplied}},
	{afterTime, duty{Name: "stalls", Step: (*Group).checkStall, Due: (*Group).stuckDue}},
	{afterTime, duty{Name: "slow members", Step: (*Group).checkMembers}},
	{afterTime, duty{Name: "views of members", Step: (*Group).watchMembers}},
	{afterTime, duty{Name: "waiting line", Step: (*Group).sayWhatIsMissing}},
	{afterTime, duty{Name: "shutdown", Step: (*Group).handOverIfAsked}},
	{afterTime, duty{Name: "transfer", Step: (*Group).transferLeadership}},
	{afterTime, duty{Name: "placement", Step: (*Group).advancePlacement, Due: (*Group).wishDue}},
	{afterTime, duty{Name: "founding", Step: (*Group).advanceFounding, Due: (*Group).foundingDue}},
	{afterTime, duty{Name: "objects", Step: (*Group).advanceObjects, Due: (*Group).objectsDue}},
	{afterTime, duty{Name: "plan", Step: (*Group).advancePlan, Due: (*Group).planDue}},
	{afterTime, duty{Name: "resume", Step: (*Group).resume, Due: (*Group).resumeAt}},
	{afterTime, duty{Name: "reads", Step: (*Group).advanceReads, Due: (*Group).readsDue}},

	{afterReady, duty{Name: "refused entries", Step: (*Group).ask}},
	{afterReady, duty{Name: "state of the founding", Step: (*Group).reportFounding}},
	{afterReady, duty{Name: "skips", Step: (*Group).orderSkips}},
	{afterReady, duty{Name: "halted machine", Step: (*Group).answerHalted}},

	{afterStatus, duty{Name: "snapshots", Step: (*Group).advanceSnapshots}},
	{afterStatus, duty{Name: "pulses", Step: (*Group).leadQuietly}},
}

// duty is what a group does besides replicating commands. Step does one bounded piece of work and waits for
// nothing.
type duty struct {
	Name string
	Step func(*Group)
	Due  func(*Group) (tick int64) // when Step must be called if nothing else happens; nil: never
}

// point is where in a turn a duty is called.
type point int

const (
	beforeTime  point = iota // after the messages, and before a timeout may expire
	afterTime                // before commands are proposed
	afterReady               // what the core wanted is under way
	afterStatus              // and the status says so
)

// dutyTable is the table of a group's duties. Those of a point are in a row.
type dutyTable []struct {
	point
	duty
}

// step calls the duties of a point.
func (t dutyTable) step(g *Group, at point) {
	for i := range t {
		if t[i].point == at {
			t[i].Step(g)
		}
	}
}

// due returns the tick at which the first duty is due.
func (t dutyTable) due(g *Group) int64 {
	due := never
	for i := range t {
		if t[i].Due != nil {
			due = min(due, t[i].Due(g))
		}
	}
	return due
}

// dropFetched drops entries that were read for followers, when this member does not lead.
func (g *Group) dropFetched() {
	if g.node.BasicStatus().RaftState != raft.StateLeader {
		g.storage.forget()
	}
}

// handOverIfAsked hands the leadership over when the host is about to stop.
func (g *Group) handOverIfAsked() {
	if g.taken.handOver && !g.handOver() {
		g.staysLeader.Store(true)
		g.roleChanged.notify()
	}
}

// transferLeadership begins, and ends, what Group.StartTransfer asks for.
func (g *Group) transferLeadership() {
	g.startTransfer()
	g.advanceTransfer()
}

// reportFounding publishes how far the founding is, and holds commands until it takes them.
func (g *Group) reportFounding() {
	if g.founded {
		return
	}
	g.publishFounding()
	g.releases = g.holdCommands() || g.releases
}
