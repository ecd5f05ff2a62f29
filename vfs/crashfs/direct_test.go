package crashfs

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/millrace/millrace/vfs"
)

// A direct write that fails reports that nothing arrived, although any of its sectors may have: over some
// seeds none, all, a prefix, and other subsets.
func TestDirectWritesFailScattered(t *testing.T) {
	kinds := map[string]int{}
	for seed := range uint64(64) {
		d := New()
		f, err := d.Create("/f")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Preallocate(0, 8192); err != nil {
			t.Fatal(err)
		}
		w, err := d.OpenDirect("/f")
		if err != nil {
			t.Fatal(err)
		}
		d.SetHook(When{Kind: OpWrite}.Do(Scattered(seed, syscall.ENOSPC)))
		p := vfs.Blocks(8192)
		for i := range p {
			p[i] = 1
		}
		if n, err := w.WriteAt(p, 0); n != 0 || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%d, %v", n, err)
		}
		got := make([]byte, 8192)
		if _, err := f.ReadAt(got, 0); err != nil {
			t.Fatal(err)
		}
		kinds[scatterKind(t, got)]++
	}
	for _, kind := range []string{"none", "all", "prefix", "some"} {
		if kinds[kind] == 0 {
			t.Errorf("no write arrived like %q: %v", kind, kinds)
		}
	}
}

// scatterKind names which sectors of got are written.
func scatterKind(t *testing.T, got []byte) string {
	var arrived []byte
	for off := 0; off < len(got); off += SectorBytes {
		sector := got[off : off+SectorBytes]
		if n := bytes.Count(sector, []byte{1}); n != 0 && n != SectorBytes {
			t.Fatalf("sector at %d is half written", off)
		}
		arrived = append(arrived, sector[0])
	}
	n := bytes.Count(arrived, []byte{1})
	switch {
	case n == 0:
		return "none"
	case n == len(arrived):
		return "all"
	case bytes.Equal(arrived[:n], bytes.Repeat([]byte{1}, n)):
		return "prefix"
	}
	return "some"
}

// A direct write that does not fit writes no further than there is space, and counts nothing.
func TestFullDiskAndDirectWrites(t *testing.T) {
	d := New()
	d.SetCapacity(8192)
	if _, err := d.Create("/f"); err != nil {
		t.Fatal(err)
	}
	w, err := d.OpenDirect("/f")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.WriteAt(bytes.Repeat([]byte{1}, 16384), 0); n != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%d, %v", n, err)
	}
	if n := d.UsedBytes(); n > 8192 {
		t.Errorf("%d bytes on a disk of 8192", n)
	}
}
