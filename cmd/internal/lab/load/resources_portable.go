//go:build !linux

package load

import "time"

// switchesAndFaults returns zeros, as ProcessCPU and readWrites do.
func switchesAndFaults() (switches, faults uint64) { return 0, 0 }

func readWrites() uint64 { return 0 }

// ProcessCPU returns 0: the bench runs on other systems than Linux too, and leaves this column empty.
func ProcessCPU() time.Duration { return 0 }
