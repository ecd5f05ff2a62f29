package raft

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
)

// slowStorage is the storage of a test cluster's node. Where the cluster has slow disks, chance decides which
// reads take time. Such a read ends when the test says so (host.arrive), and even then the entries may be
// gone again.
type slowStorage struct {
	asOfApplied
	host    *host
	honest  bool       // it is the judge that reads
	waiting []slowRead // in the order in which they were asked
}

type slowRead struct{ reader, lo, term, changes uint64 }

func (s *slowStorage) EntriesFor(reader, lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	if s.honest || s.host.cluster.slow == nil {
		return s.Entries(lo, hi, maxSize)
	}
	j := s.host.cluster.judge
	now := slowRead{reader, lo, s.host.node.raft.term, uint64(len(j.confs))}
	for i, before := range s.waiting {
		if before.reader != reader {
			continue
		}
		// A new leadership, or a member that left and came back, has no memory of the read; and after a
		// snapshot the apply worker needs other entries.
		again := before.term == now.term && before.changes == now.changes
		if reader == LocalApplyThread {
			again = before.lo == now.lo
		}
		if again {
			j.broken("node %d reads entry %d for %d, which waits for entry %d", s.host.id(), lo, reader, before.lo)
		}
		s.noteOvertaken(before)
		s.waiting[i] = now
		return nil, ErrEntriesPending
	}
	if !s.host.cluster.slow(reader) {
		return s.Entries(lo, hi, maxSize)
	}
	s.waiting = append(s.waiting, now)
	return nil, fmt.Errorf("a slow disk: %w", ErrEntriesPending)
}

// noteOvertaken notes whether the leader that has asked for a read leads no more.
func (s *slowStorage) noteOvertaken(read slowRead) {
	if r := s.host.node.raft; read.reader != LocalApplyThread && (r.term != read.term || r.role != StateLeader) {
		s.host.cluster.overtaken = true
	}
}

// arrive ends a read that is under way, and reports for whom it was.
func (h *host) arrive(i int) (reader uint64) {
	reader = h.slow.waiting[i].reader
	h.slow.noteOvertaken(h.slow.waiting[i])
	h.slow.waiting = slices.Delete(h.slow.waiting, i, i+1)
	_ = h.input(func(rn *RawNode) error { rn.EntriesArrived(reader); return nil })
	return reader
}

// A cluster whose storages often answer that a read takes time ends, after each input and once all reads have
// arrived, in the same logs and with the same applied entries as a cluster whose storages never do.
//
// That holds until a leader is deposed while it reads for a follower. Where no read takes time, its append
// has left before: the follower has entries that it lacks in the other cluster, where a deposed leader must
// send nothing. So a run ends there. What must hold of it nevertheless, the judge of each cluster demands.
func TestSlowReadsChangeNothing(t *testing.T) {
	slowReads, compared, overtaken := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		change := anyConfig(rand.New(rand.NewPCG(seed, 0)), rapid.Bool().Draw(t, "async"))
		fast, slow := newTestCluster(3, change), newTestCluster(3, change)
		chance := rand.New(rand.NewPCG(seed, 1))
		slow.slow = func(uint64) bool {
			takesTime := chance.IntN(3) > 0
			if takesTime {
				slowReads++
			}
			return takesTime
		}
		compared += sameHistory(t, slow, fast)
		if slow.overtaken {
			overtaken++
		}
	})
	t.Logf("%d reads took time, %d states were compared, %d runs ended with a leader that was deposed while it read", slowReads, compared, overtaken)
	if slowReads == 0 || compared < 100*overtaken {
		t.Error("too little was compared")
	}
}

