package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// What an operator sees of objects in every state, in two groups. Looking changes nothing, so it is asked of
// a disk that refuses changes.
func TestFind(t *testing.T) {
	disk := crashfs.New()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	path := func(group int, id object.ID, more ...string) string {
		return filepath.Join(append([]string{"/host/groups", fmt.Sprint(group), "objects", id.String(), the.String()}, more...)...)
	}
	for _, group := range []int{10, 9} {
		s, err := Open(disk, filepath.Join("/host/groups", fmt.Sprint(group), "objects"))
		must(err)
		for i := range byte(4) {
			w, err := s.Create(object.ID{i + 1}, 1<<20)
			must(err)
			_, err = w.Write(bytes.Repeat([]byte{i}, 100_000))
			must(err)
			_, err = w.Publish()
			must(err)
		}
	}
	must(disk.MkdirAll("/host/groups/11/snapshots"))
	flip, err := disk.Open(path(9, object.ID{1}, "part-00000000"))
	must(err)
	_, err = flip.WriteAt([]byte{77}, 70_000)
	must(err)
	must(disk.Remove(path(9, object.ID{2}, "part-00000000")))
	must(disk.Rename(path(9, object.ID{3}, "MANIFEST"), path(9, object.ID{3}, "OFFER")))
	must(disk.Remove(path(9, object.ID{4}, "MANIFEST")))
	must(disk.MkdirAll(filepath.Dir(path(9, object.ID{5})))) // empty
	must(disk.MkdirAll("/host/groups/9/objects/other"))

	found, err := Find(t.Context(), vfs.ReadOnly(disk), "/host")
	must(err)
	var have []string
	for i := range found {
		before := found[i].State
		must(found[i].Verify(t.Context()))
		line := fmt.Sprintf("%d %d %s %s %d", found[i].Group, found[i].ID[0], before, found[i].State, found[i].Bytes)
		if d := found[i].Damage; d != nil {
			line += fmt.Sprintf(" %d %.15s", d.Block, d.What)
		}
		have = append(have, line)
	}
	want := []string{
		"9 1 whole damaged 100000 1 it has the CRC3", "9 2 damaged damaged 100000 -1 it is missing", "9 3 receiving receiving 100000", "9 4 unfinished unfinished 0",
		"9 5 unfinished unfinished 0", "10 1 whole whole 100000", "10 2 whole whole 100000", "10 3 whole whole 100000", "10 4 whole whole 100000",
	}
	if strings.Join(have, "\n") != strings.Join(want, "\n") {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// Find says when there is nothing to look at.
func TestFindNothing(t *testing.T) {
	disk := crashfs.New()
	if _, err := Find(t.Context(), disk, "/host"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if err := disk.MkdirAll("/host/groups/1/snapshots"); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(t.Context(), disk, "/host"); !errors.Is(err, ErrNoGroups) {
		t.Errorf("no objects: %v", err)
	}
	if err := disk.MkdirAll("/host/groups/1/objects"); err != nil {
		t.Fatal(err)
	}
	if found, err := Find(t.Context(), disk, "/host"); err != nil || len(found) > 0 {
		t.Errorf("a group without one: %v, %v", found, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := disk.MkdirAll("/host/groups/1/objects/" + object.ID{1}.String()); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(ctx, disk, "/host"); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
