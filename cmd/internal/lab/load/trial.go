package load

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Trial is one target under one load.
type Trial struct {
	Open           OpenFunc
	Setup          Setup
	Warmup, Length time.Duration
	Generator      Generator
	Observer       Observer
}

// Observer hears what a trial does. Its methods are called by the goroutine of Run.
type Observer interface {
	Phase(name string)
	Live(now func() Live) // any goroutine may call now, until the next call of Live
}

const (
	openTimeout = 30 * time.Second

	// VerifyTimeout bounds Target.Verify.
	VerifyTimeout = 30 * time.Second
)

// Run starts the target, puts it under load, verifies what it holds, and closes it.
func (t Trial) Run(ctx context.Context) (_ Outcome, err error) {
	t.Observer.Phase("start")
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	target, err := t.Open(opening, t.Setup)
	if err != nil {
		return Outcome{}, fmt.Errorf("start: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()

	w := Window{Source: NewSource(t.Setup.ValueBytes, t.Setup.Seed), Warmup: t.Warmup, Length: t.Length, Generator: t.Generator, Observer: t.Observer}
	return w.Run(ctx, target)
}

// Window is one load on a target that is open, and stays so.
type Window struct {
	Source         *Source
	Warmup, Length time.Duration
	Generator      Generator
	Observer       Observer
	// Steady ends the warm-up in place of Warmup. nil: the warm-up lasts for Warmup.
	Steady *Steadiness
	// Timeline asks for Outcome.Timeline.
	Timeline bool
	// Ledger is the ledger of the target's earlier windows. This window adds its clients to it. nil: there
	// were none.
	Ledger *Ledger
	// Beside is called when the measurement begins. The window then lasts until it has returned, and at least
	// for Length. Its error ends the load. nil: the window lasts for Length.
	Beside func(context.Context) error
}

// Run puts the target under load and verifies what it holds.
func (w Window) Run(ctx context.Context, target Target) (Outcome, error) {
	l := New(target, w.Source, w.Warmup, w.Length)
	l.beside, l.steady = w.Beside, w.Steady
	if w.Timeline {
		l.timeline = &Timeline{}
	}
	if w.Ledger != nil {
		l.ledger = w.Ledger
	}
	w.Observer.Live(l.Live)
	outcome, err := l.Run(ctx, w.Observer.Phase, w.Generator)
	if err != nil {
		return Outcome{}, err
	}
	w.Observer.Phase("verify")
	verifying, cancel := context.WithTimeout(ctx, VerifyTimeout)
	defer cancel()
	if err := target.Verify(verifying, l.ledger); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx) // the user interrupted the check: that says nothing about the target
		}
		return Outcome{}, err
	}
	return outcome, nil
}
