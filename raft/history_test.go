package raft

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
)

// Random histories of whole clusters. Chance delivers, drops, duplicates and reorders messages, cuts nodes
// off, runs each worker of each node one step at a time, delays the workers' answers, crashes nodes between
// any two steps and in the middle of a write, and restarts them with or without the state machine and the
// unsynced writes. The judge checks every node after every input. Then the faults stop, and the cluster must
// elect a leader, commit, and apply everywhere: liveness is half of the test.
//
// A history is its seed. Rejected: drawing the events with rapid, whose numbers tend to be small; a history
// must be long and wild. A failure names the seed and the step; -seed replays the history and prints every
// step.

var (
	seeds    = flag.Int("seeds", 150, "random histories for each shape of cluster")
	theSeed  = flag.Uint64("seed", 0, "replay this history only, and print it")
	allSteps = flag.Int("steps", 400, "events in one history, before the faults stop")
)

func TestRandomHistories(t *testing.T) {
	for _, nodes := range []int{1, 2, 3, 5} {
		for _, async := range []bool{true, false} {
			t.Run(fmt.Sprintf("nodes=%d,async=%t", nodes, async), func(t *testing.T) {
				t.Parallel()
				if *theSeed != 0 {
					runHistory(t, nodes, 0, async, *theSeed)
					return
				}
				for seed := range uint64(*seeds) {
					runHistory(t, nodes, 0, async, seed+1)
				}
			})
		}
	}
}

type history struct {
	*testCluster
	chance    *rand.Rand
	cut       uint64          // the node that is cut off; 0: none
	grows     bool            // members change, and logs are compacted
	gone      map[uint64]bool // removed and wiped; a new host has a new id
	newConfig func(*Config)   // of a host that replaces a removed one
	newLife   func(*host)     // starts a host again; nil: restart does
	// reports are the transport's pending reports to leaders about their snapshots.
	reports []snapshotReport
	tell    func(format string, args ...any)
}

