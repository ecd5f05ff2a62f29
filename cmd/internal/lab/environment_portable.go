//go:build !linux

package lab

// The benches run on other systems than Linux too; there these fields stay empty.

func freeBytes(string) (free uint64, ok bool) { return 0, false }

func filesystemOf(string) string { return "" }

func describeMachine(*Environment) {}
