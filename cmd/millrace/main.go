// Command millrace is the one binary of Millrace. Its verbs translate flags into calls of the packages that do the work.
package main

import (
	"os"
)

func main() {
	ctx, stop := untilInterrupt(os.Exit)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], world{
		stdout: os.Stdout, stderr: os.Stderr, targets: targets(),
	}))
}
