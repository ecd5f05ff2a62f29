package smtest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
)

// setup is what may differ between two members, and must make no difference.
type setup struct {
	name     string
	batches  batching
	original bool          // the commands are those that the test has given, without the codec
	waits    waiting       // for which results a caller waits
	procs    int           // GOMAXPROCS; 0: as it is
	bubble   bool          // the clock begins in the year 2000
	ahead    time.Duration // it has gone on for this long
	pauses   time.Duration // and goes on for this long between two batches, the first maxPauses times
}

// maxPauses bounds the time that passes in a bubble. Every tick of a machine with a ticker is an event there.
const maxPauses = 16

// batching says how many commands one Apply gets.
type batching int

const (
	allAtOnce batching = iota
	oneByOne
	drawn // 1 to 7
)

// waiting says for which commands a caller of this member waits (Command.Awaited).
type waiting int

const (
	allWait waiting = iota
	noneWaits
	someWait // every third
)

func (w waiting) awaits(i int) bool { return w == allWait || w == someWait && i%3 == 0 }

// trace is what a machine has answered, and its state at the end.
type trace[C, R any] struct {
	setup     setup
	results   []R
	published [][][]byte // by command
	state     state
}

// replay makes a new machine and applies all commands to it.
func (k *kit[C, R]) replay(s setup) (tr *trace[C, R], err error) {
	if s.procs > 0 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(s.procs))
	}
	run := func() {
		if s.ahead > 0 {
			<-time.After(s.ahead) // in a bubble: no real time passes
		}
		tr, err = k.replayHere(s)
	}
	if s.bubble {
		if stuck := inBubble(k.t, run); stuck != nil && tr == nil && err == nil {
			err = fmt.Errorf("in a bubble of testing/synctest the machine waits for something that never comes: %v", stuck)
		}
		return tr, err
	}
	run()
	return tr, err
}

// inBubble runs f in a bubble of its own. Goroutines that the machine leaves behind make the bubble panic at
// its end; that is none of this kit's concern.
func inBubble(t *testing.T, f func()) (stuck any) {
	defer func() { stuck = recover() }()
	synctest.Test(t, func(*testing.T) { f() })
	return nil
}

func (k *kit[C, R]) replayHere(s setup) (*trace[C, R], error) {
	tr, m := &trace[C, R]{setup: s}, k.newMachine()
	defer closeMachine(m)
	results, published, err := k.applyAll(m, s, 0, len(k.encoded))
	if err != nil {
		return nil, err
	}
	tr.results, tr.published = results, published
	tr.state, err = stateOf(m)
	return tr, err
}

// apply applies the commands [lo, hi), and returns their results.
func (k *kit[C, R]) apply(m millrace.Machine[C, R], s setup, lo, hi int) ([]R, error) {
	results, _, err := k.applyAll(m, s, lo, hi)
	return results, err
}

// applyAll is apply, and returns what the machine has published, too.
func (k *kit[C, R]) applyAll(m millrace.Machine[C, R], s setup, lo, hi int) (results []R, published [][][]byte, err error) {
	rng := rand.New(rand.NewPCG(1, uint64(s.batches)))
	var applied []*batch[C, R]
	for first := lo; first < hi; {
		n := hi - first
		switch s.batches {
		case oneByOne:
			n = 1
		case drawn:
			n = min(n, 1+rng.IntN(7))
		}
		n, err := k.changeMembers(m.StateMachine(), first, k.course.cut(first, n))
		if err != nil {
			return nil, nil, err
		}
		b, err := k.applyBatch(m.StateMachine(), first, n, s)
		if err != nil {
			return nil, nil, err
		}
		applied = append(applied, b)
		first += n
		if s.pauses > 0 && len(applied) <= maxPauses {
			<-time.After(s.pauses) // in a bubble
		}
	}
	for _, b := range applied {
		if err := k.checkOwned(b); err != nil {
			return nil, nil, err
		}
		results = append(results, b.results...)
		published = append(published, b.published...)
	}
	return results, published, nil
}

// batch is one Apply, and what it was given.
type batch[C, R any] struct {
	first   int
	given   []R // the slice that Apply has filled, cleared since then, as the host does
	results []R // what it had put there
	shown   []string

	published [][][]byte // by command
}

func (k *kit[C, R]) applyBatch(sm millrace.StateMachine[C, R], first, n int, s setup) (b *batch[C, R], err error) {
	commands := make([]millrace.Command[C], n)
	for i := range commands {
		at := first + i
		index, term, now := logPosition(at)
		commands[i] = millrace.Command[C]{Index: index, Term: term, Time: now, Version: k.course.version(at), Awaited: k.awaits(s, at)}
		if s.original {
			commands[i].Value = k.commands[at]
		} else if commands[i].Value, err = k.decode(at); err != nil {
			return nil, err
		}
	}
	b = &batch[C, R]{first: first, given: make([]R, n), published: make([][][]byte, n)}
	for i := range commands {
		commands[i].Recorded(&b.published[i])
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("Apply panics with commands %d to %d of %d: %v\n%s", first+1, first+n, len(k.encoded), p, debug.Stack())
		}
	}()
	if err := sm.Apply(commands, b.given); err != nil {
		return nil, fmt.Errorf("Apply of commands %d to %d of %d returns an error, which halts the machine of this member, and of all members if all return it; a refusal, such as \"insufficient funds\", belongs into the result of its command: %w", first+1, first+n, len(k.encoded), err)
	}
	b.results = append(b.results, b.given...)
	for _, r := range b.results {
		b.shown = append(b.shown, fmt.Sprintf("%+v", r))
	}
	clear(commands)
	clear(b.given)
	if s.bubble {
		synctest.Wait() // then its goroutines have done what they can do
	}
	return b, nil
}

// logPosition returns where a command is in the log. Not every index has a command, and the log time stands
// still at times and then passes an hour.
func logPosition(i int) (index, term uint64, now time.Duration) {
	n := uint64(i)
	return 3 + n + n/5, 1 + n/7, time.Duration(n/2)*10*time.Millisecond + time.Duration(n/40)*time.Hour
}

// checkOwned: what Apply has returned does not change when other commands are applied, and Apply writes
// nothing after it has returned.
func (k *kit[C, R]) checkOwned(b *batch[C, R]) error {
	for i := range b.results {
		if now := fmt.Sprintf("%+v", b.results[i]); now != b.shown[i] {
			return fmt.Errorf("the result of %s was %.200s, and became %.200s when later commands were applied: it shares memory with the state; return a copy", k.name(b.first+i), b.shown[i], now)
		}
		if !reflect.ValueOf(&b.given[i]).Elem().IsZero() {
			return fmt.Errorf("Apply has set the result of %s after it had returned: it must wait for its goroutines", k.name(b.first+i))
		}
	}
	return nil
}
