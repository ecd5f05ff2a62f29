package millrace

import (
	"context"
	"fmt"
	"reflect"
	"time"
)

// Timers are the timers of a state machine, as the leader's clock sees them. A Queue of package timers is
// what they are; the methods are called between two batches, as the function of ViewExclusive is.
type Timers interface {
	// Next returns the log time of the first timer, and whether there is one.
	Next() (at time.Duration, ok bool)
	// Sooner returns a channel that gets a value when the first timer may have become earlier.
	Sooner() <-chan struct{}
}

// Timers makes the leader propose tick when the first timer is due. Apply expires timers with each command,
// up to its Command.Time, so tick needs to do nothing else. Without it a timer waits for the next command of
// a client, since log time passes with commands.
//
// A tick is proposed when a timer is due and at no other time, at most 100 in a second. It comes about 10 ms
// of log time after the deadline, never before it. If more is due than Apply expires for one command, more
// ticks follow. A new leader begins when it has applied everything of earlier terms.
//
// All members must have the tick. Package timers has the timers; docs/howto/embed.md says more.
func (m Machine[C, R]) Timers(t Timers, tick C) Machine[C, R] { m.timers, m.tick = t, tick; return m }

// Clock returns the timers and the tick, for kits that test the machine. t is nil if it has none.
func (m Machine[C, R]) Clock() (t Timers, tick C) { return m.timers, m.tick }

// rejectTimers says why the timers cannot be used.
func (m Machine[C, R]) rejectTimers() error {
	if m.timers == nil {
		return nil
	}
	if v := reflect.ValueOf(m.timers); isNil(v) {
		return fmt.Errorf("millrace: the timers of the machine are a nil %v, so the first look at them would panic; pass the address of the Queue in the state", v.Type())
	}
	data, err := appendSafely(m.codec, nil, m.tick)
	if err == nil {
		err = tryDecode(m.codec, data)
	}
	if err != nil {
		return fmt.Errorf("millrace: the tick of Machine.Timers is no command that the codec can encode and decode: %w", err)
	}
	return nil
}

const (
	// logTimeStep is how exact log time is: a command may have a Time that is so much older than the moment at
	// which its leader took it.
	logTimeStep = 10 * time.Millisecond
	// fruitlessTicks is how many ticks that change nothing may follow each other before they become slower.
	// Timers of one deadline that are more than Apply expires at once look like that, too.
	fruitlessTicks = 32
	maxTickPause   = time.Second
	// maxClockWait bounds how long the clock does not look at the timers: those of a machine that halts and is
	// made again may be others.
	maxClockWait = 10 * time.Second
)

// clock proposes the ticks of one term.
type clock struct {
	timers    Timers
	logTime   func() time.Duration
	look      func(ctx context.Context, f func() error) error
	tick      func(ctx context.Context) error
	fruitless int // ticks since the first timer has changed
}

// tell runs the clock of a node whose machine has timers, until the node stops.
func (n *Node[C, R]) tell() {
	defer close(n.told)
	for ctx := range n.Led(context.Background()) {
		c := clock{
			timers:  n.machine.timers,
			logTime: n.LogTime,
			look:    func(ctx context.Context, f func() error) error { return n.ViewExclusive(ctx, Local, f) },
			tick: func(ctx context.Context) error {
				_, err := n.Propose(ctx, n.machine.tick, IfLeader())
				return err
			},
		}
		c.lead(ctx)
	}
}

// awaitClock waits until the clock has ended, when the group has.
func (n *Node[C, R]) awaitClock(ctx context.Context) {
	if n.told == nil {
		return
	}
	select {
	case <-n.told:
	case <-ctx.Done(): // a function of the machine hangs, as the error of the host says
	}
}

// lead proposes ticks until ctx ends.
func (c *clock) lead(ctx context.Context) {
	for before := (time.Duration)(-1); ctx.Err() == nil; {
		f, err := c.first(ctx)
		switch {
		case err != nil: // the machine is halted, or too many reads wait
			pause(ctx)
		case !f.isSet:
			wait(ctx, f.sooner, maxClockWait)
		case c.logTime() < f.at+logTimeStep:
			wait(ctx, f.sooner, min(f.at+logTimeStep-c.logTime(), maxClockWait))
		default:
			if c.fruitless++; f.at != before {
				before, c.fruitless = f.at, 0
			}
			if c.tick(ctx) != nil { // refused, or its outcome is unknown: then the next one finds nothing due
				pause(ctx)
			}
			wait(ctx, nil, min(logTimeStep<<min(max(0, c.fruitless-fruitlessTicks), 10), maxTickPause))
		}
	}
}

// first is the first timer, and the channel that says that it has become earlier.
type first struct {
	at     time.Duration
	isSet  bool
	sooner <-chan struct{}
}

func (c *clock) first(ctx context.Context) (first, error) {
	var f first
	err := c.look(ctx, func() error {
		f.sooner = c.timers.Sooner()
		f.at, f.isSet = c.timers.Next()
		return nil
	})
	if err != nil { // the function may still run, if ctx has ended
		return first{}, err
	}
	return f, nil
}

// wait waits until d has passed, sooner gets a value or ctx ends.
func wait(ctx context.Context, sooner <-chan struct{}, d time.Duration) {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-sooner:
	case <-over.C:
	case <-ctx.Done():
	}
}
