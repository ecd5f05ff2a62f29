package raft

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
)

// A slab is a queue that hands out all it holds; what was handed out stays as it was, and nobody can append into what
// another was handed; who keeps one batch keeps a bounded array.
func TestSlabIsAQueueOfBatchesThatNeverChange(t *testing.T) {
	same := func(a, b raftpb.Message) bool {
		return a.Index == b.Index && a.To == b.To && a.Entries == nil && a.Context == nil
	}
	rapid.Check(t, func(t *rapid.T) {
		var s slab
		type batch struct{ given, looked []raftpb.Message }
		var given []batch
		var want []raftpb.Message
		next := uint64(0)
		for range 80 {
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				s.drop()
				want = nil
			case 1:
				s.rest()
			case 2:
				s.weigh(maxPinnedBytes / 2)
			case 3, 4, 5:
				if have, most := cap(s.waiting), max(maxSlab, 2*len(want)); have > most {
					t.Fatalf("a batch of %d messages lies in an array of %d, want at most %d", len(want), have, most)
				}
				got := s.take()
				if !slices.EqualFunc(got, want, same) || cap(got) != len(got) {
					t.Fatalf("have %d messages with room for %d, want %d with none", len(got), cap(got), len(want))
				}
				given, want = append(given, batch{got, slices.Clone(got)}), nil
				if have := len(got) + cap(s.waiting); have > maxSlab && have > len(got) {
					t.Fatalf("%d messages may be carved from one array", have)
				}
			default:
				for range rapid.SampledFrom([]int{1, 2, 7, 90, 1100}).Draw(t, "messages") {
					next++
					m := s.place()
					if !same(*m, raftpb.Message{}) {
						t.Fatalf("a place is not empty: %+v", *m)
					}
					m.Index, m.To = next, next%3
					want = append(want, *m)
				}
			}
			for _, b := range given {
				if !slices.EqualFunc(b.given, b.looked, same) {
					t.Fatal("messages that were handed out have changed")
				}
			}
		}
	})
}

// No further batch is carved beside a MiB of payloads, and a slab at rest keeps nothing.
func TestSlabLetsItsArrayGo(t *testing.T) {
	var s slab
	for _, row := range []struct {
		weight uint64
		room   int
	}{{0, smallSlab - 1}, {maxPinnedBytes, smallSlab - 2}, {1, 0}, {0, 2*smallSlab - 1}} {
		s.place()
		s.weigh(row.weight)
		s.take()
		if have := cap(s.waiting); have != row.room {
			t.Errorf("after %d bytes more the array has room for %d, want %d", row.weight, have, row.room)
		}
	}
	s.place()
	s.rest()
	if len(s.waiting) != 1 {
		t.Error("resting loses what is waiting")
	}
	s.take()
	s.rest()
	if s.waiting != nil {
		t.Error("a slab at rest keeps its array")
	}
}

// There may be many groups, most of them idle: a node that took no entry for a tick has given back what it kept for more.
func TestIdleNodeKeepsNoSpareMemory(t *testing.T) {
	for _, async := range []bool{false, true} {
		l := newBenchLeader(t, 3, async, 64)
		for range 100 {
			l.turn(t)
		}
		log, out := &l.node.raft.log, &l.node.raft.out
		spare := func() int {
			return cap(out.now.waiting) + cap(out.afterAppend.waiting) + cap(log.unstable.entries) + cap(log.unstable.sizes.totals.array)
		}
		if spare() == 0 {
			t.Errorf("async %t: a busy node has nothing to spare, so there is nothing to see here", async)
		}
		for range 2 {
			l.node.Tick()
			benchWork(t, l.node, l.storage)
		}
		if have := spare(); have > smallSlab { // the last heartbeats' array
			t.Errorf("async %t: an idle node has room for %d messages, entries and sizes, want at most %d", async, have, smallSlab)
		}
	}
}
