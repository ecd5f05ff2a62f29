//go:build unix

package main

import (
	"context"
	"os"
	"syscall"
	"testing"
)

// Two signals to a real process handler: the first ends the context, the second the process.
func TestInterruptTwice(t *testing.T) {
	exits := make(chan int, 1)
	ctx, stop := untilInterrupt(func(status int) { exits <- status })
	defer stop()
	for range 2 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
	}
	if status := <-exits; status != exitInterrupted || context.Cause(ctx) != errInterrupted {
		t.Errorf("status %d, cause %v", status, context.Cause(ctx))
	}
}
