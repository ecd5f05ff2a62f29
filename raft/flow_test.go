package raft

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
)

// The limits on messages, on what is handed out for apply, on what is in flight to a follower, and on what is
// not committed.

// Reading the log with a limit gives the longest prefix that fits, and at least one entry, wherever storage
// ends and memory begins.
func TestEntriesAreTheLongestPrefixThatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []raftpb.Entry
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, 20), 1, 12).Draw(t, "sizes") {
			all = append(all, raftpb.Entry{Term: 1, Index: uint64(i) + 1, Data: make([]byte, n)})
		}
		durable := rapid.IntRange(0, len(all)).Draw(t, "durable")
		s := NewMemoryStorage()
		if err := s.Append(all[:durable]); err != nil {
			t.Fatal(err)
		}
		l, err := newLog(s, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		l.append(all[durable:], 1)

		lo := rapid.IntRange(0, len(all)-1).Draw(t, "from")
		hi := rapid.IntRange(lo, len(all)).Draw(t, "to")
		maxBytes := uint64(rapid.IntRange(0, int(entriesSize(all))).Draw(t, "max bytes"))
		want := all[lo:hi]
		for len(want) > 1 && entriesSize(want) > maxBytes {
			want = want[:len(want)-1]
		}
		have, err := l.entries(None, uint64(lo)+1, uint64(hi)+1, maxBytes)
		if err != nil || !slices.EqualFunc(have, want, sameEntry) {
			t.Fatalf("[%d,%d) of %d durable of %d, at most %d bytes: have %s (%v), want %s",
				lo+1, hi+1, durable, len(all), maxBytes, describeEntries(have), err, describeEntries(want))
		}
	})
}

func TestMaxUncommittedEntriesSize(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) { c.MaxUncommittedEntriesSize = 10 })
	elect(t, rn, s)
	propose := func(n int, want error) {
		t.Helper()
		if err := rn.Propose(make([]byte, n)); !errors.Is(err, want) {
			t.Fatalf("%d bytes on top of %d: have %v, want %v", n, rn.raft.leader.uncommittedBytes, err, want)
		}
	}
	propose(100, nil) // the first proposal always fits
	propose(1, ErrProposalDropped)
	propose(0, nil) // it counts nothing
	work(t, rn, s)
	propose(1, ErrProposalDropped)
	last := rn.BasicStatus().LastIndex
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 1, Index: last}))
	propose(1, ErrProposalDropped) // committing is not enough: applying frees the space
	work(t, rn, s)
	propose(4, nil)
	propose(6, nil)
	propose(1, ErrProposalDropped)

	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, Term: 2})) // another leader; then this node again
	work(t, rn, s)
	elect(t, rn, s)
	propose(10, nil) // a new term starts at zero
}

// Entries go to the apply worker in batches that fit, of at least one entry, and the next batch waits until
// there is space.
func TestMaxCommittedSizePerReady(t *testing.T) {
	for _, c := range []struct {
		name               string
		perMessage, perRdy uint64
		overhead           uint64
		want               []int // number of entries in each batch
	}{
		{"all at once", 1 << 20, 1 << 20, 0, []int{7}},
		{"the bound of messages by default", 45, 0, 0, []int{3, 3, 1}},
		{"two at a time", 1 << 20, 30, 0, []int{2, 2, 2, 1}},
		{"less than one", 1 << 20, 1, 0, []int{1, 1, 1, 1, 1, 1, 1}},
		{"MaxSizePerMsg 0", 0, 0, 0, []int{1, 1, 1, 1, 1, 1, 1}},
		{"MaxSizePerMsg 0, a bound of its own", 0, 30, 0, []int{2, 2, 2, 1}},
		{"an overhead of 100 for each", 1 << 20, 345, 100, []int{3, 3, 1}},
		{"an overhead that is larger than the bound", 1 << 20, 30, 100, []int{1, 1, 1, 1, 1, 1, 1}},
	} {
		for _, async := range []bool{true, false} {
			t.Run(c.name, func(t *testing.T) {
				s := NewMemoryStorage()
				s.SetConfState(raftpb.ConfState{Voters: []uint64{1}})
				var entries []raftpb.Entry
				for i := range uint64(7) {
					entries = append(entries, raftpb.Entry{Term: 1, Index: i + 1, Data: make([]byte, 7)})
				}
				if n := entries[0].Size(); n != 15 {
					t.Fatalf("an entry has %d bytes, the table wants 15", n)
				}
				save(t, s, raftpb.HardState{Term: 1, Commit: 7}, entries)
				rn := newTestNodeOn(t, 1, s, func(cfg *Config) {
					cfg.AsyncStorageWrites = async
					cfg.MaxSizePerMsg, cfg.MaxCommittedSizePerReady, cfg.EntryOverheadBytes = c.perMessage, c.perRdy, c.overhead
				})
				var have []int
				for rn.HasReady() {
					rd := rn.Ready()
					have = append(have, len(rd.CommittedEntries))
					if async {
						if rn.HasReady() {
							t.Fatal("hands out more before the last is applied")
						}
						must(t, rn.Step(rd.Messages[0].Responses[0]))
					} else {
						rn.Advance(rd)
					}
				}
				if !slices.Equal(have, c.want) {
					t.Fatalf("have batches %v, want %v", have, c.want)
				}
			})
		}
	}
}

