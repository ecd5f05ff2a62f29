package lab

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// footprint is what this process takes of its machine. Where the kernel does not tell, it is 0.
type footprint struct {
	peakBytes   int64 // the largest resident memory since resetFootprint
	descriptors int   // open files
}

// resetFootprint gives unused memory back, and begins a new peak.
func resetFootprint() {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // without it the peak is that of the process's life
}

// readFootprint returns the footprint of this moment.
func readFootprint() (f footprint) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return f
	}
	for line := range strings.Lines(string(status)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "VmHWM:" {
			kib, _ := strconv.ParseInt(words[1], 10, 64) // 0 if the kernel writes it in another way
			f.peakBytes = kib << 10
		}
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		f.descriptors = len(open)
	}
	return f
}
