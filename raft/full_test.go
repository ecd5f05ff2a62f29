package raft

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// Disks that have no space for entries, and storage that writes many messages at once. The contract allows
// one way for each (doc.go): term and vote overtake refused entries, with the commit index that storage has;
// and several messages become one write with one hard state. The histories of torn_test.go survive both ways,
// and find the ways that only look right.

// diskRules are the rules of a cluster's storage. The zero value keeps the contract, and writes message by
// message.
type diskRules struct {
	newestCommit bool                                           // a newer commit index overtakes too
	clamped      bool                                           // the overtaking commit index is lowered to the end of the log
	putBack      bool                                           // a refused write keeps its own term and vote
	join         func(queued []raftpb.Message) []raftpb.Message // queued messages to writes; nil: one write each
}

// raise gives a write the term and vote that have overtaken it.
func (d *diskRules) raise(h *host, m raftpb.Message) raftpb.Message {
	has := h.storage.hardState
	if older := m.Term < has.Term || m.Term == has.Term && m.Vote == None; m.Term != 0 && older && !d.putBack {
		m.Term, m.Vote = has.Term, has.Vote
	}
	return m
}

// round returns the writes that are under way when storage crashes.
func (d *diskRules) round(h *host, queued []raftpb.Message) (writes []raftpb.Message) {
	for _, m := range queued {
		writes = append(writes, d.raise(h, m))
	}
	if d.join != nil && len(writes) > 0 {
		return d.join(writes)
	}
	return writes
}

// mayOvertake reports whether an answer to a peer is about term and vote only.
func mayOvertake(m raftpb.Message) bool {
	return m.To != m.From && (m.Type == raftpb.MsgVoteResp || m.Type == raftpb.MsgPreVoteResp || m.Type == raftpb.MsgAppResp && m.Index == 0 && !m.Reject)
}

// overtake writes the newest term and vote ahead of refused entries, and sends the answers that are about
// nothing else.
func (h *host) overtake() bool {
	var early []raftpb.Message
	var newest raftpb.HardState
	for i, m := range h.appends {
		if m.Term != 0 {
			newest = raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
		}
		var late []raftpb.Message
		for _, r := range m.Responses {
			if mayOvertake(r) {
				early = append(early, r)
			} else {
				late = append(late, r)
			}
		}
		h.appends[i].Responses = late
	}
	if len(early) == 0 {
		return false
	}
	if newest.Term != 0 {
		ahead := h.cluster.disk.raise(h, raftpb.Message{Term: newest.Term, Vote: newest.Vote, Commit: h.storage.hardState.Commit})
		if h.cluster.disk.newestCommit {
			ahead.Commit = newest.Commit
		}
		if h.cluster.disk.clamped {
			ahead.Commit = min(newest.Commit, h.storage.last())
		}
		write(h.storage, ahead)
		h.unsynced = append(h.unsynced, ahead)
		h.sync()
	}
	h.release(early)
	return true
}

// hasNoSpace reports whether there is no space for the next write.
func (h *host) hasNoSpace() bool {
	return h.full && len(h.appends) > 0 && len(h.appends[0].Entries) > 0
}

// workSlowly executes everything that is queued at a host, but its writes only now and then, and those with
// entries only if there is space.
func (h *host) workSlowly(chance *rand.Rand) (moved bool) {
	for {
		_, ready := h.takeReady()
		var appended, overtook bool
		if h.hasNoSpace() {
			overtook = h.overtake()
		} else if chance.IntN(3) > 0 {
			_, appended = h.runAppend()
		}
		_, applied := h.runApply()
		for len(h.inbox) > 0 {
			h.hearOwn(0)
		}
		if !ready && !appended && !overtook && !applied {
			return moved
		}
		moved = true
	}
}

// joinAll is the contract's way: one write, with the last hard state and the entries that all the messages
// leave.
func joinAll(queued []raftpb.Message) []raftpb.Message {
	one := queued[0]
	for _, m := range queued[1:] {
		if m.Snapshot != nil {
			return queued
		}
		if m.Term != 0 {
			one.Term, one.Vote, one.Commit = m.Term, m.Vote, m.Commit
		}
		if len(m.Entries) > 0 {
			kept := slices.IndexFunc(one.Entries, func(e raftpb.Entry) bool { return e.Index >= m.Entries[0].Index })
			if kept < 0 {
				kept = len(one.Entries)
			}
			one.Entries = append(slices.Clone(one.Entries[:kept]), m.Entries...)
		}
	}
	return []raftpb.Message{one}
}

