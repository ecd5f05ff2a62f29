package raft

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
)

// Entries are handed out in batches of any size, and acknowledged in any order: late, twice, or once for
// several batches. The bytes under way are always those of the batches that are not yet covered, and each of
// this node's own bytes since the start of the term comes back exactly once.
func TestAcknowledgementsOfAppliedEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		overhead := rapid.SampledFrom([]uint64{0, 100}).Draw(t, "overhead")
		l, err := newLog(NewMemoryStorage(), 1000, overhead)
		if err != nil {
			t.Fatal(err)
		}
		const n = 60
		termStart := rapid.Uint64Range(1, n).Draw(t, "term start")
		remember := rapid.Bool().Draw(t, "remember sizes")
		for range n {
			l.unstable.appendOwn([]raftpb.Entry{{Data: make([]byte, rapid.IntRange(0, 200).Draw(t, "bytes"))}}, 1)
		}
		all := l.unstable.slice(1, n+1)
		if !remember {
			l.unstable.sizes.forget(n + 1)
		}
		l.commitTo(n)
		var batches [][]raftpb.Entry
		var own uint64
		for l.applied < n || len(l.apply.batches.items()) > 0 {
			if l.applying < n && rapid.Bool().Draw(t, "hand out") {
				to := rapid.Uint64Range(l.applying+1, n).Draw(t, "to")
				batch := all[l.applying:to]
				l.acceptApplying(batch, termStart, true)
				batches = append(batches, batch)
			} else if len(batches) > 0 {
				through := batches[rapid.IntRange(0, len(batches)-1).Draw(t, "acknowledge")]
				own += l.appliedTo(through[len(through)-1].Index, termStart)
			}
			if want := entriesSize(all[l.applied:l.applying]) + overhead*(l.applying-l.applied); l.apply.bytes != want {
				t.Fatalf("%d bytes are under way, want %d", l.apply.bytes, want)
			}
			ours := all[min(termStart-1, l.applied):l.applied]
			if want := payloadSize(ours) + overhead*uint64(len(ours)); own != want {
				t.Fatalf("%d own bytes were returned, want %d", own, want)
			}
		}
	})
}
