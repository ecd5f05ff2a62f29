package wal

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/wal/record"
)

// A log of an older version has no fence. Only the headers of its segments name its owner.
func TestOldLogOfAnotherHost(t *testing.T) {
	data := make([]byte, 4096)
	copy(data, readGolden(t, "version2.hex"))
	opts := testOptions(diskOf(t, map[string][]byte{record.SegmentName(1): data}), &manual{})
	opts.Owner++
	if _, err := Open(opts); !errors.Is(err, ErrOwner) {
		t.Errorf("have %v, want ErrOwner", err)
	}
}

// Two copies of a log get different records of the same lengths. The fence of one copy does not fit the
// segments of the other, although a record there ends at the end that the fence names.
func TestFenceOfAnotherCopy(t *testing.T) {
	disk := diskOf(t, nil)
	mustClose(t, mustOpen(t, testOptions(disk, &manual{})))
	copies := [2]map[string][]byte{}
	for i := range copies {
		c := diskOf(t, files(t, disk))
		l := mustOpen(t, testOptions(c, &manual{}))
		mustAppend(t, l, Write{Group: 1, Entries: entries(1, 3, uint64(i)+1, 50)})
		mustClose(t, l)
		copies[i] = files(t, c)
	}
	copies[0][fenceName] = copies[1][fenceName]
	if _, err := Open(testOptions(diskOf(t, copies[0]), &manual{})); !errors.Is(err, ErrCorrupt) {
		t.Errorf("have %v, want ErrCorrupt", err)
	}
}
