package vfs

import "errors"

// WriteZeroes makes the bytes [off, off+n) of a file zeros in blocks that count as written, without sending
// zeros to the disk. It grows the file to hold them. So a later Sync of writes to these blocks commits no
// metadata, as it does for the blocks of a Preallocate. Contents and size are durable after a Sync.
//
// It returns errors.ErrUnsupported if the filesystem, the device or the kernel cannot do it. Then some of the
// bytes may have changed to zeros, and the file may have grown. A full disk is ENOSPC.
//
// Linux has it since 6.17, as FALLOC_FL_WRITE_ZEROES, on ext4 and XFS over devices that zero a range by
// unmapping it (fallocate(2); /sys/block/*/queue/write_zeroes_unmap_max_bytes is not 0).
func WriteZeroes(f File, off, n int64) error {
	if z, ok := f.(interface{ WriteZeroes(off, n int64) error }); ok {
		return z.WriteZeroes(off, n)
	}
	return errors.ErrUnsupported
}
