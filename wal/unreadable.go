package wal

import (
	"errors"
	"syscall"
)

// isUnreadable reports whether a read failed because the disk cannot return these blocks: what it holds elsewhere can be
// read. Kernels name that differently: EIO, ENODATA (a medium error), EBADMSG and EILSEQ (a checksum of the disk's).
func isUnreadable(err error) bool {
	for _, code := range [...]error{syscall.EIO, syscall.ENODATA, syscall.EBADMSG, syscall.EILSEQ} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}
