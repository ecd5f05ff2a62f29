package crashfs_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A lost block fails each read that touches it, until all of it is written.
func TestBadBlock(t *testing.T) {
	disk := crashfs.New()
	f, err := disk.Create("/a.wal")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 16384), 0); err != nil {
		t.Fatal(err)
	}
	disk.SetHook(crashfs.BadBlock{Name: "*.wal", Off: 4096}.Hook())
	read := func(off int64, n int) error {
		_, err := f.ReadAt(make([]byte, n), off)
		return err
	}
	for _, tc := range []struct {
		off int64
		n   int
		bad bool
	}{{0, 4096, false}, {8192, 4096, false}, {0, 4097, true}, {8191, 1, true}, {0, 16384, true}} {
		if err := read(tc.off, tc.n); errors.Is(err, syscall.EIO) != tc.bad {
			t.Errorf("read of [%d, +%d): %v", tc.off, tc.n, err)
		}
	}
	if _, err := f.WriteAt(make([]byte, 100), 5000); !errors.Is(err, syscall.EIO) {
		t.Errorf("a write of a part: %v", err)
	}
	if _, err := f.WriteAt(make([]byte, 8192), 4096); err != nil {
		t.Errorf("a write of all: %v", err)
	}
	if err := read(0, 16384); err != nil {
		t.Errorf("a read after a write of all: %v", err)
	}
}

// An overlay can write over a block that the disk below cannot read.
func TestOverlayWritesOverALostBlock(t *testing.T) {
	base := crashfs.New()
	f, err := base.Create("/f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 64<<10), 0); err != nil {
		t.Fatal(err)
	}
	base.SetHook(crashfs.BadBlock{Name: "f", Off: 16 << 10, Len: 16 << 10}.Hook())
	o, err := vfs.NewOverlay(base).Open("/f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.WriteAt(make([]byte, 16<<10), 16<<10); err != nil {
		t.Error(err)
	}
	if _, err := o.ReadAt(make([]byte, 64<<10), 0); err != nil {
		t.Error(err)
	}
}
