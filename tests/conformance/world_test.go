package conformance

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// world is a cluster of members that run different libraries, in one goroutine. All chance comes from one
// seed: which member does which piece of its work next, what the network loses, repeats and overtakes, when
// an election is due, which member crashes. After every step the properties of Raft are checked (thesis
// figure 3.2). At the end, when the network works again, the members must agree on everything.
type world struct {
	seed   uint64
	steps  int
	random *rand.Rand

	electionTicks int
	members       []*member // members[i] has id i+1; one that is not in the configuration waits to be added
	net           []packet
	cut           map[uint64]bool // from the network
	loss, again   int             // percent of messages lost, and delivered twice
	temper        []int           // weights of acts

	sums    map[uint64]uint64 // state of the state machine after each index, as first seen
	terms   map[uint64]uint64
	leaders map[uint64]uint64 // by term
	asked   map[string]uint64 // the highest commit index when a read was asked, by its context
	counts  map[string]int
}

const (
	founders   = 3
	everyone   = 6
	foundation = 10 // the index of the snapshot that the founders begin with
	netHolds   = 400
)

// violation is the value with which a world panics.
type violation string

func (w *world) violation(format string, args ...any) {
	panic(violation(fmt.Sprintf(format, args...)))
}

func (w *world) count(what string) { w.counts[what]++ }

// makes are the libraries that a cluster may mix, each as the function that makes its core.
type makes map[string]func(settings) core

// newWorld founds a cluster. kindOf returns the library of each member.
func newWorld(seed uint64, cores makes, kindOf func(id uint64) string) *world {
	w := &world{
		seed:          seed,
		random:        rand.New(rand.NewPCG(seed, 0)),
		electionTicks: 10,
		cut:           map[uint64]bool{},
		sums:          map[uint64]uint64{},
		terms:         map[uint64]uint64{},
		leaders:       map[uint64]uint64{},
		asked:         map[string]uint64{},
		counts:        map[string]int{},
	}
	common := settings{
		preVote:                   w.chance(50),
		checkQuorum:               w.chance(50),
		stepDownOnRemoval:         w.chance(50),
		electionTicks:             w.electionTicks,
		maxSizePerMsg:             pick(w, []uint64{1, 100, 1 << 20}),
		maxInflightMsgs:           pick(w, []int{1, 4, 256}),
		maxCommittedSizePerReady:  pick(w, []uint64{0, 1, 300}),
		maxUncommittedEntriesSize: pick(w, []uint64{0, 2000}),
	}
	for id := uint64(1); id <= everyone; id++ {
		s := common
		s.id, s.async = id, w.chance(50)
		m := &member{id: id, kind: kindOf(id), async: s.async, world: w}
		m.core = cores[m.kind](s)
		w.members = append(w.members, m)
		if id <= founders {
			first := machine{applied: foundation, conf: raftpb.ConfState{Voters: []uint64{1, 2, 3}}}
			check(m.core.save(raftpb.HardState{Term: 1, Commit: foundation}, nil, first.snapshot(1)))
		}
		m.crash()
	}
	return w
}

func (w *world) chance(percent int) bool { return w.random.IntN(100) < percent }

func pick[T any](w *world, from []T) T { return from[w.random.IntN(len(from))] }

func (w *world) someone() *member { return pick(w, w.members) }

// run plays steps and then lets the cluster converge. The error names the seed and the step.
func (w *world) run(steps int) (err error) {
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case violation:
			err = fmt.Errorf("seed %d, step %d: %s", w.seed, w.steps, reason)
		default:
			err = fmt.Errorf("seed %d, step %d: panic: %v\n%s", w.seed, w.steps, reason, debug.Stack())
		}
	}()
	w.loss, w.again = w.random.IntN(20), w.random.IntN(20)
	w.drawTemper()
	for range steps {
		w.steps++
		w.step()
		w.checkLeaders()
	}
	w.converge()
	return nil
}

// acts are the possible acts of a step, with their weights. Each world has its own temper: the acts after the
// first three happen as often as their weight says, several times as often, or never.
var acts = []struct {
	weight int
	act    func(*world)
}{
	{500, (*world).deliver},
	{400, (*world).work},
	{60, func(w *world) { w.tick(w.someone()) }},
	{40, func(w *world) { w.propose(w.someone()) }},
	{15, func(w *world) { w.read(w.someone()) }},
	{4, func(w *world) { w.refusable(w.someone().core.campaign()) }},
	{4, func(w *world) { w.refusable(w.someone().core.transfer(w.someone().id)) }},
	{8, func(w *world) { w.change(w.someone()) }},
	{8, func(w *world) { w.compact(w.someone()) }},
	{4, func(w *world) { w.crash(w.someone()) }},
	{2, func(w *world) { w.cut[w.someone().id] = true }},
	{4, func(w *world) { delete(w.cut, w.someone().id) }},
	{4, func(w *world) { w.someone().stuck = true }},
	{8, func(w *world) { w.someone().stuck = false }},
}

