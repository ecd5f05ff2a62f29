package lab

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/vfs"
)

// A file of the right size becomes one of the stock, under its own name. What else is made is the disk's.
func TestStockGivesWrittenFiles(t *testing.T) {
	dir := t.TempDir()
	const size = 1 << 16
	stock, err := FillStock(t.Context(), dir, 2, size)
	if err != nil {
		t.Fatal(err)
	}
	disk := stock.FS(vfs.OS())
	made := 0
	create := func(n int64) (vfs.File, string, error) {
		made++
		name := filepath.Join(dir, string(rune('a'+made)))
		f, err := disk.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		return f, name, vfs.WriteZeroes(f, 0, n)
	}
	unsupported := func(err error) bool { return err == nil || errors.Is(err, errors.ErrUnsupported) } // what this disk says
	if _, _, err := create(2 * size); !unsupported(err) || stock.Taken() != 0 {
		t.Errorf("another size: %v, %d taken", err, stock.Taken())
	}
	for i := range 2 {
		f, name, err := create(size)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("x"), 5); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(name)
		if err != nil || len(text) != size || text[5] != 'x' || stock.Taken() != i+1 {
			t.Errorf("%s has %d bytes (%v), %d taken", name, len(text), err, stock.Taken())
		}
	}
	if _, _, err := create(size); !unsupported(err) || stock.Taken() != 2 {
		t.Errorf("of an empty stock: %v, %d taken", err, stock.Taken())
	}
	if a, err := vfs.SameFile(disk, dir, dir); !a || err != nil {
		t.Errorf("what is not in vfs.FS is not answered: %v", err)
	}
}

// A log has its first segment, the next one and its reserve, whatever it writes.
func TestFilesOfALog(t *testing.T) {
	for bytes, want := range map[int64]int{1: 4, 100: 4, 101: 5, 1000: 13} {
		if have := FilesFor(bytes, 100); have != want {
			t.Errorf("%d bytes: %d files, want %d", bytes, have, want)
		}
	}
	if have := WrittenBytes(0, time.Second, 1024); have < 1 {
		t.Errorf("a log without a pace: %d", have)
	}
	if have, want := WrittenBytes(1000, 2*time.Second, 1024), int64(2500*1024); have < want || have > want*5/4 {
		t.Errorf("%d bytes, want %d and some", have, want)
	}
}
