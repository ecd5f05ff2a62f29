// Package children runs programs that measure one point each, in a process of their own: other projects' code
// cannot be linked into ours, and what one of them leaves in memory must not burden the next.
package children

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Ask starts a program, hands it request as JSON on its standard input, waits until it ends, and reads
// answer, JSON too, from its standard output. The process is killed when ctx ends, and the error is then
// ctx's cause. The error of a program that failed has the end of what it wrote to its error output.
func Ask(ctx context.Context, command []string, request, answer any) error {
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	process.WaitDelay = time.Second
	process.Stdin = bytes.NewReader(text)
	var out bytes.Buffer
	var errs tail
	process.Stdout, process.Stderr = &out, &errs
	failed := process.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if failed != nil {
		return fmt.Errorf("its process ended with %w: %s", failed, errs.text())
	}
	if err := json.Unmarshal(out.Bytes(), answer); err != nil {
		return fmt.Errorf("the answer of its process cannot be read: %w", err)
	}
	return nil
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
