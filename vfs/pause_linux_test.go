package vfs

import (
	"testing"
	"time"
)

// A block on a fast disk takes a tenth of a millisecond, and not the millisecond of an idle process' timer.
func TestShortWaitsAreShort(t *testing.T) {
	const wait = 100 * time.Microsecond
	disk := NewBandwidth(BlockBytes / wait.Seconds())
	least := time.Hour
	for range 20 { // others may hold the processor
		disk.Write(BlockBytes)
		began := time.Now()
		disk.Wait()
		least = min(least, time.Since(began))
	}
	if least < wait/2 || least > 5*wait {
		t.Errorf("a block took %v, want %v", least, wait)
	}
}
