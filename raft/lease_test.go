package raft

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

var leaseSeed = flag.Uint64("lease-seed", 0, "replay this history of leases only, and print it")

// A lease relies on time, which the histories of history_test.go do not have. Here all clocks tick together,
// the workers are prompt, and the faults are those that could break a lease: nodes are cut off, crash and
// restart, are told to campaign, to hand over and to forget; orders to campaign, votes and heartbeats are
// held back and arrive late; processes are suspended. Every host asks for reads all the time, and the judge
// compares every answer with what was committed anywhere when it was asked.
func TestLeaseHistories(t *testing.T) {
	run := func(seed uint64, tell func(string, ...any)) int {
		alone, broken := runLeaseHistory(seed, (*RawNode).TickMissed, tell)
		if broken != nil {
			t.Fatalf("seed %d: %v", seed, broken)
		}
		return alone
	}
	if *leaseSeed != 0 {
		run(*leaseSeed, t.Logf)
		return
	}
	var alone int
	histories := *seeds
	if testing.Short() {
		histories /= 5
	}
	for seed := range uint64(histories) {
		alone += run(seed+1, func(string, ...any) {})
	}
	if alone < 10*histories {
		t.Fatalf("only %d reads were answered by a lease", alone)
	}
}

// The histories find the bug if a suspended process does not count the time that it missed.
func TestLeaseHistoriesFindForgottenTime(t *testing.T) {
	for seed := range uint64(200) {
		if _, broken := runLeaseHistory(seed+1, func(*RawNode, int) {}, func(string, ...any) {}); broken != nil {
			t.Logf("seed %d: %.100s", seed+1, broken)
			return
		}
	}
	t.Error("leaders forget the time in which they were suspended, and no read is stale in 200 histories")
}

// runLeaseHistory runs one history. wake tells a node of the ticks that it has missed, before anything else.
func runLeaseHistory(seed uint64, wake func(*RawNode, int), tell func(string, ...any)) (alone int, broken error) {
	chance := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if r := recover(); r != nil {
			broken = fmt.Errorf("%v\n%s", r, debug.Stack())
		}
	}()
	preVote := chance.IntN(2) == 0
	heartbeat := 1 + chance.IntN(2)
	w := newTestCluster(3, func(c *Config) {
		c.CheckQuorum, c.ReadOnlyOption, c.PreVote = true, ReadOnlyLeaseBased, preVote
		c.AsyncStorageWrites = seed%2 == 0
		c.ElectionTick, c.HeartbeatTick, c.Seed = 8, heartbeat, seed
	})
	w.start()
	var cut uint64
	var late []raftpb.Message
	var asleep uint64 // the suspended process; 0: none
	var missed int    // ticks that the suspended process missed
	var unread []raftpb.Message
	runIdle := func() {
		w.runIdle(func(m raftpb.Message) bool {
			lost := m.From == cut || m.To == cut
			if m.To == asleep && !lost {
				unread = append(unread, m)
				lost = true
			}
			if lost {
				return true
			}
			if mayBeLate := m.Type == raftpb.MsgTimeoutNow || m.Type == raftpb.MsgVote || m.Type == raftpb.MsgHeartbeatResp || m.Type == raftpb.MsgHeartbeat; mayBeLate && chance.IntN(6) == 0 {
				late = append(late, m)
				lost = true
			}
			return lost
		})
	}
	for range 400 {
		h := w.hosts[chance.IntN(3)]
		switch kind := chance.IntN(100); {
		case kind < 45:
			tell("all tick")
			for _, h := range w.hosts {
				if h.id() == asleep {
					missed++
					continue
				}
				_ = h.input(func(rn *RawNode) error { rn.Tick(); return nil })
			}
		case asleep == 0 && kind < 50:
			asleep, missed = h.id(), 0
			tell("%d is suspended", asleep)
		case kind < 50:
			tell("%d wakes, and has missed %d ticks", asleep, missed)
			_ = w.host(asleep).input(func(rn *RawNode) error { wake(rn, missed); return nil })
			asleep = 0
			for _, m := range unread {
				_ = w.handOver(m)
			}
			unread = nil
		case h.id() == asleep:
		case kind < 60:
			tell("%d proposes: %v", h.id(), h.input(func(rn *RawNode) error { return rn.Propose([]byte(fmt.Sprint(seed))) }))
		case kind < 68:
			cut = chance.Uint64N(4)
			tell("cut off: %d", cut)
		case kind < 74:
			target := 1 + chance.Uint64N(3)
			tell("%d is asked to hand over to %d: %v", h.id(), target, h.input(func(rn *RawNode) error { return rn.TransferLeader(target) }))
		case kind < 78 && h.node != nil:
			tell("%d crashes and restarts", h.id())
			h.crash()
			h.restart(0, h.applied)
		case kind < 82:
			tell("%d campaigns: %v", h.id(), h.input((*RawNode).Campaign))
		case kind < 84:
			tell("%d forgets: %v", h.id(), h.input((*RawNode).ForgetLeader))
		case len(late) > 0:
			m := late[0]
			if m.To == asleep {
				continue
			}
			late = late[1:]
			tell("late: %s: %v", describe(m), w.handOver(m))
		}
		runIdle()
		for _, h := range w.hosts {
			if h.id() == asleep {
				continue
			}
			before := h.answered
			_ = h.ask("read")
			_, _ = h.takeReady()
			for h.runSync() {
			}
			if h.answered > before && h.node.raft.role == StateLeader {
				alone++
				tell("%d reads alone, %d are committed", h.id(), len(w.judge.committed))
			}
		}
		runIdle()
	}
	return alone, nil
}

