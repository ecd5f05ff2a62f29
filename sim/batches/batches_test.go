package batches_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/sim/batches"
)

const ms = time.Millisecond

// measured returns what a leader knows whose batches took a round and a flush each, with n bytes.
func measured(round, flush time.Duration, n int64) (m batches.Measured) {
	now := time.Duration(0)
	for range 100 {
		now += round
		m.NoteFlush(now, flush)
		m.NoteRound(now, round, n)
	}
	return m
}

// Each rule beside moments of a leader: when the open batches began, what it has measured, and what follows.
func TestRules(t *testing.T) {
	lan, wan := measured(10*ms, 8*ms, 1000), measured(100*ms, 10*ms, 1000)
	for _, row := range []struct {
		rule   batches.Rule
		now    time.Duration
		began  []time.Duration
		bytes  int64
		m      batches.Measured
		begins bool
		again  time.Duration
	}{
		{rule: batches.AtOnce{}, now: 1 * ms, began: []time.Duration{0, ms}, begins: true},

		{rule: batches.Depth(1), now: 50 * ms, began: []time.Duration{0}},
		{rule: batches.Depth(2), now: 0, began: []time.Duration{0}, begins: true},
		{rule: batches.Depth(2), now: 50 * ms, began: []time.Duration{0, 1}},

		{rule: batches.Halfway{}, now: 7 * ms, began: []time.Duration{3 * ms}, m: lan, again: 8 * ms},
		{rule: batches.Halfway{}, now: 8 * ms, began: []time.Duration{3 * ms}, m: lan, begins: true},
		{rule: batches.Halfway{}, now: 90 * ms, began: []time.Duration{3 * ms, 8 * ms}, m: lan},
		{rule: batches.Halfway{}, now: 3 * ms, began: []time.Duration{3 * ms}, begins: true}, // nothing is measured

		{rule: batches.Spaced{By: 4 * ms}, now: 9 * ms, began: []time.Duration{0, 6 * ms}, again: 10 * ms},
		{rule: batches.Spaced{By: 4 * ms}, now: 10 * ms, began: []time.Duration{0, 6 * ms}, begins: true},

		{rule: batches.Window(2), now: 1, began: []time.Duration{0}, bytes: 1 << 30, begins: true}, // nothing is measured
		{rule: batches.Window(2), now: 1, began: []time.Duration{0}, bytes: 1900, m: wan, begins: true},
		{rule: batches.Window(2), now: 1, began: []time.Duration{0}, bytes: 2100, m: wan},
		{rule: batches.Window(1), now: 1, began: []time.Duration{0}, bytes: 1100, m: wan},

		{rule: batches.Stages{}, now: 1, began: []time.Duration{0}, begins: true}, // nothing is measured
		// 8 ms of 10 are the disk's: one more batch is enough, halfway.
		{rule: batches.Stages{}, now: 4 * ms, began: []time.Duration{0}, m: lan, again: 5 * ms},
		{rule: batches.Stages{}, now: 5 * ms, began: []time.Duration{0}, m: lan, begins: true},
		{rule: batches.Stages{}, now: 9 * ms, began: []time.Duration{0, 5 * ms}, m: lan},
		// 10 ms of 100: ten batches, each 10 ms after the one before.
		{rule: batches.Stages{}, now: 39 * ms, began: []time.Duration{0, 10 * ms, 20 * ms, 30 * ms}, m: wan, again: 40 * ms},
		{rule: batches.Stages{}, now: 40 * ms, began: []time.Duration{0, 10 * ms, 20 * ms, 30 * ms}, m: wan, begins: true},
		{rule: batches.Stages{}, now: 200 * ms, began: []time.Duration{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, m: wan},
	} {
		s := batches.State{Now: row.now, Open: len(row.began), OpenBytes: row.bytes, First: row.began[0], Last: row.began[len(row.began)-1], Measured: row.m}
		if begins, again := row.rule.Next(s); begins != row.begins || again != row.again {
			t.Errorf("%s at %v with batches since %v: %v, again at %v; want %v, %v", row.rule.Name(), row.now, row.began, begins, again, row.begins, row.again)
		}
	}
}

// Rules are named apart, because reports tell them apart by name.
func TestNames(t *testing.T) {
	var names []string
	for _, r := range []batches.Rule{
		batches.AtOnce{}, batches.Depth(1), batches.Depth(2), batches.Halfway{}, batches.Spaced{Named: "two stages"}, batches.Window(1), batches.Window(1.5), batches.Stages{},
	} {
		if names = append(names, r.Name()); slices.Index(names, r.Name()) != len(names)-1 {
			t.Errorf("two rules are named %q", r.Name())
		}
	}
}

// A rule that does not let a batch begin names a later time, or none, in any state: it may be asked again at
// that time only.
func TestNextIsLater(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		m := measured(time.Duration(1+rng.IntN(1e9)), time.Duration(1+rng.IntN(1e9)), rng.Int64N(1<<20))
		if rng.IntN(4) == 0 {
			m = batches.Measured{}
		}
		first := time.Duration(rng.IntN(1e9))
		last := first + time.Duration(rng.IntN(1e9))
		s := batches.State{Now: last + time.Duration(rng.IntN(1e9)), Open: 1 + rng.IntN(20), OpenBytes: rng.Int64N(1 << 22), First: first, Last: last, Measured: m}
		for _, r := range []batches.Rule{batches.AtOnce{}, batches.Depth(2), batches.Halfway{}, batches.Spaced{By: ms}, batches.Window(2), batches.Stages{}} {
			begins, again := r.Next(s)
			if begins && again != 0 || !begins && again != 0 && again <= s.Now {
				t.Fatalf("%s in %+v: %v, again at %v", r.Name(), s, begins, again)
			}
			if s.Now = again; again == 0 {
				s.Now = last
			} else if begins, next := r.Next(s); !begins && next != 0 {
				t.Fatalf("%s wants to be asked at %v, and then at %v", r.Name(), again, next)
			}
		}
	}
}

// The least value of a window, beside all values that were noted. It may forget a value after ten seconds,
// and must after twenty.
func TestMeasuredBesideATwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var m batches.Measured
	type noted struct{ at, took time.Duration }
	var all []noted
	now, mean := time.Duration(0), 0.0
	for range 2000 {
		now += time.Duration(rng.IntN(int(200 * ms)))
		took := time.Duration(1 + rng.IntN(int(50*ms)))
		all = append(all, noted{now, took})
		m.NoteRound(now, took, 1)
		least := func(within time.Duration) time.Duration {
			low := time.Hour
			for _, n := range all {
				if now-n.at < within {
					low = min(low, n.took)
				}
			}
			return low
		}
		if m.LeastRound > least(10*time.Second) || m.LeastRound < least(20*time.Second) {
			t.Fatalf("at %v: least %v, want %v to %v", now, m.LeastRound, least(20*time.Second), least(10*time.Second))
		}
		if mean == 0 {
			mean = float64(took)
		}
		mean += (float64(took) - mean) / 8
		if d := float64(m.Round) - mean; d > 100 || d < -100 {
			t.Fatalf("mean %v, want %v", m.Round, time.Duration(mean))
		}
	}
}

// The rate is that of the best stretch.
func TestRate(t *testing.T) {
	m := measured(10*ms, ms, 5000) // 500,000 bytes a second
	if m.Rate < 499_000 || m.Rate > 501_000 {
		t.Errorf("%v bytes per second", m.Rate)
	}
	var none batches.Measured
	none.NoteRound(ms, ms, 100)
	if none.Rate != 0 {
		t.Errorf("one batch has the rate %v", none.Rate)
	}
}
