package raft

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// testing.AllocsPerRun counts the allocations of the whole process, so this test must not run beside others;
// it is not parallel, and parallel tests wait for it.
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

// BenchmarkProposal is one leader of three voters. A turn is: propose a batch, take what is to be done and do
// it, hear both followers acknowledge, and apply. Times and allocations are for one proposal; the followers
// are made of one prepared message each and cost nothing, and so does the storage, but for its copy of the
// entries.
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
		if n%batch == 0 { // the others count towards the batch that has been done
			l.turn(b)
		}
	}
	if st := l.node.BasicStatus(); st.Applied != st.LastIndex {
		b.Fatalf("applied %d of %d", st.Applied, st.LastIndex)
	}
}

// What a proposal allocates on a leader in a steady state, its part of what serves many of them included. At
// batch 1 and with five voters most of it are messages, which are carved from arrays of about fifty.
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
				run() // so that everything has its size
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

// benchLeader is a leader, whose followers are made of a prepared message each.
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
	l.settle(tb)
	return l
}

func (l *benchLeader) turn(tb testing.TB) {
	must(tb, l.node.Step(raftpb.Message{Type: raftpb.MsgProp, From: 1, Entries: l.entries}))
	l.settle(tb)
}

func (l *benchLeader) settle(tb testing.TB) {
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

// benchStorage keeps the last few thousand entries in a ring, so that storage costs the same however long it
// runs.
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
