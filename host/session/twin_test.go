package session

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"pgregory.net/rapid"
)

// twin is a table as a list of sessions, in the order of use, with everything counted afresh at each step. It
// learns the result of each command at once: batches do not exist for it.
type twin struct {
	options  Options
	now      time.Duration
	floor    time.Duration
	sessions []*twinSession // idle for longest first
	results  []*twinNumber  // with a result, in log order
}

type twinSession struct {
	id      ID
	used    time.Duration
	low     uint64
	numbers map[uint64]*twinNumber
}

type twinNumber struct {
	at      raftpb.Position
	result  []byte
	kept    bool
	refused bool
}

func (w *twin) advance(stamp time.Duration) {
	w.now = max(w.now, stamp)
	w.sessions = slices.DeleteFunc(w.sessions, func(s *twinSession) bool { return w.now-s.used > w.options.Expiry })
}

func (w *twin) apply(m Mark, at raftpb.Position, result []byte) (Verdict, *twinNumber) {
	place := slices.IndexFunc(w.sessions, func(s *twinSession) bool { return s.id == m.ID })
	if place < 0 {
		if m.Birth <= w.floor || m.Birth > w.now || w.now-m.Birth > w.options.Expiry {
			return Expired, nil
		}
		w.sessions = append(w.sessions, &twinSession{id: m.ID, low: m.Low, numbers: map[uint64]*twinNumber{}})
		place = len(w.sessions) - 1
	}
	s := w.sessions[place]
	w.sessions = append(slices.Delete(w.sessions, place, place+1), s)
	s.used, s.low = w.now, max(s.low, m.Low)
	for n := range s.numbers {
		if n < s.low {
			delete(s.numbers, n)
		}
	}
	switch n, known := s.numbers[m.Number]; {
	case m.Number < s.low:
		return Forgotten, nil
	case known:
		return Duplicate, n
	case SessionBytes+NumberBytes*int64(len(s.numbers)+1) > w.options.MaxSessionBytes:
		return Full, nil
	}
	n := &twinNumber{at: at, result: result}
	s.numbers[m.Number] = n
	for w.bytes() > w.options.MaxBytes && len(w.sessions) > 1 {
		w.floor = max(w.floor, w.sessions[0].id.Birth)
		w.sessions = w.sessions[1:]
	}
	if result != nil && int64(len(result))+ResultOverheadBytes <= w.options.MaxResultBytes/4 {
		n.kept = true
		w.results = append(w.results, n)
	}
	for w.resultBytes() > w.options.MaxResultBytes {
		w.results[0].kept = false
		w.results = w.results[1:]
	}
	return Fresh, n
}

func (w *twin) bytes() (sum int64) {
	for _, s := range w.sessions {
		sum += SessionBytes + NumberBytes*int64(len(s.numbers))
	}
	return sum
}

// resultBytes counts the results whose numbers are known.
func (w *twin) resultBytes() (sum int64) {
	known := map[*twinNumber]bool{}
	for _, s := range w.sessions {
		for _, n := range s.numbers {
			known[n] = true
		}
	}
	w.results = slices.DeleteFunc(w.results, func(n *twinNumber) bool { return !known[n] })
	for _, n := range w.results {
		sum += int64(len(n.result)) + ResultOverheadBytes
	}
	return sum
}

// step is a command of a random history.
type step struct {
	stamp   time.Duration // 0: none
	mark    Mark
	marked  bool
	result  []byte
	refuses bool // if it is Fresh
}

// drawHistory draws the commands of a few clients. Now and then a client goes back to an earlier number,
// skips some, is born again, or is born in the future.
//
// Only length and seed are rapid's: its own numbers are so small that no session is ever full.
func drawHistory(t *rapid.T) []step {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	var now time.Duration
	var births []time.Duration
	var next [10]uint64 // the next number of a client
	var history []step
	clients, perLow := 1+min(rng.IntN(len(next)), rng.IntN(len(next)), rng.IntN(len(next))), 20+rng.IntN(600)
	for range 800 - rapid.IntRange(0, 799).Draw(t, "fewer commands") {
		var s step
		if rng.IntN(3) == 0 {
			s.stamp = max(0, now+time.Duration(rng.IntN(60)-2)*time.Millisecond)
			if rng.IntN(300) == 0 {
				s.stamp += 3 * time.Second
			}
			now = max(now, s.stamp)
		}
		if s.marked = rng.IntN(10) > 0; s.marked {
			client := rng.IntN(clients)
			for len(births) <= client {
				births = append(births, now)
			}
			switch rng.IntN(200) {
			case 0:
				births[client] = now
			case 1:
				births[client] = now + 1
			}
			s.mark.Client[0], s.mark.Birth = byte(client+1), births[client]
			s.mark.Low = uint64(len(history)/perLow + 1 + rng.IntN(2))
			if next[client]++; rng.IntN(10) == 0 {
				next[client] = 1 + rng.Uint64N(next[client]+2)
			}
			next[client] = max(next[client], s.mark.Low)
			s.mark.Number = next[client]
		}
		if s.refuses = rng.IntN(20) == 0; s.refuses {
			history = append(history, s) // it has no result
			continue
		}
		if n := rng.IntN(1000) - 1; n >= 0 {
			s.result = bytes.Repeat([]byte{byte(n)}, n)
		}
		history = append(history, s)
	}
	return history
}

