package conformance

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"
	"slices"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// duel is a cluster that exists twice, once with our nodes and once with etcd-io/raft's (twin_test.go), under
// one script, which comes from a seed. After every act, everything visible of the node that acted must be
// equal on both sides (compare_test.go), except for what is listed (listed_test.go).
//
// The network carries pairs: our message and theirs. A message that only one side sends, as listed, is lost,
// as messages may be; so the two clusters stay together. If that is impossible they part for good, and the
// script ends.
//
// Chance is in neither core: before every tick both get the same election timeout.
type duel struct {
	seed   uint64
	steps  int
	random *rand.Rand
	temper []int

	electionTicks     int
	twins             []*twin
	founders          []uint64
	boundsUncommitted bool
	lazy              *twin // works seldom, so that much happens between a Ready and Advance
	net               []envelope
	loss, again       int

	// Reads, by context: asked of a leader when there was one voter; answered or reported as dropped by ours.
	alone, answered, dropped map[string]bool

	last   string            // what the step did, for the reader of a failure
	listed map[exception]int // how often each exception applied
	counts map[string]int    // what happened
}

// envelope is a message as it left either side.
type envelope struct{ ours, theirs packet }

// difference and parting are the values with which a duel panics.
type (
	difference string
	parting    exception
)

// newDuel founds both clusters. pair makes the twins.
func newDuel(seed uint64, pair func(settings, []uint64) *twin) *duel {
	d := &duel{
		seed: seed, random: rand.New(rand.NewPCG(seed, 1)), electionTicks: 6,
		listed: map[exception]int{}, counts: map[string]int{}, alone: map[string]bool{}, answered: map[string]bool{}, dropped: map[string]bool{},
	}
	common := settings{
		preVote:                   d.chance(50),
		checkQuorum:               d.chance(50),
		stepDownOnRemoval:         d.chance(50),
		disableForwarding:         d.chance(20),
		electionTicks:             d.electionTicks,
		maxSizePerMsg:             anyOf[uint64](d, 1, 100, 1<<20),
		maxInflightMsgs:           anyOf(d, 1, 4, 256),
		maxCommittedSizePerReady:  anyOf[uint64](d, 0, 1, 300),
		maxUncommittedEntriesSize: anyOf[uint64](d, 0, 0, 800),
	}
	d.boundsUncommitted = common.maxUncommittedEntriesSize > 0
	if d.chance(30) {
		common.maxInflightBytes = common.maxSizePerMsg
	}
	d.founders = anyOf(d, []uint64{1}, []uint64{1, 2, 3}, []uint64{1, 2, 3}, []uint64{1, 2, 3})
	for id := uint64(1); id <= everyone; id++ {
		s := common
		s.id, s.async = id, d.chance(50)
		d.twins = append(d.twins, pair(s, d.founders))
	}
	d.lazy = d.twins[anyOf(d, d.founders...)-1]
	return d
}

func (d *duel) chance(percent int) bool { return d.random.IntN(100) < percent }

func anyOf[T any](d *duel, from ...T) T { return from[d.random.IntN(len(from))] }

// actor is usually a member.
func (d *duel) actor() *twin {
	t := d.someone()
	if !isMemberIn(t.machine.conf, t.id) && d.chance(80) {
		t = d.someone()
	}
	return t
}

func (d *duel) someone() *twin { return d.twins[d.random.IntN(len(d.twins))] }

// duelActs are the possible acts of a step. As in a world, each act after the first two happens more or less
// often, or never.
var duelActs = []struct {
	name   string
	weight int
	act    func(*duel, *twin)
}{
	{"deliver", 400, func(d *duel, _ *twin) { d.deliver() }},
	{"work", 500, (*duel).work},
	{"tick", 100, (*duel).tick},
	{"propose", 40, (*duel).propose},
	{"read", 15, (*duel).read},
	{"campaign", 6, (*duel).campaign},
	{"transfer", 4, (*duel).transfer},
	{"change", 12, (*duel).change},
	{"compact", 16, (*duel).compact},
	{"crash", 4, (*duel).crash},
	{"forget", 2, func(d *duel, t *twin) { d.sameError(t, t.ours.forgetLeader(), t.theirs.forgetLeader()) }},
	{"unreachable", 4, func(d *duel, t *twin) {
		id := d.someone().id
		t.ours.reportUnreachable(id)
		t.theirs.reportUnreachable(id)
	}},
	{"snapshot", 4, func(d *duel, t *twin) { d.reportSnapshot(t, d.someone().id, d.chance(50)) }},
}

