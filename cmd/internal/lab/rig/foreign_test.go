package rig

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/vfs"
)

// A small append to a log with files of its own occupies the disk for a whole block, as one to our log does:
// else a bound on the bandwidth would favour such a log.
func TestForeignLogsWriteBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Member{cluster: &Cluster{}, bandwidth: vfs.NewBandwidth(1000 * vfs.BlockBytes)} // a block takes a millisecond
		d := m.disk()
		for i, step := range []struct {
			bytes  []int
			blocks time.Duration
		}{
			{[]int{100}, 1},
			{[]int{100}, 1},      // the same block again
			{[]int{100, 100}, 1}, // one sync covers both
			{[]int{vfs.BlockBytes - 400}, 1},
			{[]int{1}, 1}, // the next block
			{[]int{2*vfs.BlockBytes - 1}, 2},
			{nil, 0},
		} {
			began := time.Now()
			for _, n := range step.bytes {
				d.Wrote(n)
			}
			d.Synced()
			if took := time.Since(began).Round(time.Microsecond); took != step.blocks*time.Millisecond {
				t.Errorf("step %d took %v, want %d blocks", i, took, step.blocks)
			}
		}
	})
}
