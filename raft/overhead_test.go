package raft

import (
	"errors"
	"runtime"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// A leader's disk hangs while its followers are healthy, so proposals are committed and acknowledged.
// MaxUncommittedEntriesSize limits what the leader holds of them: in payload, as in etcd-io/raft, or in
// memory, with an overhead for each entry.
func TestTailBehindAHungDiskIsBounded(t *testing.T) {
	const bound = 16 << 20
	for _, overhead := range []uint64{0, EntryOverhead} {
		leader, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) {
			c.EntryOverheadBytes = overhead
			c.MaxUncommittedEntriesSize = bound
		})
		elect(t, leader, s)
		work(t, leader, s)
		before := heapBytes()
		var hung [][]raftpb.Entry // of writes that never finish
		proposed := 0
		var err error
		for err == nil && proposed < 400_000 { // 400 kB of payload
			for range 1 + proposed/100%64 {
				if err = leader.Propose([]byte{byte(proposed)}); err == nil {
					proposed++
				}
			}
			for _, m := range leader.Ready().Messages {
				if m.To == LocalAppendThread {
					hung = append(hung, m.Entries)
				}
			}
			st := leader.BasicStatus()
			for _, follower := range []uint64{2, 3} {
				must(t, leader.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: follower, Term: st.Term, Index: st.LastIndex}))
			}
		}
		held := heapBytes() - before
		t.Logf("overhead %d: %d commands of 1 byte, %d B of memory, %d B each (%v)", overhead, proposed, held, held/uint64(proposed), err)
		if st := leader.BasicStatus(); st.Commit < st.LastIndex-64 || st.Durable > 1 {
			t.Fatalf("want all committed and nothing durable: %+v", st)
		}
		switch {
		case overhead == 0 && err != nil:
			t.Errorf("counting payload, the bound was reached: %v", err)
		case overhead > 0 && !errors.Is(err, ErrProposalDropped):
			t.Errorf("have %v, want %v", err, ErrProposalDropped)
		case overhead > 0 && (held > bound || held < bound/4):
			t.Errorf("%d B are held; at most %d may be, and not much less", held, bound)
		}
		runtime.KeepAlive(hung)
	}
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// countedReads is a storage that counts the entries that are read from it.
type countedReads struct {
	*MemoryStorage
	read int
}

func (s *countedReads) Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	entries, err := s.MemoryStorage.Entries(lo, hi, maxSize)
	s.read += len(entries)
	return entries, err
}

// A node replays a log of tiny commands after a restart, and reads no entry that it does not hand out. The
// limit of a batch counts the overhead of each entry; by their size in storage many times as many entries
// would fit.
func TestReplayReadsNoEntryTwice(t *testing.T) {
	const n = 10_000
	s := &countedReads{MemoryStorage: NewMemoryStorage()}
	entries := make([]raftpb.Entry, n)
	for i := range entries {
		entries[i] = raftpb.Entry{Index: uint64(i + 1), Term: 1, Data: []byte{byte(i)}}
	}
	must(t, s.Append(entries))
	l, err := newLog(s, 100*EntryOverhead, EntryOverhead)
	must(t, err)
	l.commitTo(n)
	for l.applied < n {
		batch := l.nextToApply(true)
		must(t, l.failure)
		l.acceptApplying(batch, noLimit, true)
		l.appliedTo(batch[len(batch)-1].Index, noLimit)
	}
	if s.read > n+n/10 {
		t.Errorf("%d entries were read to hand out %d", s.read, n)
	}
}
