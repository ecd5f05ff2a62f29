package raft

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// Crashes in the middle of a write. The storage of these clusters is not atomic and does the parts of a write
// one after the other, in an order: the order of the package documentation, of which every prefix is safe, or
// one that looks as good and is not.

// A writeOrder is the parts of a write, in the order in which storage does them.
type writeOrder func(m raftpb.Message) []func(*MemoryStorage)

func inContractOrder(m raftpb.Message) []func(*MemoryStorage) {
	return join(termAndVote(m), snapshotOf(m), truncation(m), hardState(m), entriesOf(m))
}

// hardStateFirst writes a commit index before the entries that it is about have replaced others.
func hardStateFirst(m raftpb.Message) []func(*MemoryStorage) {
	return join(hardState(m), snapshotOf(m), entriesOf(m))
}

// commitLast writes entries before the commit index that came with them.
func commitLast(m raftpb.Message) []func(*MemoryStorage) {
	return join(termAndVote(m), snapshotOf(m), truncation(m), entriesOf(m), hardState(m))
}

// entriesFirst is the order of etcd's log.
func entriesFirst(m raftpb.Message) []func(*MemoryStorage) {
	return join(snapshotOf(m), entriesOf(m), hardState(m))
}

func join(parts ...[]func(*MemoryStorage)) (all []func(*MemoryStorage)) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func termAndVote(m raftpb.Message) (parts []func(*MemoryStorage)) {
	if m.Term != 0 {
		parts = append(parts, func(s *MemoryStorage) { s.hardState.Term, s.hardState.Vote = m.Term, m.Vote })
	}
	return parts
}

func hardState(m raftpb.Message) (parts []func(*MemoryStorage)) {
	if m.Term != 0 {
		parts = append(parts, func(s *MemoryStorage) {
			_ = s.SetHardState(raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit})
		})
	}
	return parts
}

func snapshotOf(m raftpb.Message) (parts []func(*MemoryStorage)) {
	if m.Snapshot != nil {
		parts = append(parts, func(s *MemoryStorage) {
			if err := s.ApplySnapshot(*m.Snapshot); err != nil {
				panic(fmt.Sprintf("snapshot through %d over one through %d: %v", m.Snapshot.Metadata.Index, s.snapshot.Metadata.Index, err))
			}
		})
	}
	return parts
}

func truncation(m raftpb.Message) (parts []func(*MemoryStorage)) {
	if len(m.Entries) > 0 {
		parts = append(parts, func(s *MemoryStorage) {
			if first := m.Entries[0].Index; first > s.base.Index && first <= s.last() {
				kept := s.position(first)
				s.entries = s.entries[:kept:kept] // readers may hold what is replaced
			}
		})
	}
	return parts
}

func entriesOf(m raftpb.Message) (parts []func(*MemoryStorage)) {
	for i := range m.Entries {
		parts = append(parts, func(s *MemoryStorage) {
			if err := s.Append(m.Entries[i : i+1]); err != nil {
				panic(fmt.Sprintf("write of %d entries from %d leaves a gap: %v", len(m.Entries), m.Entries[0].Index, err))
			}
		})
	}
	return parts
}

// recover does to the disk what a crash leaves of the writes under way: the first of them, and the given
// number of parts of the next. Then it lowers the commit index to the end of the log, as the contract asks.
func (h *host) recover(writes, parts int) {
	for _, m := range h.unsynced[:writes] {
		write(h.disk, m)
		h.power.note(m)
	}
	if parts > 0 {
		for _, do := range h.cluster.order(h.unsynced[writes])[:parts] {
			do(h.disk)
		}
	}
	h.unsynced = nil
	h.disk.hardState.Commit = min(h.disk.hardState.Commit, h.disk.last())
	h.cluster.judge.remembersChanges(h)
	h.cluster.judge.remembersVotes(h)
}

// recoverSome leaves any prefix of the writes that were under way.
func (h *host) recoverSome(chance *rand.Rand) (writes, parts int) {
	if n := len(h.unsynced); n > 0 {
		if writes = n - 1; chance.IntN(2) == 0 {
			writes = chance.IntN(n)
		}
		parts = chance.IntN(len(h.cluster.order(h.unsynced[writes])) + 1)
	}
	h.recover(writes, parts)
	return writes, parts
}

