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
		if seed%10 == 0 { // a round may take a nanosecond where time stands still, as in the simulator
			flush = 1 + time.Duration(seed/10)
		}
		asks, limit := time.Duration(0), time.Duration(0) // when it wants to be asked again, and the latest time for that
		ends := time.Duration(0)                          // of this part of the wait
		target, had := 0, 0                               // whom it may wait for, and who waited when this part of the wait began
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
				s.Back = random.IntN(s.Answered + 1)
			}
			if s.Back > 0 {
				ends, limit = now+min(maxWait, s.Round/2), now+min(maxWait, s.Round)
				target, had = min(s.Waiting+s.Back, maxHeld), s.Waiting
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
			case s.Back > 0 && v.Again > now+min(maxWait, s.Round/2):
				t.Fatalf("seed %d: the first part of its wait is longer than half a round: %+v %+v", seed, s, v)
			case s.Waiting > 0 && s.Open == 0 && s.Back == 0 && asks > 0 && now >= asks && !v.Begins && (s.Waiting-had < target-s.Waiting || now >= limit):
				t.Fatalf("seed %d: its wait has ended, and it holds on: %+v", seed, s)
			}
			if v.Again > ends {
				had, ends = s.Waiting, v.Again
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
		return c.Next(State{Now: now, Waiting: waiting, Bytes: int64(waiting) << 10, Open: open, Pending: pending, Answered: answered, Back: answered, Round: round, Flush: round / 2})
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

// Clients that come back late, but at a pace with which all come within a round, share each batch. They come
// in a row here, each after the same time, as those do who get the results of a batch.
func TestCohortWaitsWhileClientsComeBack(t *testing.T) {
	const clients, round = 100, 400 * time.Microsecond
	for _, each := range []time.Duration{time.Microsecond, 2500 * time.Nanosecond, 3500 * time.Nanosecond} {
		c, now := Cohort{}, time.Duration(0)
		for trip := range 20 {
			now += round
			s := State{Now: now, Answered: clients, Back: clients, Round: round, Flush: round / 2}
			for v := c.Next(s); !v.Begins; v = c.Next(s) {
				s.Answered, s.Back = 0, 0
				all := now + clients*each
				if v.Again == 0 || v.Wake > clients {
					t.Fatalf("trip %d: %+v", trip, v)
				}
				s.Now = min(all, v.Again)
				s.Waiting = int((s.Now - now) / each)
			}
			now = s.Now
			if s.Waiting != clients {
				t.Fatalf("one in %v: batch %d begins with %d of %d clients", each, trip, s.Waiting, clients)
			}
		}
	}
}

// A wait ends with the first part that brings fewer clients than are missing.
func TestCohortGivesUpClientsThatStop(t *testing.T) {
	const round = 400 * time.Microsecond
	for _, w := range []struct {
		at   []int // how many wait at the end of each part
		took time.Duration
	}{
		{[]int{49}, round / 2},
		{[]int{50, 74}, round/2 + round/4},
		{[]int{50, 75, 99}, round},
		{[]int{90, 90}, round/2 + round/4},
	} {
		c, began := Cohort{}, time.Second
		v := c.Next(State{Now: began, Answered: 100, Back: 100, Round: round, Flush: round})
		for i, waiting := range w.at {
			if v.Begins || v.Again == 0 {
				t.Fatalf("%v: part %d: %+v", w.at, i, v)
			}
			now := v.Again
			if v = c.Next(State{Now: now, Waiting: waiting, Round: round, Flush: round}); v.Begins != (i == len(w.at)-1) {
				t.Errorf("%v: after part %d: %+v", w.at, i, v)
			}
			if v.Begins && now-began != w.took {
				t.Errorf("%v: the wait took %v, want %v", w.at, now-began, w.took)
			}
		}
	}
}

// Few that are missing do not make a wait one for nothing.
func TestStraysDoNotPause(t *testing.T) {
	const round = 400 * time.Microsecond
	for waiting, misses := range map[int]int{94: 0, 93: 1} {
		c := Cohort{}
		v := c.Next(State{Now: time.Second, Answered: 100, Back: 100, Round: round, Flush: round})
		for now := v.Again; !v.Begins; now = v.Again {
			v = c.Next(State{Now: now, Waiting: waiting, Round: round, Flush: round})
		}
		if c.misses != misses {
			t.Errorf("%d of 100 came: %d misses, want %d", waiting, c.misses, misses)
		}
	}
}

// Clients that do not come back are waited for less and less: 2 batches do not wait, then 4, 128 at most.
func TestWaitsForNothingBecomeRare(t *testing.T) {
	const round = 300 * time.Microsecond
	c, now, batches, waits := Cohort{}, time.Duration(0), 0, []int(nil)
	for len(waits) < 12 {
		now += round
		s := State{Now: now, Waiting: 3, Bytes: 3 << 10, Answered: 3, Back: 3, Round: round, Flush: round}
		v := c.Next(s)
		if batches++; v.Begins {
			continue
		}
		waits = append(waits, batches)
		batches = 0
		if s.Now, s.Answered, s.Back = v.Again, 0, 0; !c.Next(s).Begins {
			t.Fatal("the wait does not end")
		}
	}
	for i, n := range waits[1:] {
		if want := 1<<min(i+1, maxMisses) + 1; n != want {
			t.Errorf("wait %d comes after %d batches, want %d: %v", i+2, n, want, waits)
		}
	}
}

// A Kind is a word, and comes back as itself.
func TestKindIsAWord(t *testing.T) {
	for _, k := range []Kind{Automatic, Immediate, Cohorts} {
		text, err := k.MarshalText()
		var back Kind
		if err != nil || back.UnmarshalText(text) != nil || back != k {
			t.Errorf("%v becomes %q, and then %v (%v)", k, text, back, err)
		}
	}
	if new(Kind).UnmarshalText([]byte("other")) == nil {
		t.Error("another word is read")
	}
}

// Only batches count that do not wait: a commit for which no command waits is none.
func TestOnlyBatchesEndAPause(t *testing.T) {
	c := Cohort{pause: 2}
	for range 5 {
		c.Next(State{Now: time.Second, Answered: 3, Back: 3, Round: time.Millisecond, Flush: time.Millisecond})
	}
	if c.pause != 2 {
		t.Errorf("the pause is %d, want 2: nothing has begun", c.pause)
	}
}

// fixture is a leader whose commands take a fixed time under each rule, all of them in step.
type fixture struct {
	now   time.Duration
	takes [2]time.Duration // at once, and held
	count [2]int           // batches
	noise *rand.Rand       // each batch takes up to a third less or more; nil: it does not
	stall time.Duration    // of the next batch
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
		took := w.takes[c.tried]
		if w.noise != nil {
			took += time.Duration((w.noise.Float64() - 0.5) * float64(took) * 2 / 3)
		}
		w.now += took + w.stall
		w.stall = 0
		c.Next(State{Now: w.now, Answered: clients, Back: clients, Round: time.Millisecond, Flush: time.Millisecond})
	}
}

