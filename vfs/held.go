package vfs

import (
	"errors"
	"fmt"
)

// A tool that inspects a directory wants to know whether a process is writing to it. Taking the lock to find
// out would be wrong even for a moment, as a process that starts just then would be refused. So the
// filesystem is asked who holds the lock. It may not know.

// Holder says whether a lock is held, and by which process.
type Holder struct {
	Held bool
	PID  int // 0 if it is not known
}

// Held reports whether the lock at path is held, without touching it. It returns errors.ErrUnsupported where
// that cannot be found out. The answer may be outdated when it arrives.
func Held(fsys FS, path string) (Holder, error) {
	switch f := fsys.(type) {
	case interface{ held(string) (Holder, error) }:
		return f.held(path)
	case interface{ LockHeld(string) bool }: // a simulated disk
		return Holder{Held: f.LockHeld(path)}, nil
	}
	return Holder{}, fmt.Errorf("whether %s is locked: %w", path, errors.ErrUnsupported)
}
