package smtest

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"
)

// repetitions is how often a setup is tried. Go begins a loop over a small map at one of eight places.
const repetitions = 12

// checkDeterminism: the results and the state are the same whatever a machine must not depend on.
func (k *kit[C, R]) checkDeterminism() error {
	reference, err := k.replay(setup{name: "in one batch"})
	if err != nil {
		return err
	}
	against := func(s setup) error {
		tr, err := k.replay(s)
		if err != nil {
			return err
		}
		return k.compare(reference, tr)
	}
	if _, err := k.replay(setup{bubble: true}); err != nil { // it shows what Apply does not wait for
		return err
	}
	for range repetitions {
		if err := against(setup{name: "in one batch, again"}); err != nil {
			return k.explain(err)
		}
	}
	for range repetitions / 4 {
		for _, s := range []setup{
			{name: "one command at a time", batches: oneByOne},
			{name: "in small batches", batches: drawn},
			{name: "without a caller (Command.Awaited)", waits: noneWaits},
			{name: "with a caller for some commands (Command.Awaited)", batches: drawn, waits: someWait},
			{name: "on one processor", batches: drawn, procs: 1},
			{name: "on many processors", procs: 16},
			{name: "with the clock of the year 2000", bubble: true},
			{name: "with a clock of the year 2003", batches: drawn, bubble: true, ahead: 3*365*24*time.Hour + 12345*time.Microsecond},
			{name: "with an hour between two batches", batches: oneByOne, bubble: true, pauses: time.Hour + time.Millisecond},
		} {
			if err := against(s); err != nil {
				return k.explain(err)
			}
		}
	}
	return k.explain(k.checkTogether(reference))
}

// checkTogether runs machines at the same time: they must share nothing.
func (k *kit[C, R]) checkTogether(reference *trace[C, R]) error {
	const together = 4
	var wg sync.WaitGroup
	found := make([]error, together)
	for i := range found {
		wg.Go(func() {
			tr, err := k.replay(setup{name: "beside three other machines", batches: batching(i % 3)})
			if err == nil {
				err = k.compare(reference, tr)
			}
			found[i] = err
		})
	}
	wg.Wait()
	return errors.Join(found...)
}

// difference is what two replays of the same commands do not agree about.
type difference struct {
	what string
	a, b setup
}

func (d *difference) Error() string {
	return fmt.Sprintf("the machine is not deterministic: %s (%s, and %s)", d.what, d.a.name, d.b.name)
}

// compare returns a *difference, or nil.
func (k *kit[C, R]) compare(a, b *trace[C, R]) error {
	for i := range a.results {
		if k.awaits(a.setup, i) != k.awaits(b.setup, i) {
			first, compared := k.sum(a.results[i])
			if again, _ := k.sum(b.results[i]); compared && first != again {
				return &difference{fmt.Sprintf("%s gives %s where its result is awaited, and elsewhere %s, and members would compare what differs; leave out only fields tagged `millrace:\"awaited\"`", k.name(i), show(a.results[i]), show(b.results[i])), a.setup, b.setup}
			}
			continue
		}
		if !same(a.results[i], b.results[i]) {
			index, _, _ := logPosition(i)
			return &difference{fmt.Sprintf("%s at index %d gives %s, and in another machine, after the same commands, %s", k.name(i), index, show(a.results[i]), show(b.results[i])), a.setup, b.setup}
		}
	}
	for i := range a.published {
		if !reflect.DeepEqual(a.published[i], b.published[i]) {
			return &difference{fmt.Sprintf("%s publishes %s, and in another machine %s", k.name(i), show(a.published[i]), show(b.published[i])), a.setup, b.setup}
		}
	}
	if err := a.state.differs(b.state); err != nil {
		return &difference{fmt.Sprintf("after all %d commands, which gave the same results, %v", len(k.encoded), err), a.setup, b.setup}
	}
	return nil
}

// explain adds the likely cause to a difference: which of the things that a machine must not depend on makes
// it go away.
func (k *kit[C, R]) explain(err error) error {
	var d *difference
	if !errors.As(err, &d) {
		return err
	}
	agrees := func(s setup) bool {
		first, err := k.replay(s)
		for range 2 * repetitions {
			tr, err2 := k.replay(s)
			if err != nil || err2 != nil || k.compare(first, tr) != nil {
				return false
			}
		}
		return true
	}
	var hint string
	switch {
	case agrees(setup{}) && d.a.bubble != d.b.bubble:
		hint = "it differs with the clock: look for time.Now (Command.Time instead)"
	case agrees(setup{}) && d.a.waits != d.b.waits:
		hint = "it differs with Command.Awaited: that may change only what its caller gets"
	case agrees(setup{}) && d.a.batches != d.b.batches:
		hint = "equal batches give equal results: look for what depends on where a batch ends"
	case agrees(setup{bubble: true}):
		hint = "with a clock that stands still the results are the same: look for time.Now (Command.Time instead)"
	case agrees(setup{procs: 1}):
		hint = "on one processor the results are the same: look for goroutines"
	default:
		hint = "look for the order of a map, a random number, or a variable that several machines share"
	}
	return fmt.Errorf("%w; %s", err, hint)
}
