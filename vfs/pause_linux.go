package vfs

import (
	"time"

	"golang.org/x/sys/unix"
)

// Pause waits as a sync of a slower disk does: for d, if it is positive. Go's timers wait for whole
// milliseconds in an otherwise idle process, and what a few blocks take on a disk is less. So what is left
// of one holds its thread, as a sync does.
func Pause(d time.Duration) {
	whole := d.Truncate(time.Millisecond)
	if whole > 0 {
		time.Sleep(whole)
	}
	if d > whole {
		left := unix.NsecToTimespec((d - whole).Nanoseconds())
		for unix.Nanosleep(&left, &left) == unix.EINTR {
		}
	}
}