// member applies a history in batches: the results of a batch are known at its end.
type member struct {
	*Table
	n       uint64 // commands, three to an entry
	results [][]byte
}

func positionOf(n uint64) raftpb.Position {
	return raftpb.Position{Index: (n + 2) / 3, Pos: uint32((n + 2) % 3)}
}

func (r *Record) position() raftpb.Position { return raftpb.Position{Index: r.Index, Pos: r.Pos} }

func (m *member) step(s step) (v Verdict, r Record) {
	m.n++
	if s.stamp > 0 {
		m.Advance(s.stamp)
	}
	if s.marked {
		if v, r = m.Apply(s.mark, positionOf(m.n), 7); v == Fresh {
			m.results = append(m.results, s.result)
			if s.refuses {
				m.results = m.results[:len(m.results)-1]
				m.endBatch()
				m.Refuse(s.mark)
			}
		}
	}
	return v, r
}

func (m *member) endBatch() {
	for _, r := range m.results {
		m.Keep(r)
	}
	m.results = nil
}

var twinOptions = Options{Expiry: 2 * time.Second, MaxBytes: 12 << 10, MaxSessionBytes: 4 << 10, MaxResultBytes: 3 << 10}

// TestTableIsItsTwin: a table answers as its naive twin does, for any history and any batches; two members
// with different batches, one of which is restored from its form now and then, have the same form.
func TestTableIsItsTwin(t *testing.T) {
	verdicts := map[Verdict]int{}
	evicted, dropped, restoredWith := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		naive := &twin{options: twinOptions, floor: -1}
		single, batched := &member{Table: New(twinOptions)}, &member{Table: New(twinOptions)}
		for i, s := range drawHistory(t) {
			if s.stamp > 0 {
				naive.advance(s.stamp)
			}
			var want Verdict
			var n *twinNumber
			if s.marked {
				if want, n = naive.apply(s.mark, positionOf(uint64(i+1)), s.result); want == Fresh {
					n.refused = s.refuses
				}
				verdicts[want]++
			}
			if have, r := single.step(s); have != want || want == Duplicate && (r.position() != n.at || r.Refused != n.refused) {
				t.Fatalf("command %d: the table says %v %+v, its twin %v %+v", i+1, have, r, want, n)
			}
			single.endBatch()
			if have, _ := batched.step(s); have != want {
				t.Fatalf("command %d in a batch: the table says %v, its twin %v", i+1, have, want)
			}
			if rapid.IntRange(0, 5).Draw(t, "batch ends") > 0 {
				continue
			}
			batched.endBatch()
			compareTables(t, naive, single.Table)
			if a, b := single.AppendTo(nil), batched.AppendTo(nil); !bytes.Equal(a, b) {
				t.Fatalf("after command %d the forms of two members differ:\n%x\n%x", i+1, a, b)
			}
			if rapid.Bool().Draw(t, "restart") {
				form := batched.AppendTo([]byte("x"))[1:]
				batched.Table = New(twinOptions)
				if err := batched.Restore(form); err != nil {
					t.Fatalf("after command %d: %v", i+1, err)
				}
				restoredWith += len(batched.sessions)
			}
		}
		if naive.floor >= 0 {
			evicted++
		}
		dropped += len(naive.results)
	})
	for v := Fresh; v <= Full; v++ {
		if verdicts[v] == 0 && !testing.Short() { // a short run has few histories
			t.Errorf("no command of the histories was %v", v)
		}
	}
	if evicted == 0 || dropped == 0 || restoredWith == 0 {
		t.Errorf("%d histories with an evicted session, %d kept results, %d sessions restored; want some of each", evicted, dropped, restoredWith)
	}
}

func compareTables(t *rapid.T, naive *twin, table *Table) {
	if n, bytes := table.Sessions(); n != len(naive.sessions) || bytes != naive.bytes() || table.Now() != naive.now || table.floor != naive.floor {
		t.Fatalf("%d sessions of %d bytes at %v with floor %v, its twin has %d of %d at %v with %v",
			n, bytes, table.Now(), table.floor, len(naive.sessions), naive.bytes(), naive.now, naive.floor)
	}
	if have, want := table.results.bytes, naive.resultBytes(); have != want {
		t.Fatalf("results of %d bytes, its twin has %d", have, want)
	}
	for _, s := range naive.sessions {
		for number, want := range s.numbers {
			have, found := table.Lookup(s.id, number)
			if !found || have.position() != want.at || have.Kept != want.kept || have.Refused != want.refused || want.kept && !bytes.Equal(have.Result, want.result) {
				t.Fatalf("number %d of %v: %+v %v, its twin has %+v", number, s.id, have, found, want)
			}
		}
	}
}

