package batches

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A Cohort that is asked at any time, in any state, keeps its promises.
func TestCohortPromises(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		c, now := Cohort{}, time.Duration(0)
		flush := time.Duration(random.Int64N(int64(time.Millisecond))) + time.Microsecond
		asks, limit := time.Duration(0), time.Duration(0) // when it wants to be asked again, and the latest time for that
		for range 500 {
			now += time.Duration(random.Int64N(int64(2 * flush)))
			s := State{
				Now: now, Waiting: random.IntN(40), Open: random.IntN(2), Round: flush/2 + time.Duration(random.Int64N(int64(4*flush))), Flush: flush,
			}
			if random.IntN(20) == 0 {
				s.Waiting = maxHeld - 1 + random.IntN(3)
			}
			s.Bytes, s.Full = int64(s.Waiting)*(1+random.Int64N(2000)), random.IntN(20) == 0
			if s.Open > 0 {
				s.Pending = 1 + random.IntN(40)
			}
			if random.IntN(3) == 0 {
				s.Answered = random.IntN(40)
			}
			if s.Answered > 0 {
				limit = now + min(maxWait, s.Round/2)
			}
			v := c.Next(s)
			switch {
			case v.Begins && s.Waiting == 0:
				t.Fatalf("seed %d: it begins a batch without commands: %+v", seed, s)
			case !v.Begins && v.Wake < 1:
				t.Fatalf("seed %d: no number of commands makes it ask again: %+v %+v", seed, s, v)
			case !v.Begins && s.Waiting >= v.Wake:
				t.Fatalf("seed %d: it waits for %d commands while %d wait: %+v", seed, v.Wake, s.Waiting, s)
			case !v.Begins && s.Waiting > 0 && (s.Full || s.Waiting >= maxHeld || s.Bytes >= maxHeldBytes):
				t.Fatalf("seed %d: it holds %d commands, of %d bytes", seed, s.Waiting, s.Bytes)
			case !v.Begins && s.Waiting > 0 && s.isLong():
				t.Fatalf("seed %d: it holds commands on a long line: %+v", seed, s)
			case !v.Begins && s.Waiting > 0 && s.Open == 0 && v.Again <= now:
				t.Fatalf("seed %d: nothing ends its wait: %+v %+v", seed, s, v)
			case v.Again > limit:
				t.Fatalf("seed %d: it waits until %v, and may until %v", seed, v.Again, limit)
			case s.Waiting > 0 && s.Open == 0 && s.Answered == 0 && asks > 0 && now >= asks && !v.Begins:
				t.Fatalf("seed %d: its wait has ended, and it holds on: %+v", seed, s)
			}
			asks = v.Again
		}
	}
}

// All clients of a closed loop come back at once, so each batch has all of them.
func TestCohortCarriesAll(t *testing.T) {
	const clients, round = 16, 300 * time.Microsecond
	c, now := Cohort{}, time.Duration(0)
	at := func(waiting, open, pending, answered int) Verdict {
		return c.Next(State{Now: now, Waiting: waiting, Bytes: int64(waiting) << 10, Open: open, Pending: pending, Answered: answered, Round: round, Flush: round / 2})
	}
	if v := at(1, 0, 0, 0); !v.Begins {
		t.Fatal("the first command waits, and nothing is under way")
	}
	for waiting := 1; waiting < clients; waiting++ {
		if v := at(waiting, 1, 1, 0); v.Begins || v.Wake != maxHeld {
			t.Fatalf("%+v, while a batch is under way", v)
		}
	}
	now += round
	for trip := range 5 {
		first := clients - 1 // of those that were answered, or waited
		if trip > 0 {
			first = 0
		}
		if v := at(first, 0, 0, clients-first); v.Begins || v.Wake != clients || v.Again != now+round/2 {
			t.Fatalf("trip %d: %+v, want to wait for %d clients until %v", trip, v, clients, now+round/2)
		}
		now += 20 * time.Microsecond
		if v := at(clients, 0, 0, 0); !v.Begins {
			t.Fatalf("trip %d: all clients are back, and the batch does not begin", trip)
		}
		now += round
	}
}

