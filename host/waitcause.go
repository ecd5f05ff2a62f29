package host

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/host/outcome"
)

// What a proposal or a read has waited for when its context ends. It is asked for at the end only, of what
// the host notes anyway, so a call that succeeds costs nothing more (examination.Missing).

// endedWait is the end of a context, and what was waited for.
type endedWait struct{ end, missing error }

// Error says the cause without the name of this package, with which the whole error begins.
func (e *endedWait) Error() string {
	return e.end.Error() + "; " + strings.TrimPrefix(e.missing.Error(), "millrace: ")
}

// Unwrap makes the error of the context and the cause visible to errors.Is.
func (e *endedWait) Unwrap() []error { return []error{e.end, e.missing} }

// waitEnd returns the error of a context that has ended, with what the group was missing then.
func (g *Group) waitEnd(ctx context.Context) error {
	missing := g.missingNow()
	if missing == nil {
		return context.Cause(ctx)
	}
	return &endedWait{context.Cause(ctx), missing}
}

func (g *Group) notProposed(ctx context.Context) error {
	return fmt.Errorf("millrace: not proposed: %w", g.waitEnd(ctx))
}

// Indeterminate returns the outcome of a command that was taken and whose caller waits no more, because ctx
// has ended. It is ErrIndeterminate with the error of ctx, and what the group is missing now. ErrNotFounded
// means that a command was not taken, so here it is told in words only.
func (g *Group) Indeterminate(ctx context.Context) error {
	err := g.waitEnd(ctx)
	if errors.Is(err, outcome.ErrNotFounded) {
		_, missing, _ := strings.Cut(err.Error(), context.Cause(ctx).Error())
		return fmt.Errorf("%w: %w%s", outcome.ErrIndeterminate, context.Cause(ctx), missing)
	}
	return fmt.Errorf("%w: %w", outcome.ErrIndeterminate, err)
}

// missingNow returns what keeps the group from committing, applying and reading on this host; nil if nothing
// of that is seen.
func (g *Group) missingNow() error {
	f := g.facts()
	if f.Stop != nil {
		return outcome.WithCause(outcome.ErrStopped, f.Stop.Err)
	}
	if !f.Founding.Founded || f.Founding.Joins {
		err := &outcome.NotFoundedError{Group: g.id, Founding: f.Founding}
		if why := examination.Refusals(f); why != "" {
			return fmt.Errorf("%w; %s", err, why)
		}
		return err
	}
	if d := f.Disk.Full; d != nil && d.Err != nil {
		return fmt.Errorf("the disk of this host is full: %w", outcome.WithCause(outcome.ErrDiskFull, d.Err))
	} else if d != nil {
		return outcome.ErrDiskFull
	}
	switch want, text := examination.Missing(f); want {
	case examination.Nothing:
		return nil
	case examination.Quorum:
		return fmt.Errorf("%w: %s", outcome.ErrNoQuorum, text)
	case examination.Leader:
		return fmt.Errorf("%w; %s", outcome.ErrNoLeader, text)
	default:
		return errors.New(text)
	}
}
