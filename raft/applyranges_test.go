package raft

import (
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
)

// A cluster that applies ranges ends, after each input, in the same logs and with the same applied entries as
// one that is handed entries.
func TestRangesChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		change := anyConfig(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), true)
		entries := newTestCluster(3, func(c *Config) { change(c); c.ApplyRanges = false })
		ranges := newTestCluster(3, func(c *Config) { change(c); c.ApplyRanges = true })
		sameHistory(t, ranges, entries)
	})
}

// takeRange takes a Ready, and returns the range to apply in it and the worker's answer. It carries out the
// writes.
func takeRange(t *testing.T, rn *RawNode, s *MemoryStorage) (r raftpb.Message, answer []raftpb.Message) {
	t.Helper()
	rd := rn.Ready()
	if len(rd.CommittedEntries) > 0 {
		t.Fatalf("%d entries are handed out", len(rd.CommittedEntries))
	}
	for _, m := range rd.Messages {
		switch m.To {
		case LocalAppendThread:
			write(s, m)
			for _, a := range m.Responses {
				if a.To == rn.BasicStatus().ID {
					must(t, rn.Step(a))
				}
			}
		case LocalApplyThread:
			r, answer = m, m.Responses
		}
	}
	return r, answer
}

// A cold log is handed out for apply without a read. As the sizes of its entries are not known, a range has
// as many entries as would fit if each took its overhead.
func TestRangesAreNotRead(t *testing.T) {
	for _, c := range []struct{ overhead, limit, want uint64 }{
		{0, 10 * entryBytes, 10},
		{0, 1, 1},
		{1000, 5000, 5},
		{1, 1 << 30, 30},
	} {
		terms := make([]uint64, 30)
		for i := range terms {
			terms[i] = 1
		}
		memory := NewMemoryStorage()
		memory.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2}})
		must(t, memory.Append(logOfTerms(terms...)))
		must(t, memory.SetHardState(raftpb.HardState{Term: 1, Commit: 30}))
		s := &brokenReads{MemoryStorage: memory}
		rn := newTestNodeOn(t, 1, s, func(cfg *Config) {
			cfg.ApplyRanges, cfg.EntryOverheadBytes, cfg.MaxCommittedSizePerReady = true, c.overhead, c.limit
		})
		s.err = errors.New("the core reads")
		for applied := uint64(0); applied < 30; {
			r, answer := takeRange(t, rn, memory)
			if want := min(applied+c.want, 30); r.Index != applied || r.Commit != want || len(r.Entries) > 0 {
				t.Fatalf("%+v: the range (%d,%d], want (%d,%d]", c, r.Index, r.Commit, applied, want)
			}
			if r.Commit < 30 && rn.HasReady() {
				t.Fatalf("%+v: more to apply before the range through %d is acknowledged", c, r.Commit)
			}
			must(t, rn.Step(answer[0]))
			applied = r.Commit
		}
		if rn.Err() != nil || rn.BasicStatus().Applied != 30 {
			t.Errorf("%+v: applied %d, %v", c, rn.BasicStatus().Applied, rn.Err())
		}
	}
}

// A leader's apply worker hangs while many more entries become durable than those of which the core remembers
// the sizes. Ranges keep to their limit, and every byte of the leader's own entries comes back once.
func TestRangesOfOwnEntries(t *testing.T) {
	const entries, payload, overhead, limit = 3 * maxSizesOfDurable, 10, 7, 50_000
	rn, s := newTestNode(t, 1, []uint64{1}, raftpb.HardState{}, nil, func(c *Config) {
		c.ApplyRanges, c.EntryOverheadBytes, c.MaxCommittedSizePerReady = true, overhead, limit
	})
	must(t, rn.Campaign())
	var waiting []raftpb.Message
	run := func() {
		for rn.HasReady() {
			if _, answer := takeRange(t, rn, s); answer != nil {
				waiting = append(waiting, answer...)
			}
		}
	}
	run()
	for i := range entries {
		must(t, rn.Propose(make([]byte, payload)))
		if i%100 == 0 {
			run()
		}
	}
	run()
	if have, want := rn.raft.leader.uncommittedBytes, uint64(entries*(payload+overhead)+overhead); have != want {
		t.Fatalf("setup: %d bytes are not applied, want %d", have, want)
	}
	if n := len(rn.raft.log.unstable.sizes.totals.items()); n > entries+1 {
		t.Errorf("the sizes of %d entries are remembered", n)
	}
	for len(waiting) > 0 {
		if rn.raft.log.apply.bytes > limit+100 {
			t.Fatalf("%d bytes are handed out, want at most %d and one entry", rn.raft.log.apply.bytes, limit)
		}
		answer := waiting[0]
		waiting = waiting[1:]
		must(t, rn.Step(answer))
		run()
	}
	if s := rn.BasicStatus(); s.Applied != entries+1 || rn.raft.leader.uncommittedBytes != 0 || rn.raft.log.apply.bytes != 0 {
		t.Errorf("applied %d of %d; %d bytes of the leader and %d handed out remain", s.Applied, entries+1, rn.raft.leader.uncommittedBytes, rn.raft.log.apply.bytes)
	}
	rn.Tick()
	rn.Tick()
	if n := len(rn.raft.log.unstable.sizes.totals.items()); n > 0 {
		t.Errorf("the sizes of %d applied entries are remembered", n)
	}
}

// A volatile state machine is handed out what only memory has as entries, and the rest as ranges.
func TestRangesAndEntries(t *testing.T) {
	w := newTestCluster(3, func(c *Config) {
		c.ApplyRanges, c.ApplyUnstable, c.MaxCommittedSizePerReady = true, true, 50
	})
	w.start()
	leader := w.host(1)
	must(t, leader.input((*RawNode).Campaign))
	w.runIdle(nil)
	disk := func() {
		for _, ok := leader.runAppend(); ok; _, ok = leader.runAppend() {
		}
		for len(leader.inbox) > 0 {
			leader.hearOwn(0)
		}
	}
	propose(t, leader, string(make([]byte, 100))) // from now on nothing is handed out until it is applied
	w.othersWork(leader)
	propose(t, leader, "b")
	w.othersWork(leader)
	disk()
	propose(t, leader, "c")
	w.othersWork(leader)
	if s := leader.node.BasicStatus(); s.Durable != 3 || s.Commit != 4 || len(leader.applies) != 1 || len(leader.applies[0].Entries) != 1 {
		t.Fatalf("setup: %s; to apply: %v", statusLine(leader), leader.applies)
	}
	leader.runApply()
	for len(leader.inbox) > 0 {
		leader.hearOwn(0)
	}
	w.othersWork(leader)
	if q := leader.applies; len(q) != 2 || len(q[0].Entries) != 0 || q[0].Index != 2 || q[0].Commit != 3 || len(q[1].Entries) != 1 || q[1].Entries[0].Index != 4 {
		t.Fatalf("to apply: %v; want the range (2,3], and entry 4", q)
	}
	w.runIdle(nil)
	if f := w.host(2); f.applied != 4 || leader.applied != 4 {
		t.Errorf("applied %d and %d, want 4", leader.applied, f.applied)
	}
}
