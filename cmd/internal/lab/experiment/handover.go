package experiment

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// The program that has foreign components does whole jobs: cluster, load and archive are in its process, as
// they are in ours for other jobs, so both are measured in the same way. What it would print comes back as
// its answer; progress goes to the error output that it shares with us.

// Telling is how a run tells its progress.
type Telling string

// The ways of telling.
const (
	Told     Telling = ""      // a bar on a terminal, else lines
	Quietly  Telling = "quiet" // not at all
	AsEvents Telling = "json"  // report.ProgressLine
)

// To returns the progress that is told to a file.
func (t Telling) To(out *os.File) report.Progress {
	if t == AsEvents {
		return report.NewJSONProgress(out)
	}
	return report.NewProgress(out, t == Quietly)
}

// handed is a job on its way to another program.
type handed struct {
	Job     Job
	Telling Telling
}

// done is the answer.
type done struct {
	Text    string   // for people
	Failure *failure // nil: it succeeded
}

// failure is an error on its way back.
type failure struct {
	Text          string
	Field, Reason string // of a lab.FieldError
	Kind          string
}

// kinds are the errors that a caller tells apart. Of several that are in one error the first counts.
var kinds = []struct {
	name string
	err  error
}{
	{interrupted, context.Canceled}, {"mismatch", lab.ErrMismatch}, {"invalid", lab.ErrInvalid}, {cannot, lab.ErrCannot}, {"damaged", archive.ErrDamaged}, {"full", syscall.ENOSPC},
}

const (
	interrupted = "interrupted"
	cannot      = "cannot"
)

// HandOver lets another program do the job. When ctx ends the program is interrupted, and answers with what
// it has; the error is ctx's cause then.
func (j Job) HandOver(ctx context.Context, program string, telling Telling, out io.Writer, progress *os.File) error {
	answer, err := lab.DelegateToChild[done](ctx, []string{program}, handed{j, telling}, progress)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, answer.Text)
	if answer.Failure == nil {
		return err
	}
	if answer.Failure.Kind == interrupted && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, answer.Failure.err())
}

// Serve is the main function of such a program: it does the one job that in has.
func Serve(ctx context.Context, in io.Reader, out io.Writer, progress *os.File, foreign rig.Foreign) error {
	return lab.ServeChild(in, out, func(h handed) (done, error) {
		var text bytes.Buffer
		h.Job.Options.Progress = h.Telling.To(progress)
		err := h.Job.Run(ctx, &text, foreign)
		return done{text.String(), failureOf(err)}, nil
	})
}

func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error()}
	for _, kind := range kinds {
		if errors.Is(err, kind.err) {
			f.Kind = kind.name
			break
		}
	}
	var refused *lab.FieldError
	if errors.As(err, &refused) {
		f.Field, f.Reason = refused.Field, refused.Reason
	}
	return f
}

// err returns the error again: the same text, the same field, the same kind.
func (f *failure) err() error {
	switch {
	case f.Field != "" && f.Kind == cannot:
		return lab.Cannot(f.Field, "%s", f.Reason)
	case f.Field != "":
		return lab.Invalid(f.Field, "%s", f.Reason)
	}
	for _, kind := range kinds {
		if kind.name == f.Kind {
			return &told{f.Text, kind.err}
		}
	}
	return errors.New(f.Text)
}

// told is an error of another program.
type told struct {
	text string
	kind error
}

func (e *told) Error() string { return e.text }
func (e *told) Unwrap() error { return e.kind }