// runHistory runs one history. founders is 0 for a cluster whose members do not change.
func runHistory(t *testing.T, nodes, founders int, async bool, seed uint64) *history {
	h := &history{chance: rand.New(rand.NewPCG(seed, 0)), tell: func(string, ...any) {}}
	if *theSeed != 0 {
		h.tell = t.Logf
	}
	step := 0
	defer func() {
		if broken := recover(); broken != nil {
			t.Fatalf("seed %d, step %d: %v\n%s", seed, step, broken, debug.Stack())
		}
	}()
	if founders > 0 {
		h.grows = true
		h.gone, h.newConfig = map[uint64]bool{}, anyConfig(h.chance, async)
		h.testCluster = newGrowingCluster(nodes, founders, foundation(1+h.chance.IntN(3)), h.newConfig)
	} else {
		h.testCluster = newTestCluster(nodes, anyConfig(h.chance, async))
		h.start()
	}
	if one := h.chance.IntN(4); one > 0 {
		h.slow = func(uint64) bool { return h.chance.IntN(4) < one }
	}
	steps := *allSteps
	if h.grows {
		steps *= 3 // a change takes time, and the next one waits for it
	}
	for step = range steps {
		h.step()
	}
	if err := h.demandLiveness(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return h
}

// anyConfig sets every setting, mostly near its limits.
func anyConfig(chance *rand.Rand, async bool) func(*Config) {
	draw := func(choices ...uint64) uint64 { return choices[chance.IntN(len(choices))] }
	flags := draw(0, 1, 2, 3, 6, 7)
	perMessage, perReady, uncommitted := draw(0, 10, 1<<20), draw(0, 1, 25, 1<<20), draw(0, 6)
	checkAppends, applyUnstable, applyRanges := draw(0, 1) == 1, draw(0, 1) == 1, draw(0, 1) == 1
	stepDown, overhead := draw(0, 1) == 1, draw(0, 3, EntryOverhead)
	window, windowBytes, seed := int(draw(1, 2, 64)), draw(0, 1<<20), chance.Uint64()
	return func(c *Config) {
		c.AsyncStorageWrites = async
		c.Seed = seed
		c.ElectionTick = 5
		c.PreVote, c.CheckQuorum, c.CheckAppends = flags&1 != 0, flags&2 != 0, checkAppends && flags&2 != 0
		if flags&4 != 0 {
			c.ReadOnlyOption = ReadOnlyLeaseBased
			c.ElectionTick = 12
		}
		c.ApplyUnstable, c.ApplyRanges = applyUnstable && async, applyRanges && async
		c.MaxSizePerMsg, c.MaxCommittedSizePerReady = perMessage, perReady
		c.MaxUncommittedEntriesSize = uncommitted
		c.MaxInflightMsgs, c.MaxInflightBytes = window, windowBytes
		c.StepDownOnRemoval = stepDown
		c.EntryOverheadBytes = overhead
	}
}

// step does one event, of a kind and at a host that chance chooses. An event that is impossible at the moment
// is left out.
func (w *history) step() {
	h := w.hosts[w.chance.IntN(len(w.hosts))]
	kind := w.chance.IntN(1000)
	if w.grows && w.chance.IntN(12) == 0 {
		w.stepOfMembers(h)
		return
	}
	if h.node == nil {
		if kind < 150 {
			w.restart(h)
		}
		return
	}
	switch {
	case kind < 400:
		w.anyMessage(kind)
	case kind < 540:
		if rd, ok := h.takeReady(); ok {
			w.tell("%d ready: hard state %v, entries %s, committed %s", h.id(), rd.HardState, describeEntries(rd.Entries), describeEntries(rd.CommittedEntries))
		}
	case kind < 680:
		if h.cfg.AsyncStorageWrites {
			if m, ok := h.runAppend(); ok {
				w.tell("%d wrote %s", h.id(), describeWrite(m))
			}
		} else if h.runSync() {
			w.tell("%d synchronous stage %d done", h.id(), h.stage)
		}
	case kind < 730:
		if m, ok := h.runApply(); ok {
			w.tell("%d applied %s", h.id(), describeEntries(m.Entries))
		}
	case kind < 740:
		err := h.ask("read")
		w.tell("%d asks for a read: %v", h.id(), err)
	case kind < 760:
		if n := len(h.slow.waiting); n > 0 {
			w.tell("%d has read entries for %d", h.id(), h.arrive(w.chance.IntN(n)))
		}
	case kind < 850:
		if n := len(h.inbox); n > 0 {
			i := w.chance.IntN(n)
			w.tell("%d hears its worker: %s", h.id(), describe(h.inbox[i]))
			h.hearOwn(i)
		}
	case kind < 900:
		data := fmt.Appendf(nil, "%d", w.chance.IntN(1000))
		err := h.input(func(rn *RawNode) error { return rn.Propose(data) })
		w.tell("%d proposes %s: %v", h.id(), data, err)
	case kind < 960 && h.cfg.ReadOnlyOption == ReadOnlyLeaseBased:
		w.tell("all tick") // a lease relies on clocks with about the same rate
		for _, h := range w.hosts {
			_ = h.input(func(rn *RawNode) error { rn.Tick(); return nil })
		}
	case kind < 960:
		w.tell("%d ticks", h.id())
		for range w.chance.IntN(3) {
			_ = h.input(func(rn *RawNode) error { rn.Tick(); return nil })
		}
	case kind < 968:
		w.tell("%d campaigns", h.id())
		_ = h.input((*RawNode).Campaign)
	case kind < 970:
		target := w.chance.Uint64N(uint64(len(w.hosts)) + 1)
		err := h.input(func(rn *RawNode) error { return rn.TransferLeader(target) })
		w.tell("%d is asked to hand over to %d: %v", h.id(), target, err)
	case kind < 971:
		err := h.input((*RawNode).ForgetLeader)
		w.tell("%d forgets its leader: %v", h.id(), err)
	case kind < 972:
		w.tell("%d steps down if it leads", h.id())
		_ = h.input(func(rn *RawNode) error { rn.StepDown(w.chance.IntN(40)); return nil })
	case kind < 973:
		w.tell("%d learns that no peer is reachable", h.id())
		for id := range uint64(len(w.hosts)) {
			_ = h.input(func(rn *RawNode) error { rn.ReportUnreachable(id + 1); return nil })
		}
	case kind < 978:
		if w.chance.IntN(2) == 0 {
			h.takeReady() // so that a write may be under way
		}
		w.tell("%d crashes", h.id())
		h.crash()
	case kind < 983:
		w.cut = uint64(w.chance.IntN(len(w.hosts) + 1))
		w.tell("cut off: %d", w.cut)
	default:
		w.calm()
	}
}

// calm lets all nodes but one work and exchange messages for some time, so that histories get somewhere.
func (w *history) calm() {
	w.tell("a calm while")
	slow := w.chance.IntN(2 * len(w.hosts))
	for i, h := range w.hosts {
		if i != slow {
			h.work()
		}
	}
	for range len(w.net) {
		w.deliverAt(0)
	}
}

func (w *history) restart(h *host) {
	if w.gone[h.id()] {
		return
	}
	if w.newLife != nil {
		h.recover(w.chance.IntN(len(h.unsynced)+1), 0)
		w.newLife(h)
		return
	}
	kept, parts := h.recoverSome(w.chance)
	applied := w.anyApplied(h)
	w.tell("%d restarts with %d of the writes under way and %d parts of the next, applied %d", h.id(), kept, parts, applied)
	h.restart(0, applied)
}

// anyApplied returns what the state machine has after a crash. A state machine in memory is replayed from the
// snapshot, a durable one is unchanged, and one that is written now and then is anywhere in between.
func (w *history) anyApplied(h *host) uint64 {
	if h.cfg.ApplyUnstable {
		return 0 // the state machine is volatile
	}
	oldest := max(h.disk.snapshot.Metadata.Index, h.disk.base.Index)
	switch kind := w.chance.IntN(4); {
	case kind == 0:
		return 0
	case kind == 1 && h.applied > oldest:
		return oldest + w.chance.Uint64N(h.applied-oldest+1)
	}
	return h.applied
}

func (w *history) anyMessage(kind int) {
	if len(w.net) == 0 {
		return
	}
	at := 0 // mostly in order
	if w.chance.IntN(3) == 0 {
		at = w.chance.IntN(len(w.net))
	}
	switch {
	case kind < 20 || len(w.net) > 200:
		m := w.drop(at)
		w.tell("lost: %s", describe(m))
		w.report(m, SnapshotFailure)
	case kind < 50:
		w.send(w.net[at]) // delivered once now and once later
		w.deliverAt(at)
	default:
		w.deliverAt(at)
	}
}

func (w *history) deliverAt(i int) {
	if m := w.net[i]; w.cut != 0 && (m.From == w.cut || m.To == w.cut) || w.host(m.To).node == nil {
		w.report(w.drop(i), SnapshotFailure)
		return
	}
	m, err := w.deliver(i)
	w.report(m, SnapshotFinish)
	w.tell("heard: %s %v", describe(m), err)
}

// demandLiveness stops the faults, and requires a leader, a commit and the same state everywhere within ten
// election timeouts.
func (w *history) demandLiveness() error {
	for _, h := range w.hosts {
		if h.node == nil && !w.gone[h.id()] {
			h.restart(0, w.anyApplied(h))
		}
	}
	const last = "the last proposal"
	before := make([]int, len(w.hosts))
	for i, h := range w.hosts {
		before[i] = h.answered
	}
	for range 10 * 2 * w.hosts[0].cfg.ElectionTick {
		for _, h := range w.hosts {
			_ = h.input(func(rn *RawNode) error { rn.Tick(); return nil })
			w.runIdle(func(m raftpb.Message) bool { w.report(m, SnapshotFinish); return false })
			w.sayReports(len(w.reports))
		}
		if w.agrees(last) && w.allRead(before) {
			return w.falseAlarm()
		}
		for _, h := range w.hosts {
			_ = h.ask("last")
		}
		if leader := w.leader(); leader != nil { // again, because the leader may have been an old one
			_ = leader.input(func(rn *RawNode) error { return rn.Propose([]byte(last)) })
			w.runIdle(nil)
		}
	}
	state := ""
	for _, h := range w.hosts {
		if h.node == nil {
			continue
		}
		r := h.node.raft
		state += fmt.Sprintf("\n%s; in %s; log %s from %d; waits %d of %d ticks, promised %d", statusLine(h), r.conf, describeEntries(allEntries(h.node)), r.log.firstIndex(), r.electionElapsed, r.electionTimeout, r.promisedTicks)
	}
	return fmt.Errorf("the faults have stopped, but the cluster does not agree on a new entry%s", state)
}

func (w *testCluster) leader() *host {
	var leader *host
	for _, h := range w.hosts {
		if h.node != nil && h.node.raft.role == StateLeader && (leader == nil || h.node.raft.term > leader.node.raft.term) {
			leader = h
		}
	}
	return leader
}

// agrees reports whether all members have applied the same commands, ending with the last proposal. Hosts
// that were removed or not added yet may lag behind.
func (w *testCluster) agrees(last string) bool {
	leader := w.leader()
	if leader == nil {
		return false
	}
	n := leader.applied
	for _, id := range leader.node.raft.conf.Members() {
		if h := w.host(id); h.applied != n || h.node.BasicStatus().LastIndex != n {
			return false
		}
	}
	return n > 0 && string(w.judge.committed[n-1].entry.Data) == last
}

// allRead reports whether every member has had an answer to a read since.
func (w *testCluster) allRead(before []int) bool {
	members := w.leader().node.raft.conf
	for i, h := range w.hosts {
		if h.answered == before[i] && members.IsMember(h.id()) {
			return false
		}
	}
	return true
}

// falseAlarm is a refusal of a correct node's message as a PeerError.
func (w *testCluster) falseAlarm() error {
	for _, h := range w.hosts {
		for _, err := range h.refused {
			return fmt.Errorf("node %d refused a correct peer: %w", h.id(), err)
		}
	}
	return nil
}

// The synchronous mode emulates the asynchronous one: with the same inputs, and workers that answer at once,
// both are in the same state after each input.
func TestSyncEqualsAsync(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		change := anyConfig(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), true)
		async := newTestCluster(3, change)
		sync := newTestCluster(3, func(c *Config) { change(c); c.AsyncStorageWrites, c.ApplyUnstable, c.ApplyRanges = false, false, false })
		sameHistory(t, sync, async)
	})
}

// anyID returns the id of a host that is not gone.
func (w *history) anyID() uint64 {
	for {
		if id := 1 + w.chance.Uint64N(uint64(len(w.hosts))); !w.gone[id] {
			return id
		}
	}
}
