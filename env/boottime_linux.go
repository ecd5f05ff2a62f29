package env

import (
	"time"

	"golang.org/x/sys/unix"
)

// boottime reads CLOCK_BOOTTIME. Linux has had it since 2.6.39, so an error is not expected; the monotonic
// clock is then what is left.
func (c realClock) boottime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return c.Now()
	}
	return time.Duration(t.Nano())
}
