package proposals

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// client waits for one entry. What it is told is the word that the Ring said last.
type client struct {
	term, index uint64
	told        string // "": nothing
	results     int    // that it was given
	sent        int
}

// put makes n clients wait for n entries, starting at an index.
func put(r *Ring[*client], term, index uint64, n int) (clients []*client) {
	for i := range uint64(n) {
		clients = append(clients, &client{term: term, index: index + i})
	}
	copy(r.Reserve(term, index, n), clients)
	return clients
}

func tell(c *client, index, term uint64, f Fate) {
	c.told += fmt.Sprintf("%s %d@%d", [...]string{"committed", "dropped", "covered"}[f], index, term)
}

// A leader that has lost its clients and leads again, a million entries later, begins with an empty list. One
// that leads on has places for what others have proposed in between.
func TestRunsBeginAnew(t *testing.T) {
	r := Ring[*client]{Results: true}
	put(&r, 2, 10, 1)
	r.Drop(10, 3, func(uint64) (uint64, bool) { return 3, true }, func(*client) {})
	put(&r, 4, 1_000_010, 1)
	put(&r, 4, 1_000_014, 1)
	if n := len(r.runs[0].places); len(r.runs) != 1 || n != 5 {
		t.Errorf("%d runs, %d places in the first; want 1 and 5", len(r.runs), n)
	}
}

// A leader has forgotten entries after a full disk, leads again and proposes others in their places. Then the
// first entries are committed, which other members had: their clients get their results.
func TestClientsOfForgottenEntriesAreFound(t *testing.T) {
	r := Ring[*client]{Results: true}
	first := put(&r, 3, 60, 2)
	put(&r, 5, 60, 1)
	if have := r.Pop(60, 3); have != first[0] {
		t.Errorf("entry 60 of term 3 has client %+v", have)
	}
	if have := r.Pop(61, 6); have != nil || r.Unapplied() != 0 {
		t.Errorf("entry 61 of another term has client %+v; %d wait", have, r.Unapplied())
	}
}

// The memory of clients that were served is reused.
func TestPlacesAreUsedAgain(t *testing.T) {
	for _, results := range []bool{false, true} {
		r := Ring[*client]{Results: results}
		c := new(client)
		index := uint64(0)
		round := func() {
			for range 16 {
				index++
				r.Reserve(1, index, 1)[0] = c
			}
			r.AnswerOwn(1, index-4, func(*client, uint64, uint64, Fate) {})
			if results {
				r.Pop(index-6, 1)
			}
		}
		round()
		if n := testing.AllocsPerRun(1000, round); n > 0 {
			t.Errorf("results %v: %v allocations in a round", results, n)
		}
		if n := cap(r.runs[0].places); n > 128 {
			t.Errorf("results %v: %d places for 22 clients", results, n)
		}
	}
}

// A client that ends the goroutine on which it is told does not hold up the others.
func TestAClientMayPanic(t *testing.T) {
	r := Ring[*client]{Results: true}
	clients := put(&r, 1, 1, 3)
	answer := func(c *client, index, term uint64, f Fate) {
		tell(c, index, term, f)
		if c == clients[1] {
			panic(c)
		}
	}
	func() {
		defer func() { _ = recover() }()
		r.AnswerOwn(1, 3, answer)
	}()
	r.AnswerOwn(1, 3, answer)
	for i, c := range clients {
		if want := fmt.Sprintf("committed %d@1", i+1); c.told != want {
			t.Errorf("client %d was told %q", i, c.told)
		}
	}
}

// An entry that has left is not counted again when its client still waits, another leader has written over
// it, and this host sends that entry.
func TestAnEntryLeavesOnce(t *testing.T) {
	r := Ring[*client]{Results: true}
	put(&r, 1, 1, 3)
	var left []string
	leave := func(c *client) { left = append(left, fmt.Sprintf("%d@%d", c.index, c.term)) }
	r.Sent(3, leave)
	put(&r, 3, 1, 2)
	r.Sent(2, leave)
	r.Answer(2, func(uint64) (uint64, bool) { return 3, false }, tell) // they are in a snapshot
	put(&r, 5, 4, 1)
	r.Sent(3, leave)
	r.Sent(4, leave)
	if want := []string{"1@1", "2@1", "3@1", "1@3", "2@3", "4@5"}; !slices.Equal(slices.Sorted(slices.Values(left)), slices.Sorted(slices.Values(want))) {
		t.Errorf("%v have left, want %v", left, want)
	}
}