// Clients that do not come back are waited for less and less: 2 batches do not wait, then 4, 128 at most.
func TestWaitsForNothingBecomeRare(t *testing.T) {
	const round = 300 * time.Microsecond
	c, now, batches, waits := Cohort{}, time.Duration(0), 0, []int(nil)
	for len(waits) < 12 {
		now += round
		s := State{Now: now, Waiting: 3, Bytes: 3 << 10, Answered: 3, Round: round, Flush: round}
		v := c.Next(s)
		if batches++; v.Begins {
			continue
		}
		waits = append(waits, batches)
		batches = 0
		if s.Now, s.Answered = v.Again, 0; !c.Next(s).Begins {
			t.Fatal("the wait does not end")
		}
	}
	for i, n := range waits[1:] {
		if want := 1<<min(i+1, maxMisses) + 1; n != want {
			t.Errorf("wait %d comes after %d batches, want %d: %v", i+2, n, want, waits)
		}
	}
}

// fixture is a leader whose commands take a fixed time under each rule, all of them in step.
type fixture struct {
	now   time.Duration
	takes [2]time.Duration // at once, and held
	count [2]int           // batches
}

// run lets a number of batches pass.
func (w *fixture) run(c *Choice, batches int) {
	const clients = 10
	for range batches {
		s := State{Now: w.now, Waiting: clients, Bytes: clients << 10, Round: time.Millisecond, Flush: time.Millisecond}
		if v := c.Next(s); !v.Begins {
			s.Now, s.Waited = max(v.Again, s.Now), clients*(v.Again-s.Now)
			if !c.Next(s).Begins {
				panic("the wait does not end")
			}
		}
		w.count[c.tried]++
		w.now += w.takes[c.tried]
		c.Next(State{Now: w.now, Answered: clients, Round: time.Millisecond, Flush: time.Millisecond})
	}
}

// A Choice finds the better rule, uses it for nearly all batches, and finds out when the other one has become
// the better.
func TestChoiceFindsTheBetterRule(t *testing.T) {
	for better := range 2 {
		w, c := fixture{}, Choice{}
		w.takes[better], w.takes[1-better] = 600*time.Microsecond, time.Millisecond
		w.run(&c, 2000)
		if c.chosen != better {
			t.Fatalf("rule %d is better, and it has chosen the other one: %+v", better, c)
		}
		w.count = [2]int{}
		w.run(&c, 20_000)
		if part := float64(w.count[1-better]) / 20_000; part > 0.05 {
			t.Errorf("rule %d is better, and %.1f %% of the batches go the other way", better, 100*part)
		}
		w.takes[0], w.takes[1] = w.takes[1], w.takes[0]
		w.run(&c, (maxStay+2)*64)
		if c.chosen == better {
			t.Errorf("rule %d is not the better one any more, and is still chosen", better)
		}
	}
}

// Rules that are alike do not alternate: the first one stays.
func TestChoiceStaysWhereNothingIsGained(t *testing.T) {
	w, c := fixture{}, Choice{}
	w.takes = [2]time.Duration{time.Millisecond, 970 * time.Microsecond}
	w.run(&c, 20_000)
	if c.chosen != 0 {
		t.Error("3 % less time has made it choose the other rule")
	}
}

// On a long line there is no trial, and nothing is held.
func TestChoiceHoldsNothingOnALongLine(t *testing.T) {
	c, now := Choice{}, time.Duration(0)
	for range 10_000 {
		now += 10 * time.Millisecond
		if v := c.Next(State{Now: now, Waiting: 5, Open: 3, Pending: 40, Answered: 7, Round: 40 * time.Millisecond, Flush: time.Millisecond}); !v.Begins {
			t.Fatal("a command is held on a long line")
		}
	}
}
