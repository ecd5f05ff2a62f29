package conformance

import (
	"fmt"
	"slices"

	theirtracker "go.etcd.io/raft/v3/tracker"

	"github.com/millrace/millrace/raft/raftpb"
)

// twin is one member of a cluster that exists twice: as a node of ours and as one of theirs, each with its
// own storage. Both get the same inputs. What they hand out to be saved and applied is compared, so one state
// machine serves both.
type twin struct {
	id      uint64
	async   bool
	ours    watched
	theirs  watched
	machine machine
	terms   map[uint64]uint64 // of the entries applied
	life                      // since the last crash
}

// life is the state that a crash ends.
type life struct {
	ourTurn, theirTurn bool       // a Ready was taken and Advance is due; synchronous mode
	applied            []envelope // what the apply worker has to answer; asynchronous mode

	answers map[string][]uint64 // to reads, of our node
	late    map[string]bool     // reads whose answer came in a later term or in another role
	asked   map[string]bool     // reads that this node, as a leader, was asked for
	// askedTwice: asked twice for the same read. askedAlone: asked when there was one voter.
	askedTwice, askedAlone bool

	clocks        clocks
	changeDropped uint64 // the term in which this node, as a leader, dropped a membership change
}

// watched is a core that can be inspected more closely.
type watched interface {
	core
	forgetLeader() error
	view() view
	configuration() string
}

// view is everything that a node shows of itself. The progress is the leader's, by member.
type view struct {
	state
	transferee uint64
	progress   map[uint64]peerView
}

type peerView struct {
	text           string
	match, pending uint64
}

func (v view) String() string {
	s := fmt.Sprintf("%s of term %d, vote %d, under %d, committed %d, applied %d, transfer to %d",
		v.role, v.Term, v.Vote, v.lead, v.Commit, v.applied, v.transferee)
	for id := uint64(1); id <= everyone; id++ {
		if p, ok := v.progress[id]; ok {
			s += fmt.Sprintf("\n    %d: %s", id, p.text)
		}
	}
	return s
}

func (c *ourCore) forgetLeader() error   { return c.node.ForgetLeader() }
func (c *theirCore) forgetLeader() error { return c.node.ForgetLeader() }

func (c *ourCore) configuration() string   { return c.node.Status().Config.String() }
func (c *theirCore) configuration() string { return c.node.Status().Config.String() }

func (c *ourCore) view() view {
	s := c.node.Status()
	v := view{state: c.state(), transferee: s.LeadTransferee, progress: map[uint64]peerView{}}
	for id, pr := range s.Progress {
		v.progress[id] = peerView{pr.String(), pr.Match, pr.PendingSnapshot}
	}
	return v
}

func (c *theirCore) view() view {
	s := c.node.Status()
	v := view{state: c.state(), transferee: s.LeadTransferee, progress: map[uint64]peerView{}}
	for id, pr := range s.Progress {
		v.progress[id] = peerView{(*theirtracker.Progress)(&pr).String(), pr.Match, pr.PendingSnapshot}
	}
	return v
}

// clocks says that the clocks of both sides differ, until the term or the role changes; then both start
// again.
type clocks struct {
	parted exception // why; "" if they do not differ
	term   uint64
	role   string
}

// part records that the clocks differ after this point.
func (t *twin) part(why exception) {
	s := t.ours.state()
	t.clocks = clocks{why, s.Term, s.role}
}

// partedClocks returns why a twin must not be ticked, or "".
func (t *twin) partedClocks() exception {
	s := t.ours.state()
	if t.clocks.term != s.Term || t.clocks.role != s.role {
		t.clocks = clocks{}
	}
	return t.clocks.parted
}

func (t *twin) leads() bool { return t.ours.state().role == leading }

// isLame reports whether the twin leads without being a voter.
func (t *twin) isLame() bool {
	return t.leads() && !slices.Contains(slices.Concat(t.machine.conf.Voters, t.machine.conf.VotersOutgoing), t.id)
}

func isMemberIn(conf raftpb.ConfState, id uint64) bool {
	return slices.Contains(slices.Concat(conf.Voters, conf.VotersOutgoing, conf.Learners), id)
}

func newTwin(s settings, founders []uint64) *twin {
	return pairUp(s, founders, newOurCore(s), newTheirCore(s))
}

// pairUp makes a twin of two cores. A founder begins with a snapshot.
func pairUp(s settings, founders []uint64, ours, theirs core) *twin {
	t := &twin{id: s.id, async: s.async, ours: ours.(watched), theirs: theirs.(watched), terms: map[uint64]uint64{foundation: 1}}
	if slices.Contains(founders, s.id) {
		first := machine{applied: foundation, conf: raftpb.ConfState{Voters: founders}}
		for _, c := range t.both() {
			check(c.save(raftpb.HardState{Term: 1, Commit: foundation}, nil, first.snapshot(1)))
		}
	}
	t.restart()
	return t
}

func (t *twin) both() []watched { return []watched{t.ours, t.theirs} }

// restart is a crash, or the first start.
func (t *twin) restart() {
	for _, c := range t.both() {
		check(c.restart())
	}
	t.machine = machineOf(t.ours.stored().snapshot)
	t.life = life{answers: map[string][]uint64{}, late: map[string]bool{}, asked: map[string]bool{}}
}

func (t *twin) String() string {
	if t.async {
		return fmt.Sprintf("%d (async)", t.id)
	}
	return fmt.Sprintf("%d (sync)", t.id)
}
