package pebble

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble v2.1.7 does not take every error of the disk in a file of values as it takes an error in a table.
//
//   - An error at the end of the file, or of its sync, makes a nil pointer in a goroutine of Pebble's
//     (cockroachdb/pebble#6128).
//   - An error while a file is written again is told nowhere. Pebble tries again at once, without an end.
//   - A file whose end is not what it was makes a read panic.

// valuesFS calls fatal, which does not return, when the end of a file of values cannot be written. An error
// before that is Pebble's.
type valuesFS struct {
	vfs.FS
	fatal func(format string, args ...any)
}

// Create implements vfs.FS.
func (fs valuesFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	if err != nil || !strings.HasSuffix(name, ".blob") {
		return f, err
	}
	return valuesFile{f, name, fs.fatal}, nil
}

// Unwrap implements vfs.FS.
func (fs valuesFS) Unwrap() vfs.FS { return fs.FS }

// bufferBytes is what Pebble keeps of a file until it has more. So a larger write is not the last one.
const bufferBytes = 4096

type valuesFile struct {
	vfs.File
	name  string
	fatal func(format string, args ...any)
}

func (f valuesFile) ends(err error) error {
	if err != nil {
		f.fatal("%v", fmt.Errorf("the end of the file of values %s: %w", f.name, err))
	}
	return err
}

// Write implements vfs.File.
func (f valuesFile) Write(b []byte) (int, error) {
	isLast := len(b) <= bufferBytes // or may be
	n, err := f.File.Write(b)
	if isLast {
		err = f.ends(err)
	}
	return n, err
}

// Sync implements vfs.File.
func (f valuesFile) Sync() error { return f.ends(f.File.Sync()) }

// SyncData implements vfs.File.
func (f valuesFile) SyncData() error { return f.ends(f.File.SyncData()) }

// SyncTo implements vfs.File.
func (f valuesFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.ends(err)
}

// Close implements vfs.File.
func (f valuesFile) Close() error { return f.ends(f.File.Close()) }

// rewritten takes the end of a rewrite of a file of values.
func (e *Engine) rewritten(i pebble.BlobFileRewriteInfo) {
	if i.Err != nil && !errors.Is(i.Err, pebble.ErrCancelledCompaction) {
		e.fail(i.Err)
	}
}

// garbageRatio is how much of the files of values may be garbage, before some are written again. 1: all.
func (e *Engine) garbageRatio() float64 {
	if e.err() != nil {
		return 1
	}
	return 0.2
}

// valueAt returns the value at which an iterator is.
func valueAt(it *pebble.Iterator) (b []byte, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case string: // "unknown metadata type", of a file that Pebble does not name
			err = fmt.Errorf("a file of values is not what it was: %s", p)
		default:
			panic(p)
		}
	}()
	return it.ValueAndErr()
}
