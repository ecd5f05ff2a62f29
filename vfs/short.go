package vfs

import (
	"errors"
	"syscall"
)

// IsShort reports whether err says that the process or the machine has no descriptor, or no memory, just now
// (EMFILE, ENFILE, ENOMEM). If a call that opens something says so, nothing was written, synced or lost, and
// it may be tried again (rule 6).
func IsShort(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
