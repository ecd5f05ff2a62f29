package host

import (
	"context"
	"testing"

	"github.com/millrace/millrace/host/internal/budget"
	"github.com/millrace/millrace/raft/raftpb"
	"pgregory.net/rapid"
)

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
		for name, b := range map[string]*budget.Budget{"waiting": &m.waiting, "proposed": &m.proposed, "received": &m.received} {
			if !b.Reserve(0, largest.Bytes()) {
				t.Fatalf("a command of %d bytes does not fit into the share %q of %d", c.largestCommand(), name, b.Max)
			}
		}
		if c.largestCommand() < 1<<10 {
			t.Fatalf("the largest command is %d bytes", c.largestCommand())
		}
		if int64(c.queueBytes()) < largest.Bytes() {
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
			if used := l.memory.received.Used(); used != 0 {
				t.Errorf("%d bytes of messages count as waiting", used)
			}
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}
