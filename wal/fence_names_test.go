package wal

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/vfs/crashfs"
)

// A log of an older version has no FENCE with two copies, so its first recovery makes the file. When that recovery is a salvage,
// the name must be durable before a damaged file gets another one: otherwise a power cut leaves a log that looks whole, lacks
// what was damaged, and may vote. So it must be if a process dies right after it gave the name, and the next one finds it:
// that one cannot know whether the name is durable.
//
// Two planted bugs, fence_name_not_synced and recovery_does_not_sync_names, were found by nothing else.
func TestFenceHasItsNameBeforeAnythingIsSetAside(t *testing.T) {
	data := make([]byte, 4096)
	copy(data, readGolden(t, "version2.hex"))
	data[segmentHead+3*recordHead] ^= 1 // not in the last batch
	images := 0
	for dies := 0; ; dies++ { // after so many operations of the first process; 0: there is none
		disk := diskOf(t, map[string][]byte{segmentName(1): data})
		opts := testOptions(nil, &manual{})
		opts.Salvage = true
		ops := 0
		if dies > 0 {
			disk.SetHook(func(op crashfs.Op) error {
				if ops++; ops == dies {
					disk.Crash(crashfs.LoseNothing, nil)
					return errPower
				}
				return nil
			})
			opts.FS = disk.Mount()
			l, err := Open(opts)
			disk.SetHook(nil)
			if err == nil {
				mustClose(t, l)
				break
			}
		}
		ops = 0
		disk.SetHook(func(crashfs.Op) error {
			ops++
			for what, image := range disk.Images(24, uint64(dies<<10+ops)) {
				images++
				check := testOptions(image, &manual{})
				l, err := Open(check)
				switch {
				case err == nil && !l.Fence().Amnesia:
					t.Errorf("the first process died after %d operations, the power was cut after %d of the second: the log opens without amnesia; %v", dies, ops, what)
				case err != nil && !errors.Is(err, ErrCorrupt):
					t.Error(err)
				}
			}
			return nil
		})
		opts.FS = disk.Mount()
		l, err := Open(opts)
		disk.SetHook(nil)
		if err != nil || !l.Fence().Amnesia {
			t.Fatalf("the salvage after a death: %v", err)
		}
	}
	if images < 1000 {
		t.Errorf("%d images", images)
	}
}
