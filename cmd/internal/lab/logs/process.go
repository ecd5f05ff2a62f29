package logs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/children"
	"github.com/millrace/millrace/cmd/internal/lab/logs/child"
)

// Log is a log that can be measured: its name, and the command line of a program that calls child.Serve.
type Log struct {
	Name    string
	Command []string
	Other   bool // another project's: the run continues without it if it fails
}

// measure runs the program for one point. The process is killed when ctx ends.
func (l Log) measure(ctx context.Context, request child.Request) (child.Result, error) {
	var answer child.Answer
	if err := children.Ask(ctx, l.Command, request, &answer); err != nil {
		return child.Result{}, err
	}
	switch {
	case answer.Mismatch:
		return child.Result{}, fmt.Errorf("%w: %s", lab.ErrMismatch, strings.TrimPrefix(answer.Error, lab.ErrMismatch.Error()+": "))
	case answer.Error != "":
		return child.Result{}, errors.New(answer.Error)
	case answer.Result == nil:
		return child.Result{}, errors.New("its process answered neither a result nor an error")
	}
	answer.Result.Pipeline = l.Name
	return *answer.Result, nil
}
