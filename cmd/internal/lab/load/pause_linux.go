package load

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// NewPause returns a sleep for the pacer and a function to call at its end, both for one goroutine. Go's
// timers wake an otherwise idle process up to a millisecond late. nanosleep on a locked thread, with the
// kernel's timer slack turned off, is late by some 20 µs.
func NewPause() (pause func(time.Duration), done func()) {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // without it the sleep is 50 µs coarser, which the lag shows
	pause = func(d time.Duration) {
		ts := unix.NsecToTimespec(int64(d))
		_ = unix.Nanosleep(&ts, nil) // cut short by a signal: the pacer looks at the clock anyway
	}
	done = func() {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // 0: back to the default
		runtime.UnlockOSThread()
	}
	return pause, done
}
