package raft

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
)

// twin is a naive unstable log: the whole log and the whole disk. It remembers each write with the log that
// the write leaves behind, so that a test can ask what an acknowledgement truly covers.
type twin struct {
	log  []raftpb.Entry
	disk []raftpb.Entry // of the writes that are executed
}

func (w *twin) replaceFrom(entries []raftpb.Entry) {
	w.log = append(slices.Clone(w.log[:entries[0].Index-1]), entries...)
}

func (w *twin) write(entries []raftpb.Entry) {
	if len(entries) > 0 {
		w.disk = append(slices.Clone(w.disk[:entries[0].Index-1]), entries...)
	}
}

// Whatever leaders append, and however late and in whatever order acknowledgements arrive, the unstable log
// and the disk below it are the log; a slice that was handed out is never written to; and once all writes are
// acknowledged, nothing is unstable.
func TestUnstableIsItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chance := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		u := newUnstable(0)
		var w twin
		var queue [][]raftpb.Entry    // handed out, not executed
		var acks []raftpb.Message     // executed, not delivered
		var pending []raftpb.Message  // acknowledgements of queue
		var handedOut []*handout      // with what they looked like
		logs := [][]raftpb.Entry{nil} // the logs of past leaders: a new leader starts from one of them
		term := uint64(0)

		check := func() {
			have := append(slices.Clone(w.disk[:min(len(w.disk), int(u.offset-1))]), u.array.live...)
			if !slices.EqualFunc(have, w.log, sameEntry) {
				t.Fatalf("have %s (unstable from %d), want %s", describeEntries(have), u.offset, describeEntries(w.log))
			}
			if total, known := u.sizes.between(u.offset, u.end()); !known || total.encoded != entriesSize(u.array.live) || u.sizes.end() != u.end() {
				t.Fatalf("have %d bytes in [%d,%d), want %d in [%d,%d)", total.encoded, u.sizes.first, u.sizes.end(), entriesSize(u.array.live), u.offset, u.end())
			}
			if u.offset > u.inProgress || u.inProgress > u.end() {
				t.Fatalf("offset %d <= in progress %d <= end %d", u.offset, u.inProgress, u.end())
			}
			for _, h := range handedOut {
				h.check(t)
			}
		}
		work := func() {
			w.write(queue[0])
			queue = queue[1:]
			acks, pending = append(acks, pending[0]), pending[1:]
		}
		for range 120 {
			switch chance.IntN(5) {
			case 0: // a leader of a new term, whose log diverges from this one somewhere
				term++
				leader := slices.Clone(logs[chance.IntN(len(logs))])
				for range 1 + chance.IntN(3) {
					leader = append(leader, raftpb.Entry{Term: term, Index: uint64(len(leader)) + 1, Data: fmt.Append(nil, term)})
				}
				logs = append(logs, leader)
				fallthrough
			case 1: // the leader of the term sends the missing entries, or some of them
				leader := logs[len(logs)-1]
				match := 0
				for match < len(leader) && match < len(w.log) && sameEntry(leader[match], w.log[match]) {
					match++
				}
				if n := len(leader) - match; n > 0 {
					part := leader[match : match+1+chance.IntN(n)]
					u.replaceFrom(part, term)
					w.replaceFrom(part)
				}
			case 2:
				if next := u.next(); len(next) > 0 {
					handedOut = append(handedOut, newHandout(next))
					queue = append(queue, next)
					last := next[len(next)-1]
					pending = append(pending, raftpb.Message{Index: last.Index, Term: u.ackTerm})
					u.acceptNext()
				}
			case 3:
				if len(queue) > 0 {
					work()
				}
			case 4:
				if n := len(acks); n > 0 {
					i := chance.IntN(n)
					u.stableTo(acks[i].Index, acks[i].Term)
					if chance.IntN(4) > 0 { // otherwise it arrives again
						acks = slices.Delete(acks, i, i+1)
					}
				}
			}
			check()
		}
		if next := u.next(); len(next) > 0 {
			queue = append(queue, next)
			pending = append(pending, raftpb.Message{Index: next[len(next)-1].Index, Term: u.ackTerm})
			u.acceptNext()
		}
		for len(queue) > 0 {
			work()
		}
		for _, a := range acks {
			u.stableTo(a.Index, a.Term)
		}
		check()
		if len(u.array.live) > 0 {
			t.Fatalf("everything is written and acknowledged, but [%d,%d) is unstable", u.offset, u.end())
		}
	})
}

func sameEntry(a, b raftpb.Entry) bool { return a.Term == b.Term && a.Index == b.Index }

// handout is a slice that was handed out, and its content at that time.
type handout struct {
	slice  []raftpb.Entry
	looked string
}

func newHandout(s []raftpb.Entry) *handout { return &handout{s, describeEntries(s)} }

func (h *handout) check(t *rapid.T) {
	if now := describeEntries(h.slice); now != h.looked {
		t.Fatalf("a slice that was handed out changed from %s to %s", h.looked, now)
	}
}

// However long the stream is, few entries share an array: fullArray, or 1 MiB of payload and a batch, or
// twice what is unstable at once. They are not so few that arrays are made all the time.
func TestUnstableLetsItsArrayGo(t *testing.T) {
	for _, row := range []struct {
		payload, alive int
		fewest, most   int // entries that share an array
	}{
		{0, 0, fullArray, fullArray},
		{0, 10, fullArray - 20, fullArray},
		{0, 5000, 5000, 10_000},
		{1 << 10, 10, fullArray - 20, fullArray},
		{1 << 19, 1, 2, 3},
		{1 << 21, 1, 1, 2},
	} {
		u := newUnstable(0)
		data := make([]byte, row.payload)
		arrays := 0
		const n = 80 * fullArray
		for i := range n {
			space := cap(u.array.live)
			u.appendOwn([]raftpb.Entry{{Data: data}}, 1)
			if i >= n/2 && cap(u.array.live) != space {
				arrays++
			}
			u.acceptNext()
			if i >= row.alive {
				u.stableTo(uint64(i+1-row.alive), 1)
			}
		}
		if have := n / 2 / arrays; have < row.fewest || have > row.most {
			t.Errorf("%d entries of %d bytes at once: %d share an array, want %d to %d", row.alive, row.payload, have, row.fewest, row.most)
		}
		u.shrink()
		if have := cap(u.array.live); have > 2*row.alive {
			t.Errorf("idle with %d entries there is space for %d", row.alive, have)
		}
		u.appendOwn([]raftpb.Entry{{}}, 1)
		if have, most := cap(u.array.live), max(minArray, 2*(row.alive+1)); have > most {
			t.Errorf("the first entry after an idle time, behind %d, gets space for %d, want at most %d", row.alive, have, most)
		}
	}
}

// A follower's append is adopted without a copy if the tail is empty.
func TestUnstableAdoptsWhatCameFromAPeer(t *testing.T) {
	u := newUnstable(0)
	came := make([]raftpb.Entry, 3, 8)
	for i := range came {
		came[i] = raftpb.Entry{Term: 1, Index: uint64(i) + 1}
	}
	u.replaceFrom(came[:2], 1)
	if next := u.next(); &next[0] != &came[0] || cap(next) != 2 {
		t.Errorf("the tail was copied, or leaves space for %d in a peer's array", cap(next))
	}
	u.replaceFrom([]raftpb.Entry{{Term: 1, Index: 3, Data: []byte("x")}}, 1)
	if next := u.next(); len(next) != 3 || &next[0] == &came[0] || came[2].Data != nil {
		t.Errorf("a second append of %d went into a peer's array", len(next))
	}
}