// sameHistory gives two clusters the same random inputs, and demands the same state of both when all work is
// done after each of them, until have is overtaken. It returns how often it has compared them.
func sameHistory(t *rapid.T, have, want *testCluster) (compared int) {
	want.start()
	have.start()
	for range rapid.IntRange(1, 80).Draw(t, "steps") {
		id := rapid.Uint64Range(1, 3).Draw(t, "node")
		kind := rapid.IntRange(0, 12).Draw(t, "kind")
		for _, w := range []*testCluster{want, have} {
			h := w.host(id)
			switch {
			case kind < 6:
				_ = h.input(func(rn *RawNode) error { rn.Tick(); return nil })
			case kind < 9:
				_ = h.input(func(rn *RawNode) error { return rn.Propose([]byte("x")) })
			case kind < 10:
				_ = h.input((*RawNode).Campaign)
			case kind < 11:
				h.crash()
				h.restart(len(h.unsynced), 0)
			default:
				if h.applied > 0 && h.applied <= h.node.raft.log.applied {
					h.compact(h.applied)
				}
			}
			cut := uint64(kind%4) * id // sometimes one node is cut off
			w.runIdle(func(m raftpb.Message) bool {
				if m.Type == raftpb.MsgSnap && m.To != cut {
					_ = w.handOver(m)
					_ = w.host(m.From).input(func(rn *RawNode) error { rn.ReportSnapshot(m.To, SnapshotFinish); return nil })
					return true
				}
				return m.From == cut || m.To == cut
			})
		}
		if have.overtaken {
			break
		}
		compared++
		for i := range want.hosts {
			a, b := have.hosts[i], want.hosts[i]
			if a, b := a.node.BasicStatus(), b.node.BasicStatus(); a != b {
				t.Fatalf("node %d: have %+v, want %+v", i+1, a, b)
			}
			if logA, logB := describeEntries(allEntries(a.node)), describeEntries(allEntries(b.node)); logA != logB || a.applied != b.applied {
				t.Fatalf("node %d: have %s, applied %d; want %s, applied %d", i+1, logA, a.applied, logB, b.applied)
			}
		}
	}
	return compared
}

// readingCluster has a leader, node 1, and node 3, which lacks entries that the leader has to read. The
// leader's reads take time from now on.
func readingCluster(t *testing.T) (w *testCluster, leader *host) {
	t.Helper()
	w = newTestCluster(3, func(c *Config) { c.CheckQuorum, c.PreVote = true, true })
	w.start()
	leader = w.host(1)
	must(t, leader.input((*RawNode).Campaign))
	w.runIdle(nil)
	cut := func(m raftpb.Message) bool { return m.From == 3 || m.To == 3 }
	for range 5 {
		propose(t, leader, "x")
		w.runIdle(cut)
	}
	w.slow = func(reader uint64) bool { return reader == 3 }
	return w, leader
}

func propose(t *testing.T, h *host, data string) {
	t.Helper()
	must(t, h.input(func(rn *RawNode) error { return rn.Propose([]byte(data)) }))
}

// round runs all work and all messages, except that reads stay under way, and returns the messages to node 3.
func (w *testCluster) round() (to3 []raftpb.Message) {
	for moved := true; moved; {
		moved = false
		for _, h := range w.hosts {
			moved = h.workWithoutReads() || moved
		}
		for len(w.net) > 0 {
			m := w.drop(0)
			if m.To == 3 {
				to3 = append(to3, m)
			}
			_ = w.handOver(m)
			moved = true
		}
	}
	return to3
}

func (w *testCluster) tick(h *host) {
	_ = h.input(func(rn *RawNode) error { rn.Tick(); return nil })
}

// A read of the leader's log for node 3 hangs, for many election timeouts. Node 3 gets heartbeats and nothing
// else, and however often it answers them only one read is under way. The rest of the group keeps its leader,
// commits and applies. When the entries arrive node 3 gets them.
func TestHungReadCostsItsFollowerOnly(t *testing.T) {
	w, leader := readingCluster(t)
	heartbeat(t, w, leader)
	term := leader.node.BasicStatus().Term
	heartbeats := 0
	for range 50 {
		for _, h := range w.hosts {
			w.tick(h)
		}
		commit := leader.node.BasicStatus().Commit
		propose(t, leader, "y")
		for _, m := range w.round() {
			if m.Type != raftpb.MsgHeartbeat {
				t.Fatalf("node 3 is sent %s", describe(m))
			}
			heartbeats++
		}
		if s := leader.node.BasicStatus(); s.RaftState != StateLeader || s.Term != term || s.Commit != commit+1 || s.Applied != s.Commit {
			t.Fatalf("the leader: %s, want commit %d in term %d", statusLine(leader), commit+1, term)
		}
	}
	if n := len(leader.slow.waiting); n != 1 || leader.slow.waiting[0].reader != 3 {
		t.Fatalf("%d reads are under way: %v, want one for node 3", n, leader.slow.waiting)
	}
	if heartbeats < 10 {
		t.Errorf("node 3 was sent %d heartbeats in 50 ticks", heartbeats)
	}
	if p := leader.node.Status().Progress[3]; !strings.Contains(p.String(), "reading") {
		t.Errorf("the status of node 3 is %s, want that it waits for a read", p.String())
	}
	w.slow = nil
	leader.arrive(0)
	w.runIdle(nil)
	if have, want := w.host(3).node.BasicStatus().LastIndex, leader.node.BasicStatus().LastIndex; have != want {
		t.Errorf("node 3 has %d entries after the read, want %d", have, want)
	}
}

