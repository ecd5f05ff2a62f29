package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// contextSwitches returns those of all threads of this process, voluntary or not.
func contextSwitches() uint64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return uint64(u.Nvcsw + u.Nivcsw)
}

// ProcessCPU returns the processor time of this process, user and system.
func ProcessCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
