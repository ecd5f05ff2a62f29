package logs

import (
	"context"

	"github.com/millrace/millrace/cmd/internal/lab"
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
	result, err := lab.AskChild[child.Result](ctx, l.Command, request)
	result.Pipeline = l.Name
	return result, err
}
