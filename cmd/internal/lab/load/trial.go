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
	Live(completed func() uint64) // writes measured so far
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

	l := New(target, NewSource(t.Setup.ValueBytes, t.Setup.Seed), t.Warmup, t.Length)
	t.Observer.Live(l.Completed)
	outcome, err := l.Run(ctx, t.Observer.Phase, t.Generator)
	if err != nil {
		return Outcome{}, err
	}

	t.Observer.Phase("verify")
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