// A promise is about time, not about a term: it is kept when a vote request arrives after other messages have
// raised the term. The order of a leader that hands over is obeyed.
func TestPromiseOutlivesTheTerm(t *testing.T) {
	for context, heard := range map[string]bool{"": false, campaignTransfer: true} {
		rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) {
			c.CheckQuorum, c.ReadOnlyOption = true, ReadOnlyLeaseBased
		})
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, Term: 1}))
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 3, Term: 2}))
		work(t, rn, s)
		vote := raftpb.Message{Type: raftpb.MsgVote, From: 3, Term: 2, Context: []byte(context)}
		must(t, rn.Step(vote))
		if sent := work(t, rn, s); (len(sent) > 0) != heard {
			t.Fatalf("context %q: answers %v, want an answer: %t", context, sent, heard)
		}
		for range 10 {
			rn.Tick()
		}
		work(t, rn, s)
		vote.Term = rn.raft.term + 1
		must(t, rn.Step(vote))
		if sent := work(t, rn, s); len(sent) != 1 || sent[0].Reject {
			t.Fatalf("after an election timeout: answers %v, want a vote", sent)
		}
	}
}

// A new node has no term on disk that would remind its next run of a promise. Until it has one, it echoes no
// read positions: its heartbeat answer would be a promise that a crash makes it forget.
func TestNewNodeMakesNoPromiseItWouldForget(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) {
		c.CheckQuorum, c.ReadOnlyOption = true, ReadOnlyLeaseBased
	})
	heartbeat := raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, Term: 1, Context: make([]byte, 8)}
	for _, kept := range []bool{false, true} {
		must(t, rn.Step(heartbeat))
		if m := rn.raft.out.now.waiting[0]; (len(m.Context) == 8) != kept {
			t.Fatalf("term on disk: %t, answers %s", kept, describe(m))
		}
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 1, Entries: logOfTerms(1)}))
		work(t, rn, s)
	}
}

// An application that wants this node to campaign early (SetElectionTimeout) cannot make it break a promise.
func TestShortElectionTimeoutKeepsThePromise(t *testing.T) {
	rn, _ := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) {
		c.CheckQuorum, c.ReadOnlyOption = true, ReadOnlyLeaseBased
	})
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, Term: 1}))
	rn.SetElectionTimeout(2)
	for tick := 1; tick <= 10; tick++ {
		if rn.BasicStatus().RaftState != StateFollower {
			t.Fatalf("it campaigns before tick %d, and has promised 10", tick)
		}
		rn.Tick()
	}
	if rn.BasicStatus().RaftState != StateCandidate {
		t.Error("the promise has run out and the timeout long ago, and it does not campaign")
	}
}

// Quiet ticks are time: the promises of followers expire in them, and so does the lease.
func TestLeaseEndsInQuietTime(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) {
		c.CheckQuorum, c.ReadOnlyOption = true, ReadOnlyLeaseBased
	})
	elect(t, rn, s)
	rn.Tick()
	for _, m := range work(t, rn, s) {
		if m.Type == raftpb.MsgHeartbeat && m.To == 2 {
			must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeatResp, From: 2, Term: 1, Context: m.Context}))
		}
	}
	if !rn.raft.leaseHolds() {
		t.Fatal("a quorum echoed the position, and there is no lease")
	}
	for range rn.raft.cfg.electionTicks {
		rn.TickQuiesced()
	}
	if rn.raft.leaseHolds() {
		t.Error("the lease has outlived the promises")
	}
}

// A lease begins when its heartbeat was sent. An answer that was under way for long makes it no longer.
func TestLeaseBeginsWhenItWasAskedFor(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) {
		c.CheckQuorum, c.ReadOnlyOption = true, ReadOnlyLeaseBased
	})
	elect(t, rn, s)
	rn.Tick()
	var answer raftpb.Message
	for _, m := range work(t, rn, s) {
		if m.Type == raftpb.MsgHeartbeat && m.To == 2 {
			answer = raftpb.Message{Type: raftpb.MsgHeartbeatResp, From: 2, Term: 1, Context: m.Context}
		}
	}
	for range rn.raft.leaseTicks() - 1 {
		rn.Tick()
		work(t, rn, s)
	}
	must(t, rn.Step(answer))
	if !rn.raft.leaseHolds() {
		t.Error("the answer came in time, and there is no lease")
	}
	rn.Tick()
	if rn.raft.leaseHolds() {
		t.Errorf("there is a lease %d ticks after it was asked for, want at most %d", rn.raft.leaseTicks(), rn.raft.leaseTicks()-1)
	}
}