// In these histories hardly anything goes wrong except events that tear important writes. Leaders are cut off
// with entries that no other node has, return, and receive the entries of others; members change; and a crash
// may cut any write short. The contract's order survives these histories, and every other order that is tried
// is found.
func TestTornWrites(t *testing.T) {
	const enough = 300 // seeds within which a wrong order is found
	for _, c := range []struct {
		name  string
		order writeOrder
		safe  bool
	}{
		{"contract", inContractOrder, true},
		{"hard state before the truncation", hardStateFirst, false},
		{"entries before the commit index", commitLast, false},
		{"entries before the term", entriesFirst, false},
	} {
		for _, async := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s,async=%t", c.name, async), func(t *testing.T) {
				histories, torn := enough, 0
				if c.safe {
					histories = *seeds
				}
				for seed := range uint64(histories) {
					n, err := runTornHistory(async, seed+1, c.order, nil)
					torn += n
					switch {
					case c.safe && err != nil:
						t.Fatalf("seed %d: %v", seed+1, err)
					case err != nil:
						t.Logf("seed %d: %.150s", seed+1, err)
						return
					}
				}
				if t.Logf("%d writes were torn", torn); !c.safe {
					t.Errorf("this order is wrong, and none of %d histories finds it", enough)
				}
			})
		}
	}
}

// runTornHistory returns the number of writes that were torn before the history ended or something was
// broken. With rules for full disks, disks are also slow, and sometimes full.
func runTornHistory(async bool, seed uint64, order writeOrder, full *diskRules) (torn int, broken error) {
	chance := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if r := recover(); r != nil {
			broken = fmt.Errorf("%v\n%s", r, debug.Stack())
		}
	}()
	w := newGrowingCluster(5, 3, bySnapshot, func(c *Config) {
		c.AsyncStorageWrites, c.Seed, c.PreVote = async, seed, chance.IntN(2) == 0
	})
	w.order = order
	work := (*host).work
	if full != nil {
		w.disk = *full
		work = func(h *host) bool { return h.workSlowly(chance) }
	}
	var cut uint64
	runIdle := func() {
		for moved := true; moved; {
			moved = false
			for _, h := range w.hosts {
				_, ready := h.takeReady()
				odds := 6
				if h.full {
					odds = 40 // a full disk matters while its node lives
				}
				if ready && chance.IntN(odds) == 0 {
					h.crash()
					if _, parts := h.recoverSome(chance); parts > 0 {
						torn++
					}
					h.restart(0, max(h.disk.snapshot.Metadata.Index, min(h.applied, chance.Uint64N(20))))
					moved = true
				}
				moved = work(h) || moved
			}
			for range len(w.net) {
				if m := w.net[0]; m.From == cut || m.To == cut || chance.IntN(40) == 0 {
					w.drop(0)
				} else {
					_, _ = w.deliver(0)
				}
				moved = true
			}
		}
	}
	for range 300 {
		h := w.hosts[chance.IntN(len(w.hosts))]
		if full != nil && chance.IntN(20) == 0 { // one at a time: the others continue
			for _, other := range w.hosts {
				other.full = other == h && chance.IntN(4) > 0
			}
		}
		switch kind := chance.IntN(10); {
		case kind < 1:
			if full != nil && cut != 0 {
				w.host(cut).full = chance.IntN(2) == 0
			}
			if cut = 0; chance.IntN(2) == 0 {
				cut = 1 + chance.Uint64N(5)
			}
		case kind < 2:
			if leader := w.leader(); leader != nil { // it is cut off, with entries that no other node has
				for range 3 {
					_ = leader.input(func(rn *RawNode) error { return rn.Propose([]byte("only here")) })
				}
				if full != nil && cut != 0 { // a node that returns finds no space for its new entries
					w.host(cut).full = chance.IntN(2) == 0
				}
				leader.full = full != nil && chance.IntN(3) == 0
				work(leader)
				w.net, cut = nil, leader.id()
			}
			_ = h.input((*RawNode).Campaign)
		case kind < 5 && seed%2 == 0:
			change := raftpb.ConfChange{Type: raftpb.ConfChangeType(chance.IntN(2)), NodeID: 1 + chance.Uint64N(5)}
			for _, h := range w.hosts {
				_ = h.input(func(rn *RawNode) error { return rn.ProposeConfChange(change) })
			}
		case kind < 8:
			for _, h := range w.hosts { // also those that no longer lead, and do not know it
				_ = h.input(func(rn *RawNode) error { return rn.Propose(fmt.Append(nil, h.id())) })
			}
		default:
			for _, h := range w.hosts {
				_ = h.input(func(rn *RawNode) error { rn.TickN(3); return nil })
			}
		}
		runIdle()
	}
	return torn, nil
}

