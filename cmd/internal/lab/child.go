// A child is a program that measures one point each, in a process of their own: other projects' code
// cannot be linked into ours, and what one of them leaves in memory must not burden the next.

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// ChildAnswer is what such a program prints as JSON: a result or an error. Mismatch says that the system
// does not hold what it acknowledged; an error without it says that the system failed.
type ChildAnswer[R any] struct {
	Result   *R     `json:"result,omitempty"`
	Error    string `json:"error,omitempty"`
	Mismatch bool   `json:"mismatch,omitempty"`
}

// AskChild starts a program, hands it request as JSON on its standard input, waits until it ends, and
// returns the result of its Answer. The process is killed when ctx ends, and the error is then ctx's cause.
// The error of a program that failed has the end of what it wrote to its error output; that of a mismatch
// wraps lab.ErrMismatch.
func AskChild[R any](ctx context.Context, command []string, request any) (R, error) {
	var none R
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	process.WaitDelay = time.Second
	var errs ErrorTail
	process.Stderr = &errs
	out, failed, err := runChild(process, request)
	switch {
	case err != nil:
		return none, err
	case ctx.Err() != nil:
		return none, context.Cause(ctx)
	case failed != nil:
		return none, fmt.Errorf("its process ended with %w: %s", failed, errs.Text())
	}
	return readAnswer[R](out)
}

// interruptedTimeout is how long a program may take to end when it was interrupted: it may have to drain a
// load, to close hosts, and to write an archive.
const interruptedTimeout = time.Minute

// DelegateToChild is Ask for a program that works for long. It shares errs with the caller, for its
// progress. When ctx ends it is interrupted, and it answers with what it has. An error of a program that
// gave no answer then is ctx's cause.
func DelegateToChild[R any](ctx context.Context, command []string, request any, errs *os.File) (R, error) {
	var none R
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	process.Cancel = func() error { return process.Process.Signal(os.Interrupt) }
	process.WaitDelay = interruptedTimeout
	process.Stderr = errs
	out, failed, err := runChild(process, request)
	if err != nil {
		return none, err
	}
	answer, unread := readAnswer[R](out)
	switch {
	case unread == nil:
		return answer, nil
	case ctx.Err() != nil:
		return none, context.Cause(ctx)
	case failed != nil:
		return none, fmt.Errorf("the process of %s ended with %w, and without an answer", command[0], failed)
	}
	return none, unread
}

// runChild runs a process to its end. failed is how it ended, err why it was not tried.
func runChild(process *exec.Cmd, request any) (out []byte, failed, err error) {
	text, err := json.Marshal(request)
	if err != nil {
		return nil, nil, err
	}
	var answer bytes.Buffer
	process.Stdin, process.Stdout = bytes.NewReader(text), &answer
	failed = process.Run()
	return answer.Bytes(), failed, nil
}

// readAnswer reads an Answer.
func readAnswer[R any](out []byte) (R, error) {
	var none R
	var answer ChildAnswer[R]
	if err := json.Unmarshal(out, &answer); err != nil {
		return none, fmt.Errorf("the answer of its process cannot be read: %w", err)
	}
	switch {
	case answer.Mismatch:
		return none, fmt.Errorf("%w: %s", ErrMismatch, strings.TrimPrefix(answer.Error, ErrMismatch.Error()+": "))
	case answer.Error != "":
		return none, errors.New(answer.Error)
	case answer.Result == nil:
		return none, errors.New("its process answered neither a result nor an error")
	}
	return *answer.Result, nil
}

// ServeChild is the main function of such a program: it answers the one request on in.
func ServeChild[Q, R any](in io.Reader, out io.Writer, measure func(Q) (R, error)) error {
	var request Q
	if err := json.NewDecoder(in).Decode(&request); err != nil {
		return fmt.Errorf("cannot read the request: %w", err)
	}
	var answer ChildAnswer[R]
	result, err := measure(request)
	if err != nil {
		answer.Error, answer.Mismatch = err.Error(), errors.Is(err, ErrMismatch)
	} else {
		answer.Result = &result
	}
	return json.NewEncoder(out).Encode(answer)
}

// ErrorTail keeps the end of what a process writes to its error output. One goroutine writes, and Text is
// for when that is done.
type ErrorTail struct{ kept []byte }

const maxTailBytes = 4 << 10

// Write implements io.Writer.
func (t *ErrorTail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - maxTailBytes; over > 0 {
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
	return len(p), nil
}

// Text returns it in one line.
func (t *ErrorTail) Text() string {
	return strings.ReplaceAll(strings.TrimSpace(string(t.kept)), "\n", "; ")
}
