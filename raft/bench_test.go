package raft

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// testing.AllocsPerRun counts the allocations of the whole process, so this test must run alone; it is not
// parallel, and parallel tests wait for it.
func TestHasReadyAllocatesNothing(t *testing.T) {
	for _, async := range []bool{true, false} {
		rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) { c.AsyncStorageWrites = async })
		count := func(when string) {
			t.Helper()
			if n := testing.AllocsPerRun(100, func() { rn.HasReady() }); n != 0 {
				t.Errorf("async %t, %s: HasReady allocates %v times", async, when, n)
			}
			if n := testing.AllocsPerRun(100, func() { rn.BasicStatus() }); n != 0 {
				t.Errorf("async %t, %s: BasicStatus allocates %v times", async, when, n)
			}
		}
		count("at rest")
		elect(t, rn, s)
		count("as leader")
		must(t, rn.Propose([]byte("x")))
		count("with work to do")
	}
}

// BenchmarkProposal measures one leader of three voters. A turn proposes a batch, takes and does the work of
// a Ready, steps the acknowledgements of both followers, and applies. Times and allocations are per proposal.
// Each follower is one prepared message and costs nothing; neither does the storage, except for its copy of
// the entries.
func BenchmarkProposal(b *testing.B) {
	for _, async := range []bool{false, true} {
		for _, batch := range []int{1, 64} {
			b.Run(fmt.Sprintf("async=%t/batch=%d", async, batch), func(b *testing.B) { benchmarkProposal(b, async, batch) })
		}
	}
}

func benchmarkProposal(b *testing.B, async bool, batch int) {
	l := newBenchLeader(b, 3, async, batch)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%batch == 0 { // proposals in between wait for the batch to be full
			l.turn(b)
		}
	}
	if st := l.node.BasicStatus(); st.Applied != st.LastIndex {
		b.Fatalf("applied %d of %d", st.Applied, st.LastIndex)
	}
}

// TestProposalsAllocateLittle limits what a proposal allocates on a leader in a steady state, its share of
// arrays that serve many proposals included. At batch 1, and with five voters, most of it is messages, which
// are cut from arrays of about fifty.
func TestProposalsAllocateLittle(t *testing.T) {
	for _, async := range []bool{false, true} {
		for _, row := range []struct {
			batch int
			most  float64 // allocations of a proposal
		}{{1, 0.5}, {64, 0.02}} {
			for _, voters := range []int{1, 3, 5} {
				l := newBenchLeader(t, voters, async, row.batch)
				const turns = 256
				run := func() {
					for range turns {
						l.turn(t)
					}
				}
				run() // until everything has its final size
				if have := testing.AllocsPerRun(4, run) / float64(turns*row.batch); have > row.most {
					t.Errorf("async %t, %d voters, %d proposals at once: each allocates %.3f times, want at most %v", async, voters, row.batch, have, row.most)
				}
			}
		}
	}
}

// Propose keeps nothing but the command.
func TestProposeAllocatesLittle(t *testing.T) {
	l := newBenchLeader(t, 1, false, 1)
	command := []byte("x")
	propose := func() {
		for range fullArray {
			must(t, l.node.Propose(command))
			benchWork(t, l.node, l.storage)
		}
	}
	propose()
	if n := testing.AllocsPerRun(4, propose); n > 2 {
		t.Errorf("%d proposals allocate %v times, want one array of entries", fullArray, n)
	}
}

// benchLeader is a leader whose followers are one prepared message each.
type benchLeader struct {
	node    *RawNode
	storage *benchStorage
	voters  int
	entries []raftpb.Entry
}

func newBenchLeader(tb testing.TB, voters int, async bool, batch int) *benchLeader {
	l := &benchLeader{storage: &benchStorage{}, voters: voters, entries: make([]raftpb.Entry, batch)}
	for id := range voters {
		l.storage.voters = append(l.storage.voters, uint64(id)+1)
	}
	for i := range l.entries {
		l.entries[i].Data = make([]byte, 128)
	}
	l.node = newTestNodeOn(tb, 1, l.storage, func(c *Config) {
		c.AsyncStorageWrites = async
		c.MaxInflightMsgs = 256
	})
	must(tb, l.node.Campaign())
	benchWork(tb, l.node, l.storage)
	for id := 2; id <= voters/2+1; id++ {
		must(tb, l.node.Step(raftpb.Message{Type: raftpb.MsgVoteResp, From: uint64(id), Term: 1}))
	}
	l.runIdle(tb)
	return l
}

func (l *benchLeader) turn(tb testing.TB) {
	must(tb, l.node.Step(raftpb.Message{Type: raftpb.MsgProp, From: 1, Entries: l.entries}))
	l.runIdle(tb)
}

func (l *benchLeader) runIdle(tb testing.TB) {
	benchWork(tb, l.node, l.storage)
	for id := 2; id <= l.voters; id++ {
		must(tb, l.node.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: uint64(id), Term: 1, Index: l.storage.last}))
	}
	benchWork(tb, l.node, l.storage)
}

func benchWork(b testing.TB, rn *RawNode, s *benchStorage) {
	for rn.HasReady() {
		rd := rn.Ready()
		s.save(rd.Entries)
		if !rn.async {
			rn.Advance(rd)
			continue
		}
		for i := range rd.Messages {
			if m := &rd.Messages[i]; IsLocalMsgTarget(m.To) {
				for _, r := range m.Responses {
					if r.To == 1 {
						must(b, rn.Step(r))
					}
				}
			}
		}
	}
}

// benchStorage keeps the last few thousand entries in a ring, so that its cost does not grow with time.
type benchStorage struct {
	ring   [1 << 12]raftpb.Entry
	last   uint64
	voters []uint64
}

func (s *benchStorage) save(entries []raftpb.Entry) {
	for _, e := range entries {
		s.ring[e.Index%uint64(len(s.ring))] = e
		s.last = e.Index
	}
}

func (s *benchStorage) InitialState() (raftpb.HardState, raftpb.ConfState, error) {
	return raftpb.HardState{}, raftpb.ConfState{Voters: s.voters}, nil
}

func (s *benchStorage) Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	at, n := lo%uint64(len(s.ring)), hi-lo
	return limitSize(s.ring[at:min(at+n, uint64(len(s.ring)))], maxSize), nil
}

func (s *benchStorage) Term(i uint64) (uint64, error)      { return s.ring[i%uint64(len(s.ring))].Term, nil }
func (s *benchStorage) LastIndex() (uint64, error)         { return s.last, nil }
func (s *benchStorage) FirstIndex() (uint64, error)        { return 1, nil }
func (s *benchStorage) Snapshot() (raftpb.Snapshot, error) { return raftpb.Snapshot{}, nil }
