package wal

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// A log of an older version has no FENCE with two copies, so its first recovery makes the file. If that
// recovery is a salvage, the name FENCE must be durable before a damaged file is renamed. Otherwise a power
// cut leaves a log that looks whole, lacks the damaged part, and may vote. The same holds if a process dies
// right after it has renamed FENCE: the next process cannot know whether the name is durable.
func TestFenceHasItsNameBeforeAnythingIsSetAside(t *testing.T) {
	enumerates(t)
	for _, at := range []int{record.SegmentHeaderBytes + 3*record.HeaderBytes, record.SegmentHeaderBytes} { // first a part of the segment is accepted, then nothing
		testFenceHasItsName(t, at)
	}
}

func testFenceHasItsName(t *testing.T, spoilt int) {
	data := make([]byte, 4096)
	copy(data, readGolden(t, "version2.hex"))
	data[spoilt] ^= 1 // not in the last batch
	images := 0
	for dies := 0; ; dies++ { // the first process dies after this many operations; 0: there is no first process
		disk := diskOf(t, map[string][]byte{record.SegmentName(1): data})
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

// TestFenceHasItsNameBeforeASegmentIsMade: FENCE and its name are durable before a segment is created, and
// before FENCE is overwritten in place. This also holds if the process died that had renamed FENCE.
func TestFenceHasItsNameBeforeASegmentIsMade(t *testing.T) {
	looked := 0
	for dies := 1; ; dies++ { // the first process dies after this many operations
		disk, ops := crashfs.New(), 0
		check := func(op crashfs.Op) {
			makes := (op.Kind == crashfs.OpCreate || op.Kind == crashfs.OpRename) && strings.HasSuffix(op.Name, record.SegmentSuffix)
			if !makes && (op.Kind != crashfs.OpSync || filepath.Base(op.Name) != fenceName) {
				return
			}
			looked++
			names, err := disk.Image(crashfs.LoseAll, nil).ReadDir(testDir)
			if err != nil || !slices.Contains(names, fenceName) {
				t.Errorf("the first process died after %d operations; before %v a power cut leaves %v (%v)", dies, op, names, err)
			}
		}
		disk.SetHook(func(op crashfs.Op) error {
			if ops++; ops == dies {
				disk.Crash(crashfs.LoseNothing, nil)
				return errPower
			}
			check(op)
			return nil
		})
		opts := testOptions(disk.Mount(), &manual{})
		l, err := Open(opts)
		if err == nil {
			disk.SetHook(nil)
			mustClose(t, l)
			break
		}
		disk.SetHook(func(op crashfs.Op) error { check(op); return nil })
		opts.FS = disk.Mount()
		mustOpen(t, opts)
	}
	if looked < 20 {
		t.Errorf("looked %d times", looked)
	}
}