// twin is what Ring does, without thought: a map of clients by place, in which everything is looked for.
type twin struct {
	*rapid.T
	ring      Ring[*client]
	log       map[uint64]uint64 // the term of each entry
	last      uint64
	committed uint64
	applied   uint64
	term      uint64 // in which this host leads
	waits     map[*client]*fate
	all       []*client
}

// fate is what a client must have been told.
type fate struct {
	told    string
	results int
	done    bool
}

// TestRingTwin compares a Ring with its twin, after each step of a random story of one group's log.
func TestRingTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &twin{T: rt, log: map[uint64]uint64{}, term: 1, waits: map[*client]*fate{}}
		w.ring.Results = rapid.Bool().Draw(rt, "results")
		rt.Repeat(map[string]func(*rapid.T){
			"propose": w.propose, "propose more": w.propose, "other entry": w.append,
			"new term": w.newTerm, "commit": w.commit, "answer": w.answer, "answer own": w.answerOwn,
			"drop": w.drop, "apply": w.apply, "snapshot": w.snapshot, "send": w.send, "end": w.end,
			"": w.check,
		})
	})
}

func (w *twin) propose(*rapid.T) {
	n := rapid.IntRange(1, 4).Draw(w.T, "clients")
	for _, c := range put(&w.ring, w.term, w.last+1, n) {
		w.append(nil)
		w.all, w.waits[c] = append(w.all, c), new(fate)
	}
}

// append appends an entry for which no client waits.
func (w *twin) append(*rapid.T) {
	w.last++
	w.log[w.last] = w.term
}

// newTerm is another leader, which cuts the log and writes; then this host leads again.
func (w *twin) newTerm(*rapid.T) {
	w.last = rapid.Uint64Range(w.committed, w.last).Draw(w.T, "cut")
	for range rapid.IntRange(0, 3).Draw(w.T, "others") {
		w.last++
		w.log[w.last] = w.term + 1
	}
	w.term += 2
}

func (w *twin) commit(*rapid.T) {
	w.committed = rapid.Uint64Range(w.committed, w.last).Draw(w.T, "commit")
}

func (w *twin) termAt(index uint64) (term uint64, ok bool) { return w.log[index], true }

func (w *twin) answer(*rapid.T) {
	covered := rapid.Uint64Range(0, w.committed).Draw(w.T, "covered")
	for _, c := range w.all {
		f := w.waits[c]
		switch {
		case f.told != "" || c.index > w.committed:
		case c.index <= covered:
			f.told, f.done = fmt.Sprintf("covered %d@%d", c.index, c.term), true
		case w.log[c.index] == c.term:
			f.told = fmt.Sprintf("committed %d@%d", c.index, c.term)
		default:
			f.told, f.done = fmt.Sprintf("dropped %d@%d", c.index, c.term), true
		}
	}
	w.ring.Answer(w.committed, func(index uint64) (uint64, bool) { return w.log[index], index > covered }, tell)
}

func (w *twin) answerOwn(*rapid.T) {
	if len(w.all) == 0 || w.log[w.committed] != w.term { // as a leader, it commits entries of its own term only
		return
	}
	for _, c := range w.all {
		if f := w.waits[c]; f.told == "" && c.term == w.term && c.index <= w.committed {
			f.told = fmt.Sprintf("committed %d@%d", c.index, c.term)
		}
	}
	w.ring.AnswerOwn(w.term, w.committed, tell)
}

