package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

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
	text, err := json.Marshal(request)
	if err != nil {
		return child.Result{}, err
	}
	process := exec.CommandContext(ctx, l.Command[0], l.Command[1:]...)
	process.WaitDelay = time.Second
	process.Stdin = bytes.NewReader(text)
	var out bytes.Buffer
	var errs tail
	process.Stdout, process.Stderr = &out, &errs
	failed := process.Run()
	if ctx.Err() != nil {
		return child.Result{}, context.Cause(ctx)
	}
	if failed != nil {
		return child.Result{}, fmt.Errorf("its process ended with %w: %s", failed, errs.text())
	}
	var answer child.Answer
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return child.Result{}, fmt.Errorf("the answer of its process cannot be read: %w", err)
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

// tail keeps the end of what a process writes to its error output.
type tail struct{ kept []byte }

const maxTailBytes = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - maxTailBytes; over > 0 {
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
	return len(p), nil
}

func (t *tail) text() string {
	return strings.ReplaceAll(strings.TrimSpace(string(t.kept)), "\n", "; ")
}
