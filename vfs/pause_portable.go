//go:build !linux

package vfs

import "time"

// Pause waits as a sync of a slower disk does: for d, if it is positive.
func Pause(d time.Duration) { time.Sleep(d) }
