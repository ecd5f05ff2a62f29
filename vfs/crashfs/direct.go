package crashfs

import (
	"fmt"

	"github.com/millrace/millrace/vfs"
)

// OpenDirect implements vfs.FS. To this disk a direct write is like any other, un-synced until a Sync, with
// two differences. A write that is not made of whole blocks is refused, as by a real disk. A write that finds
// no space reports 0 bytes written, although any of its sectors may have been (Scattered).
func (d *FS) OpenDirect(name string) (vfs.BlockWriter, error) {
	return d.openDirect(name, d.powerNow())
}

func (d *FS) openDirect(name string, power uint64) (vfs.BlockWriter, error) {
	f, err := d.open(name, power)
	if err != nil {
		return nil, err
	}
	f.direct = true
	return blockWriter{f}, nil
}

type blockWriter struct{ *file }

func (w blockWriter) WriteAt(p []byte, off int64) (int, error) {
	if len(p)%vfs.BlockBytes != 0 || off%vfs.BlockBytes != 0 {
		return 0, fmt.Errorf("crashfs: direct write of %d bytes at offset %d is not made of blocks of %d", len(p), off, vfs.BlockBytes)
	}
	return w.file.WriteAt(p, off)
}
