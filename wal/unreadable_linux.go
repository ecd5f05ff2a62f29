package wal

import "syscall"

// mediumErrors are what Linux calls a block that the disk cannot return: EIO, ENODATA (a medium error),
// EBADMSG and EILSEQ (a checksum of the disk's, or of the filesystem's, is wrong).
var mediumErrors = []error{syscall.EIO, syscall.ENODATA, syscall.EBADMSG, syscall.EILSEQ}
