// Package vfs is the part of a filesystem that a log needs, and nothing else.
//
// Everything that Millrace stores passes through FS. So the same log runs on the machine's disk (OS), on a
// slower disk (WithSyncDelay), and on a simulated disk that crashes, tears and forgets (package crashfs).
// The interface is narrow on purpose: there is no append mode, no seek and no buffering, as each of them
// hides the moment at which bytes are written.
//
// Every FS keeps this contract, and the log relies on it:
//
//  1. WriteAt returned: later reads of any handle see the bytes. Nothing is durable. If a File's WriteAt
//     failed because the disk is full (ENOSPC, EDQUOT), no byte after the n that it returned was written. For
//     a BlockWriter the n of a failed write proves nothing: any of its sectors may have been written, even if
//     n is 0 (see BlockWriter).
//  2. File.Sync returned nil: the contents and size of the file at the time of the call are durable. Its name
//     is not.
//  3. Dir.Sync returned nil: creations, links, renames and removals in that directory before the call are
//     durable.
//  4. MkdirAll returned nil: the directories themselves are durable. RemoveDir returned nil: the directory is
//     gone, and durably so after a sync of its parent. Until then a crash may bring it back, with the names
//     in it that were not durably removed.
//  5. File.Sync returned an error: any bytes written since the last success may be durable or not. Another
//     Sync proves nothing (the kernel may have marked the pages clean). The caller must stop. The same is
//     true of Dir.Sync and names.
//  6. A call that opens something (Create, Open, OpenDir, OpenDirect, ReadDir, Lock) returned an error:
//     nothing was written, synced or lost by it. If the process has no descriptor or no memory just then
//     (EMFILE, ENFILE, ENOMEM), it may be tried again later.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"unsafe"
)

// FS is a filesystem. It is safe for concurrent use.
type FS interface {
	// Create makes a new file and opens it for reading and writing. It fails with fs.ErrExist if the name is
	// taken.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing. It fails with fs.ErrNotExist if there is none.
	Open(name string) (File, error)
	// Rename replaces to by from in one step. Both must be in the same directory, so that one SyncDir makes
	// the rename durable.
	Rename(from, to string) error
	// Link gives an existing file a second name: both name the same contents, which stay until the last
	// name is removed. Only the name has to be made durable, with SyncDir; the contents are as durable as
	// they were. It fails with fs.ErrExist if to is taken. It fails with errors.ErrUnsupported if the
	// filesystem cannot link the two names (two filesystems, none with links, a file of another user). The
	// caller copies then.
	Link(from, to string) error
	// Remove deletes a name of a file, and the file with its last name.
	Remove(name string) error
	// RemoveDir deletes an empty directory. It fails with syscall.ENOTEMPTY if a name is in it.
	RemoveDir(dir string) error
	// ReadDir returns the names in a directory, sorted, without the directory's own path.
	ReadDir(dir string) ([]string, error)
	// MkdirAll makes a directory and its missing parents, durably.
	MkdirAll(dir string) error
	// OpenDir opens an existing directory to make its entries durable. See Dir.
	OpenDir(dir string) (Dir, error)
	// OpenDirect opens an existing file for writes that bypass the page cache: whole blocks of BlockBytes,
	// at multiples of BlockBytes, from memory that Blocks returned. Reads through other handles see these
	// writes as usual. It returns errors.ErrUnsupported if the filesystem has no direct I/O.
	OpenDirect(name string) (BlockWriter, error)
	// BootID returns an id of the machine's current boot. It changes when un-synced bytes may have been lost,
	// and stays the same when only a process dies. "" means that it is not known.
	BootID() (string, error)
	// Lock takes an exclusive lock on a file, which it creates if necessary. The lock ends with the process.
	// Lock does not wait: it returns a *LockedError if the lock is held.
	Lock(path string) (io.Closer, error)
}

// wrapper is an FS that answers what is not in FS (SameFile, MountID, FreeBytes, Absolute) as the one below.
type wrapper interface{ below() FS }

// File is an open file. ReadAt, WriteAt and Sync may run concurrently; Close must be the last call.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes contents and size durable (fdatasync). See rule 5 for its errors.
	Sync() error
	// Size returns the length in bytes.
	Size() (int64, error)
	// Truncate sets the length in bytes. Bytes that are gained read as zeros.
	Truncate(size int64) error
	// Preallocate reserves space for the bytes [off, off+n) and grows the file to hold them. Bytes that are
	// gained read as zeros. On a filesystem that cannot reserve, the file only grows. A full disk is ENOSPC.
	Preallocate(off, n int64) error
}

// Dir is an open directory. It is safe for concurrent use; Close must be the last call.
//
// It is a value of its own because an open may fail for lack of a descriptor, and a sync must not. A caller
// that cannot take back a change of a name opens the directory before the change. It holds it for as long
// as names change.
type Dir interface {
	io.Closer
	// Sync makes the entries durable (fsync). See rule 5 for its errors.
	Sync() error
}

// SyncDir opens a directory, syncs it and closes it: for a caller that gives up its work after any error.
func SyncDir(fsys FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// BlockWriter is a file opened by OpenDirect. If its WriteAt fails, the caller must assume that any byte of
// the write may have been written. Linux sends the extents of a direct write to the disk one after another.
// If a later extent finds no space the call returns -1 for the whole write, with the earlier extents
// written (seen on ext4 over a full thin volume).
type BlockWriter interface {
	io.WriterAt
	io.Closer
}

// BlockBytes is the unit of direct writes. No disk requires a larger one.
const BlockBytes = 4096

// Blocks returns n zeroed bytes of memory, aligned for direct writes.
func Blocks(n int) []byte {
	b := make([]byte, n+BlockBytes-1)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % BlockBytes)
	return b[skip : skip+n : skip+n]
}

// ErrLocked matches every LockedError with errors.Is.
var ErrLocked = errors.New("locked by another process")

// LockedError says which lock is held by another process or instance.
type LockedError struct{ Path string }

func (e *LockedError) Error() string {
	return fmt.Sprintf("%s is locked: another process (or another instance in this one) has the directory open; stop it first", e.Path)
}

// Unwrap makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Unwrap() error { return ErrLocked }