func (w *twin) drop(*rapid.T) {
	commitTerm := w.log[w.committed]
	for _, c := range w.all {
		f := w.waits[c]
		if f.told == "" && c.term < commitTerm && (c.index > w.committed || w.log[c.index] != c.term) {
			f.told, f.done = "dropped", true
		}
	}
	w.ring.Drop(w.committed, commitTerm, w.termAt, func(c *client) { c.told += "dropped" })
}

func (w *twin) apply(*rapid.T) {
	for through := rapid.Uint64Range(w.applied, w.committed).Draw(w.T, "apply"); w.applied < through; {
		w.applied++
		var want *client
		for _, c := range w.all {
			if f := w.waits[c]; w.ring.Results && !f.done && c.index == w.applied && w.log[c.index] == c.term {
				want, f.results = c, f.results+1
			}
		}
		have := w.ring.Pop(w.applied, w.log[w.applied])
		if have != want {
			w.Fatalf("entry %d has client %+v, want %+v", w.applied, have, want)
		}
		if have != nil {
			have.results++
		}
	}
}

// snapshot takes everything through an index that is committed.
func (w *twin) snapshot(*rapid.T) {
	through := rapid.Uint64Range(w.applied, w.committed).Draw(w.T, "snapshot")
	for _, c := range w.all {
		if f := w.waits[c]; w.ring.Results && !f.done && c.index > w.applied && c.index <= through {
			f.results++
		}
	}
	w.applied = through
	w.ring.PopThrough(through, func(c *client) { c.results++ })
}

// send sends the log through an index. A client hears of it once.
func (w *twin) send(*rapid.T) {
	if !w.ring.Results {
		return
	}
	through := rapid.Uint64Range(w.committed, w.last).Draw(w.T, "send")
	w.ring.Sent(through, func(c *client) {
		if c.sent++; c.sent > 1 || c.index > through || w.ring.Results && c.index <= w.applied {
			w.Fatalf("entry %+v leaves as one of those through %d", c, through)
		}
	})
	for _, c := range w.all {
		f := w.waits[c]
		if waits := f.told == "" || w.ring.Results && !f.done; waits && c.index <= through && c.index > w.applied && w.log[c.index] == c.term && c.sent == 0 {
			w.Fatalf("entry %+v has left, and its client is not told (through %d)", c, through)
		}
	}
}

// end is a machine that halts, or Close.
func (w *twin) end(*rapid.T) {
	var have []*client
	w.ring.End(func(c *client, answered, applied bool) {
		f := w.waits[c]
		if answered != (f.told != "") || applied != (!w.ring.Results || c.index <= w.applied) {
			w.Errorf("%+v ends answered %v, applied %v; it was told %q, and %d is applied", c, answered, applied, f.told, w.applied)
		}
		have = append(have, c)
	})
	for _, c := range w.all {
		f := w.waits[c]
		if waits := f.told == "" || w.ring.Results && !f.done && c.index > w.applied; waits != slices.Contains(have, c) {
			w.Errorf("%+v ends: %v, want %v", c, !waits, waits)
		}
		f.done = true
		if f.told == "" {
			f.told, c.told = "ended", "ended"
		}
	}
}

// check compares what every client knows, and what is left.
func (w *twin) check(*rapid.T) {
	unanswered, unapplied, oldest := 0, 0, ^uint64(0)
	for _, c := range w.all {
		f := w.waits[c]
		if c.told != f.told || c.results != f.results {
			w.Fatalf("client %+v, want told %q and %d results (committed %d)", *c, f.told, f.results, w.committed)
		}
		if f.told == "" {
			unanswered++
			oldest = min(oldest, c.term)
		}
		if w.ring.Results && !f.done && c.index > w.applied {
			unapplied++
		}
	}
	if w.ring.Unanswered() != unanswered || w.ring.Unapplied() != unapplied || w.ring.Oldest() > oldest {
		w.Fatalf("%d unanswered, %d unapplied, the oldest of term %d; want %d, %d, %d", w.ring.Unanswered(), w.ring.Unapplied(), w.ring.Oldest(), unanswered, unapplied, oldest)
	}
}
