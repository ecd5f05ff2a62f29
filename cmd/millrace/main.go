// Command millrace is the one binary of Millrace. Its verbs translate flags into calls of the packages that
// do the work, and the outcome into one of the exit statuses of exit.go.
package main

import (
	"os"

	"github.com/millrace/millrace/cmd/internal/lab/bench"
)

func main() {
	ctx, stop := untilInterrupt(os.Exit)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], app{stdout: os.Stdout, stderr: os.Stderr, targets: bench.Targets()}))
}
