package smtest

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace"
)

const (
	// maxTicks is how many ticks a machine may need for the timers of one moment.
	maxTicks = 1000
	// maxMoments bounds the moments that are tried: a timer may set the next one, for ever.
	maxMoments = 1000
)

// checkTimers: ticks let all timers expire (Machine.Timers). A machine whose Apply looks at them in some
// commands only, or never, keeps leases for ever, and its leader proposes tick after tick.
func (k *kit[C, R]) checkTimers() error {
	m, err := k.after(len(k.encoded))
	if err != nil {
		return err
	}
	defer closeMachine(m)
	t, tick := m.Clock()
	if t == nil {
		return nil
	}
	if t.Sooner() == nil {
		return errors.New("Sooner of the timers returns nil, so the leader's clock would not hear of an earlier timer")
	}
	encoded, err := k.codec.Append(nil, tick)
	if err != nil {
		return fmt.Errorf("the codec cannot encode the tick of Machine.Timers: %w", err)
	}
	index, term, now := logPosition(len(k.encoded))
	for moments, ticks := 0, 0; ticks < maxTicks; ticks++ {
		at, ok := t.Next()
		if at > now {
			now, ticks = at, 0
			moments++
		}
		if !ok || moments > maxMoments {
			return nil
		}
		value, err := k.codec.Decode(append([]byte(nil), encoded...))
		if err != nil {
			return fmt.Errorf("the codec cannot decode what it has encoded for the tick of Machine.Timers: %w", err)
		}
		index++
		if err := m.StateMachine().Apply([]millrace.Command[C]{{Index: index, Term: term, Time: now, Version: k.course.version(len(k.encoded)), Value: value}}, make([]R, 1)); err != nil {
			return fmt.Errorf("Apply of the tick of Machine.Timers returns an error: %w", err)
		}
	}
	at, _ := t.Next()
	return fmt.Errorf("after %d ticks at log time %v a timer is still there that was due at %v; Apply must expire timers with each command, by its Time (package timers)", maxTicks, now, at)
}