// oneHardState makes a write of each message, and gives the last hard state to the first write, or to the
// last one.
func oneHardState(inLast bool) func([]raftpb.Message) []raftpb.Message {
	return func(queued []raftpb.Message) []raftpb.Message {
		all, writes := joinAll(queued), slices.Clone(queued)
		if len(all) > 1 {
			return queued
		}
		for i := range writes {
			writes[i].Term, writes[i].Vote, writes[i].Commit = 0, 0, 0
		}
		at := 0
		if inLast {
			at = len(writes) - 1
		}
		writes[at].Term, writes[at].Vote, writes[at].Commit = all[0].Term, all[0].Vote, all[0].Commit
		return writes
	}
}

// Each small violation of the contract is found.
func TestFullDisks(t *testing.T) {
	const enough = 600 // seeds within which a wrong rule is found
	for _, c := range []struct {
		name  string
		rules diskRules
		safe  bool
	}{
		{"contract", diskRules{}, true},
		{"contract, joined", diskRules{join: joinAll}, true},
		{"with the commit index", diskRules{newestCommit: true}, false},
		{"with the commit index, clamped", diskRules{clamped: true}, false},
		{"the old vote is put back", diskRules{putBack: true}, false},
		{"one hard state, in the last write", diskRules{join: oneHardState(true)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			histories := enough
			if c.safe {
				histories = *seeds
			}
			for seed := range uint64(histories) {
				_, err := runTornHistory(true, seed+1, inContractOrder, &c.rules)
				switch {
				case c.safe && err != nil:
					t.Fatalf("seed %d: %v", seed+1, err)
				case err != nil:
					t.Logf("seed %d: %.150s", seed+1, fmt.Sprint(err))
					return
				}
			}
			if !c.safe {
				t.Errorf("this rule is wrong, and none of %d histories finds it", enough)
			}
		})
	}
}

// A deposed leader has queued entries that no other node has. Behind them it queues the entries of the next
// leader, which replace them, and the message that these are committed. Then the power fails. A round with
// one hard state in its first write leaves the old entries, and a commit index that is about the new ones.
func TestTornRoundOfARepair(t *testing.T) {
	for name, c := range map[string]struct {
		join func([]raftpb.Message) []raftpb.Message
		safe bool
	}{
		"one by one":                   {nil, true},
		"joined":                       {joinAll, true},
		"one hard state, in the first": {oneHardState(false), false},
	} {
		t.Run(name, func(t *testing.T) {
			for writes := range 10 {
				if err := tearARepair(t, c.join, writes); err != nil {
					if t.Logf("%d writes: %.150v", writes, err); c.safe {
						t.Error("unsafe")
					}
					return
				}
			}
			if !c.safe {
				t.Error("not found")
			}
		})
	}
}

// tearARepair keeps the given number of the writes that were under way, or all of them.
func tearARepair(t *testing.T, join func([]raftpb.Message) []raftpb.Message, writes int) (broken any) {
	defer func() { broken = recover() }()
	w := newTestCluster(3, nil)
	w.disk.join = join
	w.start()
	old, next := w.host(1), w.host(2)
	propose := func(h *host) {
		must(t, h.input(func(rn *RawNode) error { return rn.Propose(fmt.Append(nil, "of ", h.id())) }))
	}
	must(t, old.input((*RawNode).Campaign))
	w.runIdle(nil)
	propose(old)
	propose(old)
	old.takeReady() // from here on its disk is slow
	w.net = nil
	must(t, next.input((*RawNode).Campaign))
	runIdle := func(cut bool) {
		for moved := true; moved; {
			moved = next.work()
			moved = w.host(3).work() || moved
			_, ready := old.takeReady()
			moved = moved || ready
			for len(w.net) > 0 {
				if m := w.drop(0); !cut || m.From != 1 && m.To != 1 {
					_ = w.handOver(m)
				}
				moved = true
			}
		}
	}
	runIdle(true)
	propose(next)
	runIdle(true)
	for range 3 { // the leader hears it, and sends again
		must(t, next.input(func(rn *RawNode) error { rn.Tick(); return nil }))
		runIdle(false)
	}
	if n := len(old.appends); n < 2 || old.node.BasicStatus().Commit < 3 {
		t.Fatalf("setup: %d writes are queued, %s", n, statusLine(old))
	}
	old.crash()
	old.recover(min(writes, len(old.unsynced)), 0)
	old.restart(0, 0)
	return nil
}