// play plays steps. It returns where the two sides parted for good, or the first difference that is not
// listed.
func (d *duel) play(steps int) (parted exception, err error) {
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case parting:
			parted = exception(reason)
		case difference:
			err = fmt.Errorf("seed %d, step %d, %s: %s", d.seed, d.steps, d.last, reason)
		default:
			err = fmt.Errorf("seed %d, step %d: panic: %v\n%s", d.seed, d.steps, reason, debug.Stack())
		}
	}()
	d.loss, d.again = d.random.IntN(20), d.random.IntN(20)
	sum := 0
	for i, a := range duelActs {
		if i > 1 {
			a.weight *= anyOf(d, 0, 1, 1, 4)
		}
		d.temper = append(d.temper, a.weight)
		sum += a.weight
	}
	d.campaign(d.twins[anyOf(d, d.founders...)-1]) // otherwise nothing happens for a long time
	for range steps {
		d.steps++
		at, i := d.random.IntN(sum), 0
		for ; at >= d.temper[i]; i++ {
			at -= d.temper[i]
		}
		t := d.actor()
		d.last = fmt.Sprintf("%s at %v", duelActs[i].name, t)
		duelActs[i].act(d, t)
		if i > 0 {
			d.sameView(t)
		}
	}
	return "", nil
}

func (d *duel) differ(t *twin, what string, ours, theirs any) {
	panic(difference(fmt.Sprintf("%v: %s\nours\n%v\ntheirs\n%v", t, what, ours, theirs)))
}

// tick advances a member's clock, with the same election timeout on both sides, which comes from the seed. A
// leader whose clocks differ, as listed, is not ticked.
func (d *duel) tick(t *twin) {
	if why := t.mustNotTick(); why != "" {
		d.excuse(why)
		return
	}
	s := t.ours.state()
	h := fnv.New64a()
	fmt.Fprint(h, d.seed, t.id, s.Term, s.role)
	timeout := d.electionTicks + int(h.Sum64()%uint64(d.electionTicks))
	t.ours.tick(timeout)
	t.theirs.tick(timeout)
}

func (d *duel) campaign(t *twin) {
	d.sameError(t, t.ours.campaign(), t.theirs.campaign())
	if t.ours.state().role == "StatePreCandidate" {
		t.part(clockOfPreCandidate)
	}
}

func (d *duel) transfer(t *twin) {
	if t.isLame() {
		d.excuse(lameLeader)
		return
	}
	to := d.someone().id
	d.sameError(t, t.ours.transfer(to), t.theirs.transfer(to))
}

func (d *duel) propose(t *twin) {
	if t.isLame() {
		d.excuse(lameLeader)
		return
	}
	data := fmt.Appendf(nil, "%d.%d %0*d", t.id, d.steps, d.random.IntN(120), 0)
	d.sameError(t, t.ours.propose(slices.Clone(data)), t.theirs.propose(slices.Clone(data)))
}

func (d *duel) read(t *twin) {
	context := fmt.Sprintf("read %d of %d", d.steps, t.id)
	d.noteRead(t, context)
	d.sameError(t, t.ours.readIndex([]byte(context)), t.theirs.readIndex([]byte(context)))
}

// noteRead records how a leader is asked for a read: as the only voter, when theirs answers at once, or a
// second time, when theirs confuses the read with the first one and may answer all reads in between.
func (d *duel) noteRead(t *twin, context string) {
	if t.ours.state().role != leading {
		return
	}
	if c := t.machine.conf; len(c.Voters) == 1 && len(c.VotersOutgoing) == 0 {
		d.alone[context], t.askedAlone = true, true
	}
	t.askedTwice = t.askedTwice || t.asked[context]
	t.asked[context] = true
}

