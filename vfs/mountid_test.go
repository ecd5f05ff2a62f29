package vfs

import (
	"testing"
	"time"
)

// A filesystem that wraps another one passes the question on; one that does not know the id returns 0.
func TestMountIDPassesWrappers(t *testing.T) {
	dir := t.TempDir()
	id := MountID(OS(), dir)
	for name, fsys := range map[string]FS{"delay": WithSyncDelay(OS(), time.Millisecond), "read only": ReadOnly(OS()), "overlay": NewOverlay(OS())} {
		if have := MountID(fsys, dir); have != id {
			t.Errorf("%s: mount %d, want %d", name, have, id)
		}
	}
	if have := MountID(Memory(), dir); have != 0 {
		t.Errorf("memory: mount %d, want 0", have)
	}
	if have := MountID(OS(), dir+"/missing"); have != 0 {
		t.Errorf("a directory that is not there: mount %d, want 0", have)
	}
}