// A Choice finds the better rule, uses it for nearly all batches, and finds out when the other one has become
// the better.
func TestChoiceFindsTheBetterRule(t *testing.T) {
	for better := range 2 {
		w, c := fixture{}, Choice{}
		w.takes[better], w.takes[1-better] = 600*time.Microsecond, time.Millisecond
		w.run(&c, 400)
		if c.chosen != better {
			t.Fatalf("rule %d is better, and it has chosen the other one: %+v", better, c)
		}
		w.run(&c, 20_000) // the stays become long
		w.count = [2]int{}
		w.run(&c, 100_000)
		if part := float64(w.count[1-better]) / 100_000; part >= 0.01 {
			t.Errorf("rule %d is better, and %.2f %% of the batches go the other way", better, 100*part)
		}
		w.takes[0], w.takes[1] = w.takes[1], w.takes[0]
		w.run(&c, (minStay+4)*64)
		if c.chosen == better {
			t.Errorf("rule %d is not the better one any more, and is still chosen", better)
		}
	}
}

// A stall of 500 ms, of a disk or of the runtime, in whichever batch, changes nothing: the better rule stays.
func TestAStallChoosesNothing(t *testing.T) {
	for better := range 2 {
		var w fixture
		var c Choice
		w.takes[better], w.takes[1-better] = 800*time.Microsecond, time.Millisecond
		w.run(&c, 1500)
		for range 600 { // more than the other rule needs to get its turn
			w.run(&c, 7)
			at, stalled := w, c
			if c.chosen != better {
				t.Fatalf("rule %d is better, and not chosen", better)
			}
			at.stall = 500 * time.Millisecond
			for range 100 {
				if at.run(&stalled, 1); stalled.chosen != better {
					t.Fatalf("after a stall rule %d is chosen: %+v", 1-better, stalled)
				}
			}
		}
	}
}

