//go:build !linux

package load

import "time"

// ProcessCPU returns 0: the bench runs on other systems than Linux too, and leaves this column empty.
func ProcessCPU() time.Duration { return 0 }
