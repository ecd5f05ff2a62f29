package raft

import (
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// Leases while members change. A quorum of one configuration grants a lease, and a quorum of the next
// configuration, or of the one before, may elect a new leader: the two quorums must share a member that
// promised. As in TestLeaseHistories all clocks tick together, and every host asks for reads all the time.
// Here the workers of some hosts stand still for some time, so that nodes are in different configurations;
// answers and votes arrive late and in any order; and restarts begin anywhere between snapshot and state
// machine.
func TestLeaseHistoriesOfMembers(t *testing.T) {
	if *leaseSeed != 0 {
		runLeaseHistoryOfMembers(t, *leaseSeed, t.Logf)
		return
	}
	histories, alone, changes := *seeds, 0, 0
	if testing.Short() {
		histories /= 5
	}
	for seed := range uint64(histories) {
		w := runLeaseHistoryOfMembers(t, seed+1, func(string, ...any) {})
		alone += w.alone
		changes += len(w.judge.confs)
	}
	if alone < 50*histories || changes < 5*histories {
		t.Fatalf("only %d reads were answered by a lease, in %d configurations", alone, changes)
	}
}

type leaseHistory struct {
	history
	cut         map[uint64]bool
	slow        map[uint64]bool // hosts whose append worker stands still
	slowToApply map[uint64]bool
	late        []raftpb.Message
	alone       int // reads that a leader answered by itself
}

func runLeaseHistoryOfMembers(t *testing.T, seed uint64, tell func(string, ...any)) *leaseHistory {
	chance := rand.New(rand.NewPCG(seed, 0))
	step := 0
	defer func() {
		if broken := recover(); broken != nil {
			t.Fatalf("seed %d, step %d: %v\n%s", seed, step, broken, debug.Stack())
		}
	}()
	w := &leaseHistory{history: history{chance: chance, tell: tell}, cut: map[uint64]bool{}, slow: map[uint64]bool{}, slowToApply: map[uint64]bool{}}
	hosts, founders := 3+chance.IntN(3), 1+chance.IntN(3)
	preVote, stepDown := chance.IntN(2) == 0, chance.IntN(2) == 0
	w.testCluster = newGrowingCluster(hosts, founders, foundation(1+chance.IntN(3)), func(c *Config) {
		c.CheckQuorum, c.ReadOnlyOption, c.PreVote = true, ReadOnlyLeaseBased, preVote
		c.AsyncStorageWrites, c.StepDownOnRemoval = seed%4 != 0, stepDown
		c.ElectionTick, c.HeartbeatTick, c.Seed = 8, 1+chance.IntN(2), seed
	})
	for step = range 500 {
		w.step(w.hosts[chance.IntN(hosts)])
		w.runIdle()
		for _, h := range w.hosts {
			w.askAlone(h)
		}
		w.runIdle()
	}
	w.net = append(w.net, w.late...)
	if err := w.demandLiveness(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return w
}

func (w *leaseHistory) step(h *host) {
	switch kind := w.chance.IntN(120); {
	case kind < 40:
		w.tell("all tick")
		for _, h := range w.hosts {
			_ = h.input(func(rn *RawNode) error { rn.Tick(); return nil })
		}
	case kind < 50:
		w.tell("%d proposes: %v", h.id(), h.input(func(rn *RawNode) error { return rn.Propose([]byte("x")) }))
	case kind < 56:
		w.some(w.cut)
		w.tell("cut off: %v", w.cut)
	case kind < 60:
		w.some(w.slow)
		w.some(w.slowToApply)
		w.tell("stopped append workers: %v, apply workers: %v", w.slow, w.slowToApply)
	case kind < 64:
		target := 1 + w.chance.Uint64N(uint64(len(w.hosts)))
		w.tell("%d is asked to hand over to %d: %v", h.id(), target, h.input(func(rn *RawNode) error { return rn.TransferLeader(target) }))
	case kind < 67:
		w.tell("%d crashes and restarts", h.id())
		h.crash()
		h.restart(w.chance.IntN(len(h.unsynced)+1), w.anyApplied(h))
	case kind < 70:
		w.tell("%d campaigns: %v", h.id(), h.input((*RawNode).Campaign))
	case kind < 72:
		w.tell("%d forgets: %v", h.id(), h.input((*RawNode).ForgetLeader))
	case kind < 74:
		if log := h.node.raft.log; h.applied > 0 && h.applied <= log.applied {
			h.compact(1 + w.chance.Uint64N(h.applied))
		}
	case kind < 76:
		w.sayReports(len(w.reports))
	case kind < 95:
		if leader := w.leader(); leader != nil && w.chance.IntN(4) > 0 {
			h = leader
		}
		c := w.anyChange()
		w.tell("%d proposes %+v: %v", h.id(), c, h.input(func(rn *RawNode) error { return rn.ProposeConfChange(c) }))
	case len(w.late) > 0:
		i := w.chance.IntN(len(w.late))
		m := w.late[i]
		w.late = append(w.late[:i:i], w.late[i+1:]...)
		w.tell("late: %s: %v", describe(m), w.handOver(m))
	}
}

// some puts up to two other hosts into a set.
func (w *leaseHistory) some(set map[uint64]bool) {
	clear(set)
	for range w.chance.IntN(3) {
		set[1+w.chance.Uint64N(uint64(len(w.hosts)))] = true
	}
}

// runIdle does all work, except what stands still, is lost, or arrives late.
func (w *leaseHistory) runIdle() {
	for moved := true; moved; {
		moved = false
		for _, h := range w.hosts {
			moved = w.work(h) || moved
		}
		for range len(w.net) {
			m := w.drop(0)
			switch {
			case w.mayBeLate(m.Type) && w.chance.IntN(8) == 0:
				w.late = append(w.late, m)
			case w.cut[m.From] || w.cut[m.To]:
				w.report(m, SnapshotFailure)
			default:
				_ = w.handOver(m)
				w.report(m, SnapshotFinish)
			}
			moved = true
		}
	}
}

func (w *leaseHistory) mayBeLate(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgTimeoutNow, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgAppResp:
		return true
	}
	return false
}

func (w *leaseHistory) work(h *host) bool {
	if !h.cfg.AsyncStorageWrites {
		return h.work()
	}
	for moved := false; ; moved = true {
		_, ready := h.takeReady()
		appended, applied := false, false
		if !w.slow[h.id()] {
			_, appended = h.runAppend()
		}
		if !w.slowToApply[h.id()] {
			_, applied = h.runApply()
		}
		for len(h.inbox) > 0 {
			h.hearOwn(0)
		}
		if !ready && !appended && !applied {
			return moved
		}
	}
}

// askAlone asks for a read, and counts it if the leader answers before it hears any other node.
func (w *leaseHistory) askAlone(h *host) {
	before := h.answered
	_ = h.ask("read")
	_, _ = h.takeReady()
	for h.runSync() {
	}
	if h.answered > before && h.node.raft.role == StateLeader {
		w.alone++
		w.tell("%d reads alone, %d are committed", h.id(), len(w.judge.committed))
	}
}