// A load that becomes lighter or heavier in any batch does not make a rule look better.
func TestAChangeOfTheLoadChoosesNothing(t *testing.T) {
	for better := range 2 {
		for _, by := range []time.Duration{1, 9} { // thirds
			var w fixture
			var c Choice
			w.takes[better], w.takes[1-better] = 800*time.Microsecond, time.Millisecond
			w.run(&c, 1500)
			for range 100 {
				w.run(&c, 41)
				at, changed := w, c
				at.takes[0], at.takes[1] = at.takes[0]*by/3, at.takes[1]*by/3
				for range 200 {
					if at.run(&changed, 1); changed.chosen != better {
						t.Fatalf("after a change of the load rule %d is chosen: %+v", 1-better, changed)
					}
				}
			}
		}
	}
}

// Batches that scatter by a third do not make the choice alternate, and the better rule has nearly all.
func TestChoiceWithNoise(t *testing.T) {
	for seed := range uint64(20) {
		for better := range 2 {
			var c Choice
			w := fixture{noise: rand.New(rand.NewPCG(seed, 7))}
			w.takes[better], w.takes[1-better] = 900*time.Microsecond, time.Millisecond
			w.run(&c, 2000)
			w.count = [2]int{}
			changes, was := 0, c.chosen
			for range 20_000 {
				w.run(&c, 1)
				if c.chosen != was {
					changes, was = changes+1, c.chosen
				}
			}
			if part := float64(w.count[1-better]) / 20_000; part > 0.05 || changes > 2 {
				t.Errorf("seed %d: rule %d is better by a tenth; %.1f %% of the batches go the other way, with %d changes", seed, better, 100*part, changes)
			}
		}
	}
}

// Where a disk takes 30 ms, 8 commands come each millisecond, and each sync answers all that came before it
// began, a command takes 45 ms on average. A trial that is shorter than some rounds measures anything. It
// begins when what came before it is answered.
func TestATrialLastsForManyRounds(t *testing.T) {
	const each, sync = 8, 30 * time.Millisecond
	for phase := range time.Duration(30) {
		c := Choice{measure: trial{since: phase * time.Millisecond, at: phase * time.Millisecond}}
		synced, written := 240, each*int(phase) // commands of the sync under way, and those behind it
		for now := phase * time.Millisecond; c.own == 0; now += time.Millisecond {
			s := State{Now: now, Pending: synced + written, Round: 45 * time.Millisecond, Flush: 40 * time.Millisecond}
			if now%sync == 0 {
				s.Answered, s.Back, s.Pending = synced, synced, written
				synced, written = written, 0
			}
			c.Next(s)
			s.Answered, s.Back, s.Waiting = 0, 0, each
			c.Next(s)
			if written += each; c.measure.warm && now < (phase+90)*time.Millisecond {
				t.Fatal("a trial begins while commands are pending that came before it")
			}
		}
		if c.own < 42*time.Millisecond || c.own > 48*time.Millisecond {
			t.Errorf("phase %d: a command takes %v, and it has measured %v", phase, 45*time.Millisecond, c.own)
		}
	}
}

// A trial of a rule that is worse by far ends early: few commands wait longer for it. One that is worse by a
// third is tried for as long as any.
func TestAHopelessTrialEndsEarly(t *testing.T) {
	for worse, most := range map[time.Duration]int{
		1200 * time.Microsecond: warmBatches + trialBatches/hopeless,
		800 * time.Microsecond:  warmBatches + trialBatches,
	} {
		w, c := fixture{takes: [2]time.Duration{600 * time.Microsecond, worse}}, Choice{}
		for c.stay == 0 || c.tried != c.chosen {
			w.run(&c, 1)
		}
		if least := most * 9 / 10; w.count[1] < least || w.count[1] > most+2 {
			t.Errorf("commands take %v instead of 600µs, and %d batches show it, want %d", worse, w.count[1], most)
		}
	}
}

// A line that is long at times ends each trial: the rule that is tried then is given up, and not kept without
// a judgment.
func TestALineThatIsLongAtTimes(t *testing.T) {
	w, c := fixture{takes: [2]time.Duration{800 * time.Microsecond, time.Millisecond}}, Choice{}
	for c.tried == 0 {
		w.run(&c, 1)
	}
	w.count = [2]int{}
	for range 500 {
		w.run(&c, 31)
		if !c.Next(State{Now: w.now, Waiting: 1, Round: 4 * time.Millisecond, Flush: time.Millisecond}).Begins {
			t.Fatal("a command is held on a long line")
		}
	}
	if w.count[1] > 31 {
		t.Errorf("%d batches are held on trial, and no trial ends", w.count[1])
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
		if v := c.Next(State{Now: now, Waiting: 5, Open: 3, Pending: 40, Answered: 7, Back: 7, Round: 40 * time.Millisecond, Flush: time.Millisecond}); !v.Begins {
			t.Fatal("a command is held on a long line")
		}
	}
}