// Two membership changes, and a crash of node 1 in the write that brings it the second change together with
// the commit index of the first. In the contract's order every prefix of that write is safe. With the entries
// before the commit index node 1 holds the second change and has forgotten the first: it counts votes by the
// configuration before both, and is elected in the term that another node leads by the configuration after
// both.
func TestTornWriteOfASecondChange(t *testing.T) {
	for name, c := range map[string]struct {
		order writeOrder
		parts int // of the write
		safe  bool
	}{
		"contract, nothing":           {inContractOrder, 0, true},
		"contract, term":              {inContractOrder, 1, true},
		"contract, truncated":         {inContractOrder, 2, true},
		"contract, commit index":      {inContractOrder, 3, true},
		"contract, all":               {inContractOrder, 4, true},
		"commit index last, one less": {commitLast, 3, false},
		"commit index last, all":      {commitLast, 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := tearASecondChange(t, c.order, c.parts)
			if t.Logf("%.150v", err); (err == nil) != c.safe {
				t.Errorf("safe: %t, want %t", err == nil, c.safe)
			}
		})
	}
}

func tearASecondChange(t *testing.T, order writeOrder, parts int) (broken any) {
	defer func() { broken = recover() }()
	w := newGrowingCluster(5, 3, bySnapshot, nil)
	w.order = order
	w.judge.forgetful = true // so that the story continues to its end
	first, leader := w.host(1), w.host(3)
	add := func(id uint64) (index uint64) {
		change := raftpb.ConfChange{Type: raftpb.ConfChangeAddNode, NodeID: id}
		must(t, leader.input(func(rn *RawNode) error { return rn.ProposeConfChange(change) }))
		return leader.node.BasicStatus().LastIndex
	}
	must(t, leader.input((*RawNode).Campaign))
	w.runIdle(nil)
	x := add(4)
	w.runIdle(func(m raftpb.Message) bool { return m.To == 1 && m.Commit >= x })
	y := add(5)
	var both []raftpb.Message // for node 1: the second change, and the commit index of the first
	w.runIdle(func(m raftpb.Message) bool {
		if m.To == 1 && m.Type == raftpb.MsgApp && m.Index < y {
			both = append(both, m)
		}
		return m.To == 1
	})
	for _, m := range both {
		_ = w.handOver(m)
	}
	first.takeReady()
	if n := len(first.appends); n != 1 || first.appends[0].Commit != x || len(first.appends[0].Entries) != 1 {
		t.Fatalf("node 1 has %d writes under way, want one of entry %d and commit index %d", n, y, x)
	}
	first.crash()
	first.recover(0, parts)
	first.restart(0, 0)
	side := func(id uint64) bool { return id <= 2 }
	cut := func(m raftpb.Message) bool { return side(m.From) != side(m.To) }
	leader.crash()
	leader.restart(0, leader.applied)
	for range 3 {
		for _, h := range []*host{first, leader} {
			_ = h.input((*RawNode).Campaign)
			w.runIdle(cut)
			_ = h.input(func(rn *RawNode) error { return rn.Propose(fmt.Append(nil, "of ", h.id())) })
			w.runIdle(cut)
		}
	}
	if leader.node.raft.role != StateLeader {
		t.Fatalf("of 3, 4 and 5 none leads: %s", statusLine(leader))
	}
	return nil
}

// A commit index that only the state machine remembers is saved before any later entry: the state machine may
// be rebuilt after the next crash. (Seen in seed 42 of TestTornWrites.)
func TestCommitIndexOfTheStateMachineIsSaved(t *testing.T) {
	for _, async := range []bool{true, false} {
		s := NewMemoryStorage()
		s.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2}})
		save(t, s, raftpb.HardState{Term: 1, Commit: 1}, logOfTerms(1, 1, 1))
		rn := newTestNodeOn(t, 1, s, func(c *Config) { c.AsyncStorageWrites, c.Applied = async, 3 })
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 1, Index: 3, LogTerm: 1, Commit: 3, Entries: []raftpb.Entry{{Term: 1, Index: 4}}}))
		if rd := rn.Ready(); len(rd.Entries) != 1 || rd.HardState.Commit != 3 || !rd.MustSync {
			t.Errorf("async %t: writes %s with %v, want commit index 3 beside it", async, describeEntries(rd.Entries), rd.HardState)
		}
	}
}