// heartbeat lets node 3 answer the leader, which then reads entries for it.
func heartbeat(t *testing.T, w *testCluster, leader *host) {
	t.Helper()
	w.tick(leader)
	w.round()
	w.tick(leader)
	w.round()
	if len(leader.slow.waiting) == 0 {
		t.Fatal("setup: the leader reads nothing")
	}
}

// The leader is deposed while a read is under way, and is elected again. It asks afresh; the arrival of the
// old read does no harm in any role.
func TestLeaderIsReplacedDuringARead(t *testing.T) {
	w, leader := readingCluster(t)
	heartbeat(t, w, leader)
	must(t, leader.input(func(rn *RawNode) error { rn.StepDown(0); return nil }))
	arrive := func(reader uint64) {
		must(t, leader.input(func(rn *RawNode) error { rn.EntriesArrived(reader); return nil }))
	}
	arrive(3)
	arrive(None)
	must(t, w.host(2).input((*RawNode).Campaign))
	w.round()
	arrive(3)
	must(t, w.host(2).input(func(rn *RawNode) error { return rn.TransferLeader(1) }))
	w.round()
	if s := leader.node.BasicStatus(); s.RaftState != StateLeader {
		t.Fatalf("setup: node 1 does not lead again: %s", statusLine(leader))
	}
	arrive(9)
	w.slow = nil
	for _, h := range w.hosts {
		_ = h.input(func(rn *RawNode) error { rn.EntriesArrived(None); return nil })
	}
	w.runIdle(nil)
	for range 3 {
		w.tick(leader)
		w.runIdle(nil)
	}
	if a, b := leader.node.BasicStatus(), w.host(3).node.BasicStatus(); a.Commit != b.Commit || a.LastIndex != b.LastIndex {
		t.Errorf("node 3 has %+v, its leader %+v", b, a)
	}
}

// The log is compacted while the leader reads entries for a follower. The answer after EntriesArrived is
// ErrCompacted, and the follower gets a snapshot.
func TestCompactionDuringARead(t *testing.T) {
	w, leader := readingCluster(t)
	heartbeat(t, w, leader)
	leader.compact(leader.applied)
	leader.arrive(0)
	installed := w.host(3).installed
	w.runIdle(nil)
	if w.host(3).installed != installed+1 || w.host(3).applied != leader.applied {
		t.Errorf("node 3 has installed %d snapshots and applied %d entries, want 1 more and %d", w.host(3).installed-installed, w.host(3).applied, leader.applied)
	}
}

// A member is removed while the leader reads for it, and is added again. It starts afresh.
func TestMemberLeavesDuringARead(t *testing.T) {
	w, leader := readingCluster(t)
	heartbeat(t, w, leader)
	for _, kind := range []raftpb.ConfChangeType{raftpb.ConfChangeRemoveNode, raftpb.ConfChangeAddNode} {
		must(t, leader.input(func(rn *RawNode) error { return rn.ProposeConfChange(raftpb.ConfChange{Type: kind, NodeID: 3}) }))
		w.round()
		if kind == raftpb.ConfChangeRemoveNode {
			must(t, leader.input(func(rn *RawNode) error { rn.EntriesArrived(3); return nil }))
		}
	}
	heartbeat(t, w, leader)
	if reads := leader.slow.waiting; len(reads) != 1 || reads[0].changes == 0 {
		t.Fatalf("the reads %v are under way, want one for the new member", reads)
	}
	w.slow = nil
	w.runIdle(nil)
	if a, b := leader.node.BasicStatus(), w.host(3).node.BasicStatus(); a.LastIndex != b.LastIndex {
		t.Errorf("node 3 has %+v, its leader %+v", b, a)
	}
}

