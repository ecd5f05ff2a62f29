package vfs

import (
	"errors"
	"fmt"
)

// Who looks at a directory wants to know whether somebody writes to it. Taking the lock to find out would be wrong even
// for a moment: a process that starts just then would be refused. So a filesystem is asked who holds it, and may not
// know.

// Holder is who holds a lock.
type Holder struct {
	Held bool
	PID  int // 0 if it is not known
}

// Held reports whether the lock at path is held, without touching it. Where that cannot be found out the error is
// errors.ErrUnsupported. The answer may be old when it arrives.
func Held(fsys FS, path string) (Holder, error) {
	switch f := fsys.(type) {
	case interface{ held(string) (Holder, error) }:
		return f.held(path)
	case interface{ LockHeld(string) bool }: // a simulated disk
		return Holder{Held: f.LockHeld(path)}, nil
	}
	return Holder{}, fmt.Errorf("whether %s is locked: %w", path, errors.ErrUnsupported)
}
