//go:build !linux

package lab

import "time"

// Elsewhere than on Linux the bench runs, and leaves these columns empty.

func processCPU() time.Duration { return 0 }

func freeBytes(string) (free uint64, ok bool) { return 0, false }

func filesystemOf(string) string { return "" }

func describeMachine(*Environment) {}
