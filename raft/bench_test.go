package raft

import (
	"fmt"
	"testing"

	pb "github.com/millrace/millrace/raft/raftpb"
)

// testing.AllocsPerRun counts the allocations of the whole process, so this test must not run beside others; it is not
// parallel, and parallel tests wait for it.
func TestHasReadyAllocatesNothing(t *testing.T) {
	for _, async := range []bool{true, false} {
		rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, pb.HardState{}, nil, func(c *Config) { c.AsyncStorageWrites = async })
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

// BenchmarkProposal is one leader of three voters. A turn is: propose a batch, take what is to be done and do it, hear both
// followers acknowledge, and apply. Times and allocations are for one proposal; the followers are made of one
// prepared message each and cost nothing, and so does the storage, but for its copy of the entries.
func BenchmarkProposal(b *testing.B) {
	for _, async := range []bool{false, true} {
		for _, batch := range []int{1, 64} {
			b.Run(fmt.Sprintf("async=%t/batch=%d", async, batch), func(b *testing.B) { benchmarkProposal(b, async, batch) })
		}
	}
}

func benchmarkProposal(b *testing.B, async bool, batch int) {
	s := &benchStorage{}
	rn := newTestNodeOn(b, 1, s, func(c *Config) {
		c.AsyncStorageWrites = async
		c.MaxInflightMsgs = 256
	})
	must(b, rn.Campaign())
	benchWork(b, rn, s)
	must(b, rn.Step(pb.Message{Type: pb.MsgVoteResp, From: 2, Term: 1}))
	benchWork(b, rn, s)
	hear := func() {
		last := rn.BasicStatus().LastIndex
		for id := uint64(2); id <= 3; id++ {
			must(b, rn.Step(pb.Message{Type: pb.MsgAppResp, From: id, Term: 1, Index: last}))
		}
	}
	hear()
	entries := make([]pb.Entry, batch)
	for i := range entries {
		entries[i].Data = make([]byte, 128)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%batch != 0 {
			continue // counts towards the batch that has been done
		}
		must(b, rn.Step(pb.Message{Type: pb.MsgProp, From: 1, Entries: entries}))
		benchWork(b, rn, s)
		hear()
		benchWork(b, rn, s)
	}
	if st := rn.BasicStatus(); st.Applied != st.LastIndex {
		b.Fatalf("applied %d of %d", st.Applied, st.LastIndex)
	}
}

func benchWork(b *testing.B, rn *RawNode, s *benchStorage) {
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

// benchStorage keeps the last few thousand entries in a ring, so that storage costs the same however long it runs.
type benchStorage struct {
	ring [1 << 12]pb.Entry
	last uint64
}

func (s *benchStorage) save(entries []pb.Entry) {
	for _, e := range entries {
		s.ring[e.Index%uint64(len(s.ring))] = e
		s.last = e.Index
	}
}

func (s *benchStorage) InitialState() (pb.HardState, pb.ConfState, error) {
	return pb.HardState{}, pb.ConfState{Voters: []uint64{1, 2, 3}}, nil
}

func (s *benchStorage) Entries(lo, hi, maxSize uint64) ([]pb.Entry, error) {
	at, n := lo%uint64(len(s.ring)), hi-lo
	return limitSize(s.ring[at:min(at+n, uint64(len(s.ring)))], maxSize), nil
}

func (s *benchStorage) Term(i uint64) (uint64, error)  { return s.ring[i%uint64(len(s.ring))].Term, nil }
func (s *benchStorage) LastIndex() (uint64, error)     { return s.last, nil }
func (s *benchStorage) FirstIndex() (uint64, error)    { return 1, nil }
func (s *benchStorage) Snapshot() (pb.Snapshot, error) { return pb.Snapshot{}, nil }
