//go:build !linux

package wal

import "syscall"

// mediumErrors are what a kernel calls a block that the disk cannot return.
var mediumErrors = []error{syscall.EIO}