// TestMemoryFollowsWhatIsKept: arrays do not grow with the history, only with what the table has.
func TestMemoryFollowsWhatIsKept(t *testing.T) {
	o := Options{MaxResultBytes: 1 << 20}
	table := New(o)
	m := Mark{ID: ID{Client: [16]byte{1}}}
	for n := uint64(1); n < 100_000; n++ {
		m.Number, m.Low = n, max(1, n-min(n, 100))
		if v, _ := table.Apply(m, raftpb.Position{Index: n}, 1); v != Fresh {
			t.Fatalf("number %d is %v", n, v)
		}
		table.Keep([]byte("result"))
	}
	s, r := table.sessions[m.ID], &table.results
	for what, c := range map[string]int{"numbers": cap(s.numbers), "kept": cap(r.kept.items), "awaited": cap(r.awaited.items), "leaving": cap(r.leaving.items)} {
		if c > 1024 {
			t.Errorf("the array of %s has %d places for about 100 numbers", what, c)
		}
	}
}

func TestVerdictsAreNamed(t *testing.T) {
	if a, b := Full.String(), Verdict(9).String(); a != "full" || b != "verdict 9" {
		t.Error(a, b)
	}
}

func TestOptionsValidate(t *testing.T) {
	for _, o := range []Options{{}, {MaxSessionBytes: 64 << 20}, {MaxBytes: 8 << 10}, twinOptions} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for want, o := range map[string]Options{
		"millrace: sessions expire after 1ms, want at least 1s":                                               {Expiry: time.Millisecond},
		"millrace: a session may take 100 bytes, want 4096 to 16777216, which all sessions may take":          {MaxSessionBytes: 100},
		"millrace: a session may take 1048576 bytes, want 4096 to 8192, which all sessions may take":          {MaxSessionBytes: 1 << 20, MaxBytes: 8 << 10},
		"millrace: kept results may take -1 bytes, want at least 0":                                           {MaxResultBytes: -1},
		"millrace: sessions expire after -2562047h47m16.854775808s, want at least 1s":                         {Expiry: math.MinInt64},
		"millrace: a session may take -1 bytes, want 4096 to -1, which all sessions may take":                 {MaxBytes: -1},
		"millrace: a session may take 9223372036854775807 bytes, want 4096 to 1, which all sessions may take": {MaxSessionBytes: math.MaxInt64, MaxBytes: 1},
	} {
		if err := o.Validate(); err == nil || err.Error() != want {
			t.Errorf("%+v: %v\nwant %s", o, err, want)
		}
	}
	// A client that keeps to MaxNumbers never gets Full.
	table, m := New(twinOptions), Mark{ID: ID{Client: [16]byte{1}}, Low: 1}
	for m.Number = 1; int(m.Number) <= twinOptions.MaxNumbers(); m.Number++ {
		if v, _ := table.Apply(m, raftpb.Position{Index: m.Number}, 1); v != Fresh {
			t.Fatalf("number %d is %v", m.Number, v)
		}
	}
	if v, _ := table.Apply(m, raftpb.Position{Index: 100}, 1); v != Full {
		t.Errorf("number %d is %v, want full", m.Number, v)
	}
}

// BenchmarkApplyInOrder is the way of nearly every command that has a session.
func BenchmarkApplyInOrder(b *testing.B) {
	for _, outstanding := range []uint64{1, 16, 1000} {
		b.Run(fmt.Sprint(outstanding), func(b *testing.B) {
			table := New(Options{})
			m := Mark{ID: ID{Client: [16]byte{1}}}
			b.ReportAllocs()
			for i := 0; i < b.N; i++ {
				m.Number++
				m.Low = m.Number - min(m.Number-1, outstanding-1)
				if i%64 == 0 {
					table.Advance(time.Duration(i) * time.Microsecond)
				}
				if v, _ := table.Apply(m, raftpb.Position{Index: m.Number}, 1); v != Fresh {
					b.Fatal(v)
				}
			}
		})
	}
}

// BenchmarkApplyManySessions alternates between sessions, each of which has few numbers.
func BenchmarkApplyManySessions(b *testing.B) {
	table := New(Options{})
	var m Mark
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		m.Client[0] = byte(i) | 1
		m.Number = uint64(i) + 1
		m.Low = m.Number
		if v, _ := table.Apply(m, raftpb.Position{Index: m.Number}, 1); v != Fresh {
			b.Fatal(v)
		}
	}
}

func BenchmarkApplyWithResult(b *testing.B) {
	table, result := New(Options{MaxResultBytes: 1 << 20}), make([]byte, 16)
	m := Mark{ID: ID{Client: [16]byte{1}}}
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		m.Number++
		m.Low = m.Number
		table.Apply(m, raftpb.Position{Index: m.Number}, 1)
		table.Keep(result)
	}
}

func BenchmarkDecodePlain(b *testing.B) {
	var h Header
	entry := h.Put(make([]byte, Room+100))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Decode(entry); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPutAndDecodeMark(b *testing.B) {
	h := Header{HasMark: true, Mark: Mark{ID: ID{Client: [16]byte{1}, Birth: time.Hour}, Number: 1000, Low: 900}}
	data := make([]byte, Room+100)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Decode(h.Put(data)); err != nil {
			b.Fatal(err)
		}
	}
}
