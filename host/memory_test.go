package host

import (
	"context"
	"sync"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"pgregory.net/rapid"
)

// Groups take and give bytes. The sum stays within the budget, a group gets what it asks for as long as it
// then holds no more than is left for others, and what was returned can be taken again.
func TestBudgetBesideItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := budget{max: rapid.Int64Range(0, 1000).Draw(t, "max")}
		holds := make([]int64, rapid.IntRange(1, 5).Draw(t, "groups"))
		sum := func() (n int64) {
			for _, h := range holds {
				n += h
			}
			return n
		}
		anyGroup := rapid.IntRange(0, len(holds)-1)
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				g, n := anyGroup.Draw(t, "group"), rapid.Int64Range(0, 600).Draw(t, "bytes")
				left := b.max - sum() // before it takes
				want := holds[g]+n <= left
				fits := b.fits(holds[g], n)
				if took := b.take(holds[g], n); took != want || fits != want {
					t.Fatalf("group %d holds %d of %d and %d are left; %d more: took %t, fits %t, want %t", g, holds[g], b.max, left, n, took, fits, want)
				}
				if want {
					holds[g] += n
				}
			},
			"give": func(t *rapid.T) {
				g := anyGroup.Draw(t, "group")
				n := rapid.Int64Range(0, holds[g]).Draw(t, "bytes")
				b.give(n)
				holds[g] -= n
			},
			"": func(t *rapid.T) {
				if used := b.used.Load(); used != sum() || used > b.max {
					t.Fatalf("%d bytes are used, want %d, at most %d", used, sum(), b.max)
				}
			},
		})
	})
}

// Groups that cannot work fill what they can get. If n of them fill at the same time, each holds a part of
// n+1. If they fill one after the other, each holds half of what the others left. In both cases there is
// space for a group that can work.
func TestStuckGroupsLeaveSpace(t *testing.T) {
	const most, step = 1 << 20, 256
	for n := int64(1); n <= 10; n++ {
		atOnce, oneByOne := budget{max: most}, budget{max: most}
		holds := make([]int64, n)
		for more := true; more; {
			more = false
			for i := range holds {
				if atOnce.take(holds[i], step) {
					holds[i] += step
					more = true
				}
			}
		}
		for i, own := range holds {
			if part := most / (n + 1); own < part-step || own > part+step {
				t.Errorf("%d groups at once: group %d holds %d of %d bytes, want about %d", n, i, own, most, part)
			}
		}
		left := int64(most)
		for i := range n {
			own := int64(0)
			for oneByOne.take(own, step) {
				own += step
			}
			if own < left/2-step || own > left/2+step {
				t.Errorf("one by one: group %d holds %d of the %d bytes left, want about half", i, own, left)
			}
			left -= own
		}
		if !atOnce.take(0, step) || !oneByOne.take(0, step) {
			t.Errorf("%d stuck groups leave no space for a command of %d bytes", n, step)
		}
	}
}

// Many goroutines take and give at once: the sum never exceeds the budget.
func TestBudgetAtOnce(t *testing.T) {
	b := budget{max: 1000}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 2000 {
				if b.take(0, 300) {
					if used := b.used.Load(); used > 1000 {
						t.Errorf("%d of 1000 bytes are used", used)
					}
					b.give(300)
				}
			}
		})
	}
	all.Wait()
	if used := b.used.Load(); used != 0 {
		t.Errorf("%d bytes are used in the end", used)
	}
}

// The shares of Config.MemoryBytes are the whole of it, and the largest command fits into each queue that it
// passes, for every size of memory.
func TestSharesOfMemory(t *testing.T) {
	if sum := logCacheShare + sendShare + waitingShare + proposedShare + receivedShare + writingShare; sum != allShares {
		t.Errorf("the shares are %d sixteenths", sum)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := validConfig()
		c.MemoryBytes = rapid.OneOf(rapid.Int64Range(minMemoryBytes, 1<<20), rapid.Int64Range(1<<20, 1<<40)).Draw(t, "memory")
		c = c.withDefaults()
		var m memory
		m.init(c)
		largest := command(c.largestCommand())
		for name, b := range map[string]*budget{"waiting": &m.waiting, "proposed": &m.proposed, "received": &m.received} {
			if !b.take(0, largest.bytes()) {
				t.Fatalf("a command of %d bytes does not fit into the share %q of %d", c.largestCommand(), name, b.max)
			}
		}
		if c.largestCommand() < 1<<10 {
			t.Fatalf("the largest command is %d bytes", c.largestCommand())
		}
		if int64(c.queueBytes()) < largest.bytes() {
			t.Fatalf("a command of %d bytes does not fit into the queue of a peer, %d", c.largestCommand(), c.queueBytes())
		}
	})
}

// What a leader may send, a follower with the least memory takes: an append as large as can be, one of tiny
// entries, which take far more memory than their encoded bytes, and one of a leader with more memory.
func TestFollowerWithLittleMemoryCatchesUp(t *testing.T) {
	for name, entries := range map[string]struct{ n, bytes uint64 }{"one large": {1, 4 << 10}, "tiny": {1000, 1}, "of a larger host": {16, 64 << 10}} {
		t.Run(name, func(t *testing.T) {
			l := openTestHostWith(t, 3, littleMemory)
			m := raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: span(1, 1+entries.n, 1), Commit: entries.n}
			for i := range m.Entries {
				m.Entries[i].Data = make([]byte, entries.bytes)
			}
			for range 3 {
				l.deliver(m)
			}
			if s := l.group.Status(); s.Durable != entries.n || s.Applied != entries.n {
				t.Errorf("the follower has written through %d and applied through %d of %d", s.Durable, s.Applied, entries.n)
			}
			if used := l.memory.received.used.Load(); used != 0 {
				t.Errorf("%d bytes of messages count as waiting", used)
			}
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}