func (w *world) drawTemper() {
	for i, a := range acts {
		if weight := a.weight; i < 3 {
			w.temper = append(w.temper, weight)
		} else {
			w.temper = append(w.temper, weight*pick(w, []int{0, 1, 1, 4}))
		}
	}
}

func (w *world) step() {
	sum := 0
	for _, weight := range w.temper {
		sum += weight
	}
	for at, i := w.random.IntN(sum), 0; ; i++ {
		if at -= w.temper[i]; at < 0 {
			acts[i].act(w)
			return
		}
	}
}

// work lets one member that has something to do, do one piece of it.
func (w *world) work() {
	for _, i := range w.random.Perm(len(w.members)) {
		m := w.members[i]
		pieces := []func() bool{m.handle, m.hear, m.runAppend, m.runApply}
		for _, j := range w.random.Perm(len(pieces)) {
			if pieces[j]() {
				return
			}
		}
	}
}

// tick advances a member's clock. The seed decides when an election is due in a role of a term.
func (w *world) tick(m *member) {
	s := m.core.state()
	h := fnv.New64a()
	fmt.Fprint(h, w.seed, m.id, s.Term, s.role)
	m.core.tick(w.electionTicks + int(h.Sum64()%uint64(w.electionTicks)))
}

func (w *world) propose(m *member) {
	data := make([]byte, 1+w.random.IntN(120))
	copy(data, fmt.Sprintf("%d.%d", m.id, w.steps))
	w.refusable(m.core.propose(data))
}

func (w *world) refusable(err error) {
	if err != nil && !isRefusal(err) {
		w.violation("%v", err)
	}
}

// read asks for an index to read at. The read must see everything that any member knows to be committed at
// this time.
func (w *world) read(m *member) {
	context := fmt.Sprintf("read %d of %d", w.steps, m.id)
	for _, other := range w.members {
		w.asked[context] = max(w.asked[context], other.core.state().Commit)
	}
	w.refusable(m.core.readIndex([]byte(context)))
}

func (w *world) answered(m *member, r raft.ReadState) {
	if floor := w.asked[string(r.RequestCtx)]; r.Index < floor {
		w.violation("%v may serve %q at %d, but %d was committed when it was asked", m, r.RequestCtx, r.Index, floor)
	}
	w.count("a read answered to " + m.kind)
}

func (w *world) compact(m *member) {
	if m.compact(uint64(w.random.IntN(3))) {
		w.count("a log compacted by " + m.kind)
	}
}

// crash spares a node of theirs in asynchronous mode that has writes under way: its request for votes may
// have left already, and it could lead one term twice (docs/divergence.md, the first row). Seen when it was
// not spared.
func (w *world) crash(m *member) {
	if m.kind != ourKind && len(m.appends) > 0 {
		return
	}
	m.crash()
	w.count("a restart of " + m.kind)
}

// change proposes some membership change, legal or not. Two founders are neither removed nor demoted: theirs
// accepts the removal of all voters, and panics when it is applied; and a lone voter of theirs may serve
// stale reads.
func (w *world) change(m *member) {
	if len(m.machine.conf.VotersOutgoing) > 0 && w.chance(50) {
		w.refusable(m.core.proposeChange(raftpb.ConfChangeV2{}))
		return
	}
	var changes []raftpb.ConfChangeSingle
	for range 1 + w.random.IntN(3) {
		c := raftpb.ConfChangeSingle{
			Type:   pick(w, []raftpb.ConfChangeType{raftpb.ConfChangeAddNode, raftpb.ConfChangeRemoveNode, raftpb.ConfChangeAddLearnerNode}),
			NodeID: w.someone().id,
		}
		if removable := 1 + w.seed%founders; c.NodeID <= founders && c.NodeID != removable {
			c.Type = raftpb.ConfChangeAddNode
		}
		changes = append(changes, c)
	}
	if len(changes) == 1 && w.chance(50) {
		w.refusable(m.core.proposeChange(raftpb.ConfChange{Type: changes[0].Type, NodeID: changes[0].NodeID}))
		return
	}
	w.refusable(m.core.proposeChange(raftpb.ConfChangeV2{
		Transition: raftpb.ConfChangeTransition(w.random.IntN(3)),
		Changes:    changes,
	}))
}

// remember records the state of a member's state machine after an index. The first member to get there
// defines it.
func (w *world) remember(m *member, term uint64) {
	index := m.machine.applied
	if sum, known := w.sums[index]; known && (sum != m.machine.sum || w.terms[index] != term) {
		w.violation("%v has another state after entry %d, of term %d, than was applied there first, of term %d", m, index, term, w.terms[index])
	}
	w.sums[index], w.terms[index] = m.machine.sum, term
}

// checkLeaders checks that a term has one leader (thesis §3.4).
func (w *world) checkLeaders() {
	for _, m := range w.members {
		s := m.core.state()
		if s.role != leading {
			continue
		}
		switch leader, known := w.leaders[s.Term]; {
		case !known:
			w.leaders[s.Term] = m.id
			w.count("an election won by " + m.kind)
		case leader != m.id:
			w.violation("%v and %v lead term %d", w.members[leader-1], m, s.Term)
		}
	}
}
