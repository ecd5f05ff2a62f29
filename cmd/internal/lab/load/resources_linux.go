package load

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// switchesAndFaults returns the context switches, voluntary or not, and the minor page faults of all threads.
func switchesAndFaults() (switches, faults uint64) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	return uint64(u.Nvcsw + u.Nivcsw), uint64(u.Minflt)
}

// readWrites returns the calls of read and write, as /proc/self/io counts them.
func readWrites() (calls uint64) {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 2 && (words[0] == "syscr:" || words[0] == "syscw:") {
			n, _ := strconv.ParseUint(words[1], 10, 64) // 0 if the kernel writes it in another way
			calls += n
		}
	}
	return calls
}

// ProcessCPU returns the processor time of this process, user and system.
func ProcessCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
