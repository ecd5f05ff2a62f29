package load

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// Footprint is what this process occupies. A field that the kernel does not report is 0.
type Footprint struct {
	PeakBytes   int64 // the largest resident memory since ResetFootprint
	Descriptors int   // open files
}

// ResetFootprint returns unused memory to the system, and starts a new peak.
func ResetFootprint() {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // without it the peak is that of the process's whole life
}

// ReadFootprint returns the footprint of this moment.
func ReadFootprint() (f Footprint) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return f
	}
	for line := range strings.Lines(string(status)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "VmHWM:" {
			kib, _ := strconv.ParseInt(words[1], 10, 64) // 0 if the kernel writes it in another way
			f.PeakBytes = kib << 10
		}
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		f.Descriptors = len(open)
	}
	return f
}