// A read that has failed is an error of storage, and stops the node.
func TestFailedRead(t *testing.T) {
	s := &brokenReads{MemoryStorage: NewMemoryStorage()}
	s.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2}})
	must(t, s.Append(logOfTerms(1, 1)))
	must(t, s.SetHardState(raftpb.HardState{Term: 1, Commit: 2}))
	cfg := testConfig(1, s)
	rn, err := NewRawNode(&cfg)
	must(t, err)
	s.err = fmt.Errorf("on its way: %w", ErrEntriesPending)
	if !rn.HasReady() {
		t.Fatal("nothing to apply, want two entries")
	}
	for range 3 {
		rd := rn.Ready()
		if len(rd.CommittedEntries) > 0 || rn.Err() != nil || rn.HasReady() {
			t.Fatalf("%d entries to apply, and %v, while they are being read", len(rd.CommittedEntries), rn.Err())
		}
		if rn.EntriesArrived(LocalApplyThread); !rn.HasReady() {
			t.Fatal("after the arrival there is nothing to apply")
		}
	}
	s.err = errors.New("the disk is gone")
	rn.Ready()
	if rn.Err() == nil || !errors.Is(rn.Err(), s.err) {
		t.Errorf("after a failed read: %v", rn.Err())
	}
	rn.EntriesArrived(None) // a stopped node takes no input
}

// NewRawNode needs all entries at once.
func TestStartDoesNotWaitForReads(t *testing.T) {
	s := &brokenReads{MemoryStorage: NewMemoryStorage(), err: ErrEntriesPending}
	must(t, s.Append(logOfTerms(1, 1)))
	must(t, s.SetHardState(raftpb.HardState{Term: 1}))
	cfg := testConfig(1, s)
	if _, err := NewRawNode(&cfg); !errors.Is(err, ErrEntriesPending) || !strings.Contains(err.Error(), "entries [1,3) while the node starts") {
		t.Errorf("a read that takes time at the start: %v", err)
	}
}

type brokenReads struct {
	*MemoryStorage
	err error
}

func (s *brokenReads) Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.MemoryStorage.Entries(lo, hi, maxSize)
}

// A read for the apply worker hangs, and a snapshot takes the place of the entries. What follows the snapshot
// is handed out without waiting for that read.
func TestSnapshotDuringAReadForApply(t *testing.T) {
	s := &brokenReads{MemoryStorage: NewMemoryStorage()}
	s.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2}})
	must(t, s.Append(logOfTerms(1, 1)))
	must(t, s.SetHardState(raftpb.HardState{Term: 1, Commit: 2}))
	rn := newTestNodeOn(t, 1, s)
	s.err = ErrEntriesPending
	run := func() (toApply []raftpb.Entry) {
		for rn.HasReady() {
			rd := rn.Ready()
			toApply = append(toApply, rd.CommittedEntries...)
			for _, m := range rd.Messages {
				if m.To != LocalAppendThread {
					continue
				}
				write(s.MemoryStorage, m)
				for _, answer := range m.Responses {
					if answer.To == 1 {
						must(t, rn.Step(answer))
					}
				}
			}
		}
		return toApply
	}
	if n := len(run()); n > 0 {
		t.Fatalf("setup: %d entries to apply", n)
	}
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgSnap, From: 2, Term: 1, Snapshot: snapshotAt(7, 1, 1, 2)}))
	run()
	s.err = nil // only the old read hangs
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 1, Index: 7, LogTerm: 1, Commit: 8, Entries: []raftpb.Entry{{Term: 1, Index: 8}}}))
	if e := run(); len(e) != 1 || e[0].Index != 8 {
		t.Errorf("to apply: %s, want entry 8", describeEntries(e))
	}
}