// change proposes some membership change, legal or not. One founder is neither removed nor demoted: theirs
// accepts the removal of all voters, and panics when it is applied.
func (d *duel) change(t *twin) {
	if why := t.mustNotChange(); why != "" {
		d.excuse(why)
		return
	}
	var c raftpb.ConfChangeV2
	stays := d.founders[d.seed%uint64(len(d.founders))]
	if !d.chance(20) {
		for range 1 + d.random.IntN(3) {
			one := raftpb.ConfChangeSingle{NodeID: d.someone().id}
			if d.chance(25) {
				one.NodeID = t.id // which may be the leader
			}
			if one.NodeID != stays {
				one.Type = anyOf(d, raftpb.ConfChangeAddNode, raftpb.ConfChangeRemoveNode, raftpb.ConfChangeAddLearnerNode)
			}
			c.Changes = append(c.Changes, one)
		}
		c.Transition = raftpb.ConfChangeTransition(d.random.IntN(3))
	}
	var change raftpb.ConfChangeI = c
	if len(c.Changes) == 1 && d.chance(50) {
		change = raftpb.ConfChange{Type: c.Changes[0].Type, NodeID: c.Changes[0].NodeID}
	}
	ours, theirs := t.ours.proposeChange(change), t.theirs.proposeChange(change)
	if errors.Is(ours, raft.ErrConfChangeRefused) && theirs == nil {
		d.excuse(changeRefused)
		ours = t.ours.propose(nil) // theirs has an empty entry in its place
	}
	d.noteDropped(t, theirs)
	d.sameError(t, ours, theirs)
}

// compact is member.compact for both storages.
func (d *duel) compact(t *twin) {
	keep := uint64(d.random.IntN(3))
	s := t.ours.stored()
	through := min(t.machine.applied, t.ours.state().applied)
	if t.machine.applied > s.hard.Commit || t.machine.applied <= s.snapshot.Metadata.Index || through < s.first+keep {
		return
	}
	for _, c := range t.both() {
		check(c.compact(through-keep, t.machine.snapshot(t.terms[t.machine.applied])))
	}
	d.counts["a log compacted"]++
}

func (d *duel) crash(t *twin) {
	t.restart()
	d.counts["a restart"]++
}

func (d *duel) reportSnapshot(t *twin, id uint64, arrived bool) {
	t.ours.reportSnapshot(id, arrived)
	t.theirs.reportSnapshot(id, arrived)
}

// work does the next work of one member: what follows a Ready that was taken, or the next Ready.
func (d *duel) work(t *twin) {
	switch {
	case t == d.lazy && d.chance(80):
	case t.async:
		d.workAsync(t)
	case t.ourTurn || t.theirTurn:
		if t.ourTurn {
			t.ours.advance()
		}
		if t.theirTurn {
			t.theirs.advance()
		}
		t.ourTurn, t.theirTurn = false, false
	default:
		d.take(t)
	}
}

// workAsync executes the append worker at once, because the two sides acknowledge writes differently: of the
// answers under way when the term changes, one side would accept some that the other ignores. The apply
// worker's answers may wait.
func (d *duel) workAsync(t *twin) {
	if len(t.applied) == 0 || d.chance(50) {
		d.take(t)
	}
	if d.chance(50) {
		for _, e := range t.applied {
			d.step(t, e)
		}
		t.applied = nil
	}
}

// take takes a Ready of both sides, or of the side that has one, and does its work.
func (d *duel) take(t *twin) {
	ours, ourTurn := t.ours.ready()
	theirs, theirTurn := t.theirs.ready()
	if !ourTurn && !theirTurn {
		return
	}
	d.counts["a Ready"]++
	messages := d.sameTurn(t, ours, theirs)
	check(t.ours.save(ours.hard, ours.entries, ours.snapshot))
	check(t.theirs.save(theirs.hard, theirs.entries, theirs.snapshot))
	if !raft.IsEmptySnap(ours.snapshot) {
		t.machine = machineOf(ours.snapshot)
		t.terms[t.machine.applied] = ours.snapshot.Metadata.Term
		d.counts["a snapshot installed"]++
	}
	for _, e := range ours.committed {
		d.apply(t, e)
	}
	for _, e := range messages {
		switch {
		case e.ours.To != t.id:
			d.send(e)
		case e.ours.Type == raftpb.MsgStorageApplyResp:
			t.applied = append(t.applied, e)
		default:
			d.step(t, e)
		}
	}
	if !t.async {
		t.ourTurn, t.theirTurn = ourTurn, theirTurn
	}
}

func (d *duel) apply(t *twin, e raftpb.Entry) {
	if e.Index != t.machine.applied+1 {
		panic(difference(fmt.Sprintf("%v is to apply entry %d after %d", t, e.Index, t.machine.applied)))
	}
	t.machine.add(e)
	t.terms[e.Index] = e.Term
	d.counts["an entry applied"]++
	if c := changeOf(e); c != nil {
		ours, theirs := t.ours.applyChange(c), t.theirs.applyChange(c)
		if fmt.Sprint(ours) != fmt.Sprint(theirs) {
			d.differ(t, "the configuration after a change", ours, theirs)
		}
		t.machine.conf = ours
		d.counts["a change of members applied"]++
	}
}
