//go:build !linux

package load

import "time"

// contextSwitches returns 0, like ProcessCPU.
func contextSwitches() uint64 { return 0 }

// ProcessCPU returns 0: the bench runs on other systems than Linux too, and leaves this column empty.
func ProcessCPU() time.Duration { return 0 }