// As long as there is space, more is handed out before the first batch is applied.
func TestApplyRunsAheadWithinItsBound(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1}, raftpb.HardState{}, nil, func(c *Config) { c.MaxCommittedSizePerReady = 50 })
	must(t, rn.Campaign())
	var acks []raftpb.Message
	handOut := func(n int) (applied int) {
		for range n {
			must(t, rn.Propose(make([]byte, 7)))
		}
		for rn.HasReady() {
			for _, m := range rn.Ready().Messages {
				if m.To == LocalApplyThread {
					applied += len(m.Entries)
					acks = append(acks, m.Responses...)
					continue
				}
				write(s, m)
				for _, r := range m.Responses {
					must(t, rn.Step(r))
				}
			}
		}
		return applied
	}
	handOut(0)
	for i, want := range []int{1, 1, 1, 0} { // 8 + 3*15 > 50: the fourth batch crosses the limit, the fifth waits
		if have := handOut(1); have != want {
			t.Fatalf("proposal %d: %d handed out, want %d", i+1, have, want)
		}
	}
	for _, a := range acks {
		must(t, rn.Step(a))
	}
	if have := handOut(0); have != 1 {
		t.Fatalf("after the acknowledgements %d handed out, want 1", have)
	}
}

// The limit in bytes is soft: the append that crosses it is sent, the next one is not. An overhead counts
// like payload.
func TestMaxInflightBytes(t *testing.T) {
	for _, c := range []struct{ payload, overhead int }{{10, 0}, {1, 9}, {0, 10}} {
		rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(cfg *Config) {
			cfg.MaxSizePerMsg, cfg.MaxInflightBytes, cfg.EntryOverheadBytes = 10, 25, uint64(c.overhead)
		})
		elect(t, rn, s)
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 1, Index: 1}))
		work(t, rn, s)
		sent := 0
		propose := func() {
			must(t, rn.Propose(make([]byte, c.payload)))
			for _, m := range work(t, rn, s) {
				if m.Type == raftpb.MsgApp && m.To == 2 {
					sent += len(m.Entries)
				}
			}
		}
		for range 6 {
			propose()
		}
		if sent != 3 {
			t.Fatalf("sent %d entries of %d+%d bytes into a window of 25, want 3", sent, c.payload, c.overhead)
		}
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 1, Index: 2}))
		propose()
		if sent != 4 {
			t.Fatalf("sent %d entries after one was acknowledged, want 4", sent)
		}
	}
}

// A voter has one vote: its first answer counts, however often another one follows.
func TestAVoteCountsOnce(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3, 4, 5}, raftpb.HardState{}, nil)
	must(t, rn.Campaign())
	work(t, rn, s)
	answer := func(from uint64, reject bool) {
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgVoteResp, From: from, Term: 1, Reject: reject}))
	}
	answer(2, true)
	answer(2, false)
	answer(3, false)
	answer(3, false)
	if rn.raft.role != StateCandidate {
		t.Fatalf("%v with two votes of five", rn.raft.role)
	}
	answer(4, true)
	answer(5, true)
	if rn.raft.role != StateFollower {
		t.Fatalf("%v although three of five refused", rn.raft.role)
	}
}

func TestProposalsThatCannotBeTaken(t *testing.T) {
	follower := func(change ...func(*Config)) *RawNode {
		rn, _ := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, change...)
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, Term: 1}))
		return rn
	}
	if err := follower().Propose(nil); err != nil {
		t.Errorf("a follower that knows its leader: %v", err)
	}
	if err := follower(func(c *Config) { c.DisableProposalForwarding = true }).Propose(nil); !errors.Is(err, ErrProposalDropped) {
		t.Errorf("a follower that may not forward: %v", err)
	}
	stranger, _ := newTestNode(t, 9, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	must(t, stranger.Campaign())
	for range 100 {
		stranger.Tick()
	}
	if stranger.HasReady() {
		t.Error("a node that is no voter campaigns")
	}
}

func TestStatus(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	if st := rn.Status(); st.Progress != nil || !st.Config.IsVoter(2) {
		t.Errorf("a follower: %+v", st)
	}
	elect(t, rn, s)
	st := rn.Status()
	if len(st.Progress) != 3 || st.Progress[1].Match != 1 || st.Lead != 1 {
		t.Errorf("a leader: %+v", st)
	}
	if st.Progress[2].Inflights == rn.raft.leader.members.Get(2).Inflights {
		t.Error("a status shares the leader's windows")
	}
}

// The application may leave the answers of its apply worker for later until they matter: when a leader is
// near its limit of bytes that are not applied, they do.
func TestAppliesAreAwaitedNearTheLimit(t *testing.T) {
	const limit = 1000
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) { c.MaxUncommittedEntriesSize = limit })
	elect(t, rn, s)
	for bytes := 0; bytes < limit; bytes += 100 {
		if have, want := rn.AwaitsApply(), bytes > limit/2; have != want {
			t.Errorf("with %d of %d bytes not applied: awaits the apply worker %t, want %t", bytes, limit, have, want)
		}
		must(t, rn.Propose(make([]byte, 100)))
	}
}
