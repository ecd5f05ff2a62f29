//go:build !linux

package vfs

import "time"

// pause is a sleep.
func pause(d time.Duration) { time.Sleep(d) }
