// Package vfs is the part of a filesystem that a log needs, and nothing else.
//
// Everything Millrace keeps passes through FS, so that the same log runs on the machine's disk (OS), on a slower one
// (WithSyncDelay) and on one that crashes, tears and forgets (package crashfs). The interface is narrow on purpose:
// there is no append mode, no seek and no buffering, because each of them hides the moment at which bytes move.
//
// The contract every FS keeps, and the log relies on:
//
//  1. WriteAt returned: later reads of any handle see the bytes. Nothing is durable. If a File's WriteAt failed for want
//     of room (ENOSPC, EDQUOT), no byte after the n that it returned was written. A BlockWriter's n proves nothing when
//     the write failed: any sectors of it may have been written, also if n is 0 (see BlockWriter).
//  2. File.Sync returned nil: contents and size of the file as of the call are durable. The name is not.
//  3. SyncDir returned nil: creations, renames and removals in that directory before the call are durable.
//  4. MkdirAll returned nil: the directories themselves are durable.
//  5. File.Sync returned an error: nothing is known of any byte written since the last success, and asking again
//     proves nothing (the kernel may have marked the pages clean). The caller must stop.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"unsafe"
)

// FS is a filesystem. It is safe for concurrent use.
type FS interface {
	// Create makes a new file open for reading and writing; it fails with fs.ErrExist if the name is taken.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing; it fails with fs.ErrNotExist if there is none.
	Open(name string) (File, error)
	// Rename replaces to by from in one step. Both must be in the same directory to be made durable by one SyncDir.
	Rename(from, to string) error
	// Remove deletes a file.
	Remove(name string) error
	// ReadDir returns the names in a directory, sorted, without the directory's own path.
	ReadDir(dir string) ([]string, error)
	// MkdirAll makes a directory with its missing parents, and makes them durable.
	MkdirAll(dir string) error
	// SyncDir makes the directory's entries durable.
	SyncDir(dir string) error
	// OpenDirect opens an existing file for writes that pass the page cache by: whole blocks of BlockBytes, at offsets
	// that are multiples of it, from memory that Blocks returned. Reads of other handles see them as they see any.
	// Where that is not to be had the error is errors.ErrUnsupported.
	OpenDirect(name string) (BlockWriter, error)
	// BootID names the machine's present run: it changes when what was written and not synced may have been lost, and
	// stays when a process dies. "" means that it is not known.
	BootID() (string, error)
	// Lock takes an exclusive lock that dies with the process, on a file that it creates if need be. It does not
	// wait: a lock that is held fails with a *LockedError.
	Lock(path string) (io.Closer, error)
}

// File is an open file. ReadAt, WriteAt and Sync may run at the same time; Close must come last.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes contents and size durable (fdatasync). See rule 5 for its errors.
	Sync() error
	// Size returns the length in bytes.
	Size() (int64, error)
	// Truncate sets the length in bytes; what is gained reads as zeros.
	Truncate(size int64) error
	// Preallocate reserves room for bytes [off, off+n) and grows the file to hold them; what is gained reads as
	// zeros. Where the filesystem cannot reserve, the file only grows. A full disk is ENOSPC.
	Preallocate(off, n int64) error
}

// BlockWriter is a file opened by OpenDirect. When its WriteAt fails, the caller must take every byte of the write for
// spoilt: Linux sends the extents of a direct write to the disk one after another, and when a later one finds no room it
// returns -1 for the whole, with the earlier ones written (seen on ext4 over a thin volume that was full).
type BlockWriter interface {
	io.WriterAt
	io.Closer
}

// BlockBytes is the unit of direct writes: no disk asks for more.
const BlockBytes = 4096

// Blocks returns n bytes of memory, zeroed, that a direct write can start from.
func Blocks(n int) []byte {
	b := make([]byte, n+BlockBytes-1)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % BlockBytes)
	return b[skip : skip+n : skip+n]
}

// ErrLocked is what errors.Is finds in a LockedError.
var ErrLocked = errors.New("locked by another process")

// LockedError says which lock is held by somebody else.
type LockedError struct{ Path string }

func (e *LockedError) Error() string {
	return fmt.Sprintf("%s is locked: another process (or another instance in this one) has the directory open; stop it first", e.Path)
}

// Unwrap makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Unwrap() error { return ErrLocked }
