package wal

import (
	"fmt"
	"io/fs"

	"github.com/millrace/millrace/vfs"
)

// ReadID returns the id of the log in dir (Log.ID) without opening the log and without writing. So a
// program can tell whose log it is before it touches it. The error wraps fs.ErrNotExist if there is no
// FENCE, and ErrCorrupt if no copy in FENCE is whole. The id is zero if the log was last opened by a
// program that knew no ids.
func ReadID(fsys vfs.FS, dir string) (id [16]byte, err error) {
	d := directory{fs: fsys, path: dir}
	f, _, err := d.readFence()
	if err == nil && f.version == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return id, fmt.Errorf("wal: read the id of the log from %s: %w", d.fencePath(), err)
	}
	return f.log, nil
}
