package raft

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
)

// An arena is a queue that hands out everything it holds. A batch never changes after it was handed out, an
// append to it does not reach the next batch, and a reader that keeps one batch keeps an array of bounded
// length.
func TestArenaIsAQueueOfBatchesThatNeverChange(t *testing.T) {
	same := func(a, b raftpb.Message) bool {
		return a.Index == b.Index && a.To == b.To && a.Entries == nil && a.Context == nil
	}
	rapid.Check(t, func(t *rapid.T) {
		var a messageArena
		type batch struct{ given, looked []raftpb.Message }
		var given []batch
		var want []raftpb.Message
		next := uint64(0)
		for range 80 {
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				a.discard()
				want = nil
			case 1:
				a.shrink()
			case 2:
				a.addPayload(maxPinnedBytes / 2)
			case 3, 4, 5:
				if have, longest := cap(a.waiting), max(maxArena, 2*len(want)); have > longest {
					t.Fatalf("a batch of %d messages is in an array of %d, want at most %d", len(want), have, longest)
				}
				got := a.cut()
				if !slices.EqualFunc(got, want, same) || cap(got) != len(got) {
					t.Fatalf("have %d messages with space for %d, want %d with none", len(got), cap(got), len(want))
				}
				given, want = append(given, batch{got, slices.Clone(got)}), nil
				if have := len(got) + cap(a.waiting); have > maxArena && have > len(got) {
					t.Fatalf("%d messages can be cut from one array", have)
				}
			default:
				for range rapid.SampledFrom([]int{1, 2, 7, 90, 1100}).Draw(t, "messages") {
					next++
					m := a.next()
					if !same(*m, raftpb.Message{}) {
						t.Fatalf("a new message is not empty: %+v", *m)
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

// No further batch is cut from an array that references more than 1 MiB of payload, and an idle arena keeps
// no array.
func TestArenaReleasesItsArray(t *testing.T) {
	var a messageArena
	for _, row := range []struct {
		payload uint64
		space   int
	}{{0, minArena - 1}, {maxPinnedBytes, minArena - 2}, {1, 0}, {0, 2*minArena - 1}} {
		a.next()
		a.addPayload(row.payload)
		a.cut()
		if have := cap(a.waiting); have != row.space {
			t.Errorf("after %d more bytes the array has space for %d, want %d", row.payload, have, row.space)
		}
	}
	a.next()
	a.shrink()
	if len(a.waiting) != 1 {
		t.Error("shrink loses waiting messages")
	}
	a.cut()
	a.shrink()
	if a.waiting != nil {
		t.Error("an idle arena keeps its array")
	}
}

// A process may have many groups, most of them idle: a node without a new entry for a tick has released its
// spare memory.
func TestIdleNodeKeepsNoSpareMemory(t *testing.T) {
	for _, async := range []bool{false, true} {
		l := newBenchLeader(t, 3, async, 64)
		for range 100 {
			l.turn(t)
		}
		log, out := &l.node.raft.log, &l.node.raft.out
		spare := func() int {
			return cap(out.now.waiting) + cap(out.afterAppend.waiting) + cap(log.unstable.array.live) + cap(log.unstable.sizes.totals.array)
		}
		if spare() == 0 {
			t.Errorf("async %t: a busy node has no spare memory, so this test shows nothing", async)
		}
		for range 2 {
			l.node.Tick()
			benchWork(t, l.node, l.storage)
		}
		if have := spare(); have > minArena { // the array of the last heartbeats
			t.Errorf("async %t: an idle node has space for %d messages, entries and sizes, want at most %d", async, have, minArena)
		}
	}
}
