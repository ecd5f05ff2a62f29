// A Stock is files whose blocks are written before the clock of a measurement starts. A log that runs for
// more than a minute writes into such files: it recycles its segments, or it has zeros ahead of its records.
// One that was made a moment ago does not, and pays for its youth at each sync (decision 0035).

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/millrace/millrace/vfs"
)

// Stock holds files of one size, full of zeros. It is safe for concurrent use.
type Stock struct {
	size int64

	mu    sync.Mutex
	files []string
	taken int
}

// FillStock makes files of a size in a new directory below dir, which must exist and be on the filesystem
// that will use them.
func FillStock(ctx context.Context, dir string, files int, size int64) (*Stock, error) {
	s := &Stock{size: size}
	dir, err := os.MkdirTemp(dir, "stock-")
	if err != nil {
		return nil, err
	}
	for i := range files {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		name := filepath.Join(dir, fmt.Sprint(i))
		f, err := CreateZeroed(vfs.OS(), name, size)
		if err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
		s.files = append(s.files, name)
	}
	return s, nil
}

// FilesFor returns how many files of a size one log needs to take in as many bytes as that. It has the file
// that the log begins with, the one after it, and its reserve beside them.
func FilesFor(bytes, size int64) int { return int((bytes+size-1)/size) + 3 }

// WrittenBytes is how much one log writes in a time, if it is a quarter faster than a pace, in ops/s. It is
// never 0.
func WrittenBytes(pace float64, length time.Duration, valueBytes int) int64 {
	return min(maxWrittenBytes, 1+int64(1.25*pace*length.Seconds()*float64(valueBytes+recordOverhead)))
}

const (
	recordOverhead  = 128     // of a record in a log, beside its value; more than it is
	maxWrittenBytes = 2 << 30 // to prepare more would take longer than to measure
)

// Take moves a file to a name, which may be taken. ok is false if there is none left.
func (s *Stock) Take(name string) (ok bool, err error) {
	s.mu.Lock()
	if len(s.files) == 0 {
		s.mu.Unlock()
		return false, nil
	}
	from := s.files[0]
	s.files = s.files[1:]
	s.taken++
	s.mu.Unlock()
	return true, os.Rename(from, name)
}

// Taken returns how many files were taken.
func (s *Stock) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// FS returns a filesystem over base in which vfs.WriteZeroes works for a new file of the stock's size: a
// file of the stock takes its place. When none is left, base decides.
func (s *Stock) FS(base vfs.FS) vfs.FS { return stockFS{FS: base, stock: s} }

// stockFS answers what is not in vfs.FS as the one below.
type stockFS struct {
	vfs.FS
	stock *Stock
}

// Create implements vfs.FS.
func (fs stockFS) Create(name string) (vfs.File, error) {
	f, err := fs.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return &stockFile{File: f, name: name, of: fs}, nil
}

func (fs stockFS) Absolute(path string) (string, error) { return vfs.Absolute(fs.FS, path) }
func (fs stockFS) FreeBytes(dir string) (int64, error)  { return vfs.FreeBytes(fs.FS, dir) }
func (fs stockFS) SameFile(a, b string) (bool, error)   { return vfs.SameFile(fs.FS, a, b) }
func (fs stockFS) MountID(dir string) uint64            { return vfs.MountID(fs.FS, dir) }
func (fs stockFS) PlaceInPlace(dir string, names []string) (vfs.Placement, error) {
	return vfs.PlaceInPlace(fs.FS, dir, names)
}

// stockFile is a file that was made just now.
type stockFile struct {
	vfs.File
	name string
	of   stockFS
}

// WriteZeroes is what vfs.WriteZeroes calls. Nothing was written to the file before, and no other goroutine
// has it open: a file of the stock takes its name.
func (f *stockFile) WriteZeroes(off, n int64) error {
	if off != 0 || n != f.of.stock.size {
		return vfs.WriteZeroes(f.File, off, n)
	}
	ok, err := f.of.stock.Take(f.name)
	if err != nil {
		return err
	}
	if !ok {
		return vfs.WriteZeroes(f.File, off, n)
	}
	written, err := f.of.FS.Open(f.name)
	if err != nil {
		return err
	}
	err = f.File.Close() // nothing was written to it
	f.File = written
	return err
}
