package vfs

import (
	"time"

	"golang.org/x/sys/unix"
)

// pause is a sleep. Go's timers wake an otherwise idle process up to a millisecond late, and what a few
// blocks take on a disk is less than that. So a shorter one holds its thread, as a sync of a disk does.
func pause(d time.Duration) {
	if d >= time.Millisecond {
		time.Sleep(d)
		return
	}
	if d > 0 {
		left := unix.NsecToTimespec(d.Nanoseconds())
		for unix.Nanosleep(&left, &left) == unix.EINTR {
		}
	}
}
