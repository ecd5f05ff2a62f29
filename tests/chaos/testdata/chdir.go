package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// The tests add this file to the program of the hosts. At SIGUSR1 the process goes to the directory that the
// environment names.
func init() {
	to := os.Getenv("CHAOS_ELSEWHERE")
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		for range signals {
			if err := os.Chdir(to); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}()
}
