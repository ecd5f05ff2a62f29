package millrace

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeTimers is a machine with one timer, in a bubble of testing/synctest.
type fakeTimers struct {
	at     time.Duration // <0: none
	sooner chan struct{}
	ticks  []time.Duration
	mu     sync.Mutex // as the machine of a program: nothing is applied while the clock looks
}

func (f *fakeTimers) Next() (time.Duration, bool) { return f.at, f.at >= 0 }

func (f *fakeTimers) Sooner() <-chan struct{} { return f.sooner }

// TestClockWaits: the clock ticks when the timer is due and not before. It hears of an earlier one, slows
// down if ticks do nothing or are refused, and ends with its context.
func TestClockWaits(t *testing.T) {
	for _, c := range []struct {
		what        string
		at          time.Duration
		tick        func(f *fakeTimers) error
		sets        time.Duration // after one second; 0: nothing
		least, most int           // ticks in a minute
		first       time.Duration
	}{
		{"one timer", 10 * time.Second, func(f *fakeTimers) error { f.at = -1; return nil }, 0, 1, 1, 10*time.Second + logTimeStep},
		{"none", -1, func(f *fakeTimers) error { f.at = -1; return nil }, 0, 0, 0, 0},
		{"one is set", -1, func(f *fakeTimers) error { f.at = -1; return nil }, 2 * time.Second, 1, 1, 2*time.Second + logTimeStep},
		{"an earlier one is set", time.Hour, func(f *fakeTimers) error { f.at = -1; return nil }, 1, 1, 1, time.Second},
		{"every second", time.Second, func(f *fakeTimers) error { f.at += time.Second; return nil }, 0, 58, 60, time.Second + logTimeStep},
		{"it stays", 0, func(*fakeTimers) error { return nil }, 0, fruitlessTicks, fruitlessTicks + 70, logTimeStep},
		{"refused", 0, func(*fakeTimers) error { return errors.New("refused") }, 0, 60, 300, logTimeStep},
		{"all at once", 0, func(f *fakeTimers) error { f.at++; return nil }, 0, 5000, 6000, logTimeStep},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				f := &fakeTimers{at: c.at, sooner: make(chan struct{}, 1)}
				clock := clock{
					timers:  f,
					logTime: func() time.Duration { return time.Since(began) },
					look: func(_ context.Context, look func() error) error {
						f.mu.Lock()
						defer f.mu.Unlock()
						return look()
					},
					tick: func(context.Context) error {
						f.mu.Lock()
						defer f.mu.Unlock()
						f.ticks = append(f.ticks, time.Since(began))
						return c.tick(f)
					},
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if c.sets > 0 {
					time.AfterFunc(time.Second, func() {
						f.mu.Lock()
						defer f.mu.Unlock()
						f.at = c.sets
						f.sooner <- struct{}{}
					})
				}
				clock.lead(ctx)
				if n := len(f.ticks); n < c.least || n > c.most || n > 0 && f.ticks[0] != c.first {
					t.Errorf("%d ticks, want %d to %d; the first ones are %v, want %v", n, c.least, c.most, f.ticks[:min(n, 3)], c.first)
				}
			})
		})
	}
}

// TestTimersAreChecked: what cannot work is refused by Open.
func TestTimersAreChecked(t *testing.T) {
	for _, c := range []struct {
		m    Machine[string, string]
		want string
	}{
		{InMemory[string, string](nowhere{}, failing{}).Timers(&fakeTimers{}, "tick"), "the tick of Machine.Timers is no command that the codec can encode and decode: no ticks"},
		{InMemory[string, string](nowhere{}, failing{}).Timers((*fakeTimers)(nil), ""), "the timers of the machine are a nil *millrace.fakeTimers"},
		{InMemory[string, string](nowhere{}, failing{}).Timers(&fakeTimers{}, ""), ""},
		{InMemory[string, string](nowhere{}, failing{}), ""},
	} {
		err := c.m.validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// nowhere is a machine that no test runs.
type nowhere struct{ StateMachine[string, string] }

// failing is a codec that cannot encode ticks.
type failing struct{}

func (failing) Append(dst []byte, v string) ([]byte, error) {
	if v == "tick" {
		return nil, errors.New("no ticks")
	}
	return append(dst, v...), nil
}

func (failing) Decode(b []byte) (string, error) { return string(b), nil }
